"""Tasks under fire: whatever is killed when, every submission ends in exactly one final event."""

import asyncio
import contextlib
import os
import random
import signal

import pytest

from fastq.pool.main.child_queue import Submission
from fastq.pool.shared.event_kind import EventKind
from tests.pool.harness import Bench, bench, run, settings
from tests.waiting import PATIENCE_S

TASKS = 3000
GAP = 30
AGAIN = (EventKind.RETURNED, EventKind.RERUN, EventKind.CRASHED)


def shoot(b: Bench, chance: random.Random) -> None:
    """Kill a child that works, or the preloader."""
    # Not those that have not worked yet: five of them in a row, and the pool rightly gives up.
    victims = [one.pid for one in b.pool.running()]
    if victims and chance.random() < 0.2:
        victims = [b.pool.preloader_pid]
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(chance.choice(victims), signal.SIGKILL)


async def keep_full(b: Bench, waiting: list[int], chance: random.Random) -> None:
    """Submit tasks again until each has a result; check that no submission ends twice.

    After every few that worked somebody is killed: as often on a slow machine as on a quick one.
    """
    pending: dict[Submission, int] = {}
    ended = 0
    until_next = GAP
    while waiting or pending:
        while waiting and b.pool.free:
            number = waiting.pop()
            do, more = chance.choice(
                [
                    ("echo", {"text": str(number)}),
                    ("size", {"size": "30000"}),
                    ("write", {"size": "100", "times": "3"}),
                    ("nap", {}),
                ]
            )
            in_thread = number % 3 == 0
            task = b.task(number, do, is_async=False, is_threaded=in_thread, timeout=600.0, deadline=0.0, **more)
            pending[task] = number
            b.submit(task)
        await asyncio.sleep(0.001)
        for event in b.order[ended:]:
            ended += 1
            if event.kind is EventKind.WRITTEN:
                continue
            number = pending.pop(event.submission)  # a KeyError here: it had ended before
            if event.kind in AGAIN:
                waiting.append(number)
                continue
            assert event.kind in (EventKind.RESULT, EventKind.DONE)
            until_next -= 1
            if until_next <= 0:
                shoot(b, chance)
                until_next = chance.randrange(1, 2 * GAP)
    assert b.pool.pending == 0


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_every_submission_ends_once_whatever_is_killed(start_method: str) -> None:
    async def test() -> None:
        chance = random.Random(1)
        count = TASKS if start_method == "forkserver" else TASKS // 10
        config = settings(processes=3, threads=3, ring_bytes=1 << 16, prefetch_time=0.02, start_method=start_method)
        async with bench(config) as b:
            await keep_full(b, list(range(count)), chance)
            assert b.failed == []

    run(test(), 10 * PATIENCE_S)

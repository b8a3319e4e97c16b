import os
import time
from collections import Counter

import pytest

from fastq.pool.main.child_queue import Event
from fastq.pool.main.protocol import CancelOutcome
from fastq.pool.shared.event_kind import TOO_LATE, EventKind
from fastq.pool.shared.signals import SOFT_SIGNAL
from tests.pool.harness import Bench, bench, gone, is_alive, run, settings
from tests.waiting import until


@pytest.mark.parametrize(
    ("do", "start_method"),
    [
        ("sleep", "forkserver"),
        ("hold_gil", "forkserver"),
        ("spin", "spawn"),
        ("hold_gil_in_c", "spawn"),
        ("ignore", "spawn"),
    ],
)
def test_a_hang_ends_by_its_timeout_and_grace(do: str, start_method: str) -> None:
    async def test() -> None:
        listens = do in ("spin", "sleep")
        async with bench(settings(start_method=start_method, timeout_grace=60 if listens else 0.2)) as b:
            event, (pid,) = await b.hang(do)
            assert event.kind is EventKind.TIMEOUT
            # The soft signal ends what listens, in the same child; the rest is dead before the outcome is known.
            assert is_alive(pid) == listens
            assert (await b.run("noop")).kind is EventKind.DONE

    run(test())


def test_grandchildren_of_a_hang_die_with_it() -> None:
    async def test() -> None:
        async with bench() as b:
            event, pids = await b.hang("with_grandchildren", timeout=0.5)
            assert event.kind is EventKind.TIMEOUT
            await gone(*pids)

    run(test())


def test_a_grace_of_zero_kills_at_once() -> None:
    async def test() -> None:
        async with bench(settings(timeout_grace=0)) as b:
            event, (pid,) = await b.hang("clean_up")
            assert event.kind is EventKind.TIMEOUT
            assert not is_alive(pid)

    run(test())


async def interrupted(b: Bench, how: str, do: str) -> Event:
    """Run a task that hangs until its time is up, or until it is cancelled, and return its outcome."""
    if how == "timeout":
        return (await b.hang(do))[0]
    task = b.task("hang", do)
    b.submit(task)
    await b.beacon.pids()
    assert b.pool.cancel(task) is CancelOutcome.TOLD
    return await b.outcome("hang")


@pytest.mark.parametrize(("how", "name"), [("timeout", "TaskTimeout"), ("cancel", "TaskCanceled")])
def test_the_soft_signal_lets_a_handler_clean_up(how: str, name: str) -> None:
    async def test() -> None:
        async with bench(settings(timeout_grace=60)) as b:
            event = await interrupted(b, how, "clean_up")
            told = list(iter(b.beacon.told, ""))
            assert told[-1] == f"cleaned {name}"
            assert event.kind is (EventKind.TIMEOUT if how == "timeout" else EventKind.CANCELED)

    run(test())


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_handler_that_returns_after_the_soft_signal_has_still_failed(how: str) -> None:
    async def test() -> None:
        async with bench(settings(timeout_grace=60)) as b:
            event = await interrupted(b, how, "return_late")
            assert (event.kind, event.data) == (EventKind.TIMEOUT if how == "timeout" else EventKind.CANCELED, TOO_LATE)

    run(test())


def test_what_a_runner_says_about_a_timeout_reaches_the_server() -> None:
    async def test() -> None:
        async with bench(settings(timeout_grace=60)) as b:
            event = await interrupted(b, "timeout", "explain")
            assert (event.kind, event.data) == (EventKind.TIMEOUT, b"retry in 7 s")

    run(test())


def test_a_deadline_of_the_message_is_absolute() -> None:
    async def test() -> None:
        async with bench() as b:
            for seconds in (0.2, 2.0, 20.0):  # a busy machine may begin, or look, too late
                key = object()
                await b.room()  # the one before may have cost its child
                b.submit(b.task(key, "sleep", timeout=3600, deadline=time.time() + seconds))
                await until(lambda: b.pool.running() or not b.pool.pending)
                running = b.pool.running()
                assert (await b.outcome(key)).kind is EventKind.TIMEOUT
                if running and running[0].deadline_ns > running[0].started_ns:
                    break
            assert 0 < running[0].deadline_ns - running[0].started_ns <= seconds * 1e9

    run(test())


def test_a_task_whose_deadline_has_passed_is_not_started() -> None:
    async def test() -> None:
        async with bench() as b:
            b.submit(b.task("late", "kill_self", deadline=time.time() - 1))
            assert (await b.outcome("late")).kind is EventKind.TIMEOUT

    run(test())


def test_a_soft_signal_that_is_not_for_the_running_task_is_ignored() -> None:
    async def test() -> None:
        async with bench() as b:
            go = b.beacon.file("go")
            b.submit(b.task("work", "wait_for", file=str(go)))
            (pid,) = await b.beacon.pids()
            os.kill(pid, SOFT_SIGNAL)  # as one that comes late for the task before
            go.touch()
            assert (await b.outcome("work")).kind is EventKind.DONE
            os.kill(pid, SOFT_SIGNAL)
            assert (await b.run("noop")).kind is EventKind.DONE

    run(test())


def test_a_timeout_never_hits_the_next_task() -> None:
    """Timeouts as long as the tasks themselves, so that signals arrive around their ends."""

    async def test() -> None:
        async with bench(settings(timeout_grace=60, prefetch_time=0.01)) as b:
            kinds: Counter[tuple[str, EventKind]] = Counter()
            number = 0
            while kinds["spin", EventKind.TIMEOUT] < 40:
                number += 1
                b.submit(
                    b.task(("spin", number), "spin_silently", timeout=0.001),
                    b.task(("echo", number), "echo", text="x"),
                )
                kinds["spin", (await b.outcome(("spin", number))).kind] += 1
            for each in range(1, number + 1):
                kinds["echo", (await b.outcome(("echo", each))).kind] += 1
            # RETURNED: it stood behind the other for too long, which is as good.
            assert {kind for do, kind in kinds if do == "spin"} <= {EventKind.TIMEOUT, EventKind.RETURNED}
            assert {kind for do, kind in kinds if do == "echo"} <= {EventKind.RESULT, EventKind.RETURNED}
            assert len(b.pool.child_states) == 1

    run(test())

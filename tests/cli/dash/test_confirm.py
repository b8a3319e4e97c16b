"""The question before something is done, how far the work is, and its end before it is done."""

import os
import signal
from typing import Any

import pytest
from redis import Redis

from fastq.broker.transport.connection import READ_TIMEOUT_S
from fastq.cli.dash.confirm import Confirm
from fastq.inspector import Progress
from fastq.wire import keys
from tests.cli.commands import Fastq
from tests.cli.dash.driving import driven, on_a_loop
from tests.inspector.harness import Seeded
from tests.patience import redis_must_answer_within
from tests.redis_servers import redis_server


@on_a_loop
async def test_work_on_many_tasks_is_stopped_between_two_pieces(fastq: Fastq, db: Any, monkeypatch: Any) -> None:
    Seeded(db).pend(*(f"t{n:05}" for n in range(3000)))
    async with driven(fastq.url) as dash:
        await dash.sees("default")
        await dash.press("enter")
        await dash.sees("pending 1-16 of 3,000")
        # Esc comes after the second piece, wherever the machine is then.
        add = Progress._add

        def add_and_press(progress: Progress, result: Any) -> None:
            add(progress, result)
            if progress.done >= 400:
                screen = dash.app.screen
                assert isinstance(screen, Confirm)
                screen.action_stop()

        monkeypatch.setattr(Progress, "_add", add_and_press)
        await dash.press("D", "y")
        await dash.sees("Stopped: 400 of 3,000 deleted; the rest is unchanged.", "pend 2,600")
        assert db.llen(keys.pending("default")) == 2600
        assert len(list(db.scan_iter("asynq:{default}:t:*", count=1000))) == 2600


@pytest.mark.slow
@on_a_loop
@pytest.mark.parametrize("stop", [False, True])
async def test_work_on_many_tasks_goes_on_when_redis_answers_again_or_ends_when_it_is_to(
    monkeypatch: Any, stop: bool
) -> None:
    with redis_must_answer_within(READ_TIMEOUT_S), redis_server() as server:
        Seeded(server.client()).pend(*(f"t{n:05}" for n in range(3000)))
        add = Progress._add

        def add_and_stand_still(progress: Progress, result: Any) -> None:
            add(progress, result)
            if progress.done == 400:
                os.kill(server.process.pid, signal.SIGSTOP)

        async with driven(server.url, refresh_s=3600.0) as dash:
            await dash.sees("default")
            await dash.press("enter")
            await dash.sees("pending 1-16 of 3,000")
            monkeypatch.setattr(Progress, "_add", add_and_stand_still)
            try:
                await dash.press("D", "y")
                await dash.sees("400 of 3,000 deleted; Redis does not answer; retrying …")
                if stop:
                    await dash.press("escape")
                    await dash.sees("Stopped: 400 of 3,000 deleted; up to 200 more, because an answer was lost")
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
            if not stop:
                # What Redis was asked before it stood still it did: that is the piece whose answer was lost.
                await dash.sees("2,800 tasks deleted; up to 200 more, because an answer was lost.", "no pending tasks")
                assert not list(server.client().scan_iter("asynq:{default}:t:*", count=5000))


@on_a_loop
async def test_only_y_begins(filled: Fastq, db: Redis) -> None:
    async with driven(filled.url, queue="default") as dash:
        await dash.sees("active 1-2")
        await dash.press("l", "d")
        await dash.sees("Delete 1 pending task of default: p1")
        await dash.press("enter", "space", "d", "q", "f2", "question_mark")
        await dash.sees("Delete 1 pending task of default: p1")
        await dash.press("N")
        await dash.sees("Nothing was done.")
        assert Seeded(db).task("p1")

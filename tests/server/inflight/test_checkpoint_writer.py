"""Checkpoints of running tasks: saved while the task is ours, told to the handler, written again after failures."""

import asyncio

import pytest
from redis import Redis

from fastq.broker.operations.lease import list_owned
from fastq.pool.main.protocol import Submission
from fastq.server.inflight import checkpoint_writer
from fastq.server.inflight.checkpoint_writer import CheckpointWriter
from fastq.server.inflight.owner_marks import restore_marks
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire.codec import decode_task_message
from tests.broker.harness import OURS, QUEUE
from tests.e2e.view import View
from tests.server.harness import Bench, logged, on_bench


def held(bench: Bench, task_id: str) -> InFlightTask:
    (task,) = bench.hold(task_id)
    task.submission = Submission(task, task.view.data)
    return task


async def settled(writer: CheckpointWriter) -> None:
    await asyncio.gather(*writer._writes)
    assert writer._last == {}


def saved(bench: Bench, task_id: str) -> str | None:
    return decode_task_message(bench.queue.task(task_id)["msg"]).headers.get("fastq-checkpoint")


def test_a_checkpoint_is_saved_and_its_handler_told(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        told: list[tuple[Submission, int]] = []
        writer = CheckpointWriter(bench.commands, bench.in_flight, lambda *what: told.append(what))
        task = held(bench, "a")
        submission = task.submission
        writer.save(task, b"1", 1)
        await settled(writer)
        assert (saved(bench, "a"), told) == ("1", [(submission, 1)])
        assert decode_task_message(task.view.data).headers == {"fastq-checkpoint": "1"}  # so its end keeps it
        for number in (2, 3, 4):  # of those that come while one is being written the last one counts
            writer.save(task, str(number).encode(), number)
        await settled(writer)
        assert saved(bench, "a") == "4"
        assert told[-1] == (submission, 4)

    on_bench(db, url, test)


def test_the_checkpoint_of_a_task_that_is_not_ours_any_more_is_not_saved(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_writer, "AGAIN_S", 0.0)

    async def test(bench: Bench) -> None:
        told: list[int] = []
        writer = CheckpointWriter(bench.commands, bench.in_flight, lambda submission, number: told.append(number))
        lost, ended = held(bench, "lost"), held(bench, "ended")
        bench.take_away("lost")
        bench.tasks.drop(ended)
        for task in (lost, ended):
            writer.save(task, b"1", 1)
        for _ in range(3):
            await bench.commands.run(list_owned(QUEUE, OURS, range(1), 1))  # it may be ours again, so it is tried again
        assert lost in writer._last
        bench.tasks.drop(lost)
        await settled(writer)
        assert (saved(bench, "lost"), saved(bench, "ended"), told) == (None, None, [])

    on_bench(db, url, test)


def test_a_checkpoint_waits_for_the_heartbeat_that_restores_a_wiped_mark(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_writer, "AGAIN_S", 0.0)

    async def test(bench: Bench) -> None:
        told: list[int] = []
        writer = CheckpointWriter(bench.commands, bench.in_flight, lambda submission, number: told.append(number))
        task = held(bench, "a")
        bench.wipe_mark("a")
        writer.save(task, b"1", 1)
        await bench.commands.run(list_owned(QUEUE, OURS, range(1), 1))
        assert told == []
        assert await restore_marks(bench.commands.run_many, bench.in_flight, [task]) == {task}
        await settled(writer)
        assert (saved(bench, "a"), told) == ("1", [1])

    on_bench(db, url, test)


def test_a_run_is_not_told_of_the_checkpoints_of_an_earlier_one(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        told: list[tuple[Submission | None, int]] = []
        writer = CheckpointWriter(bench.commands, bench.in_flight, lambda *what: told.append(what))
        task = held(bench, "a")
        first = task.submission
        writer.save(task, b"7", 7)
        await asyncio.sleep(0)  # it is on its way to Redis
        task.submission = second = Submission(task, task.view.data)  # its child was killed for another task
        writer.save(task, b"1", 7)
        await settled(writer)
        assert told == [(first, 7), (second, 7)]
        assert saved(bench, "a") == "1"

    on_bench(db, url, test)


def test_a_checkpoint_that_redis_does_not_take_is_written_again(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoint_writer, "AGAIN_S", 0.0)

    async def test(bench: Bench) -> None:
        told: list[int] = []
        writer = CheckpointWriter(bench.commands, bench.in_flight, lambda submission, number: told.append(number))
        task = held(bench, "a")
        View(bench.db).forbid("hdel")
        writer.save(task, b"1", 1)
        while not logged(caplog):
            await asyncio.sleep(0)
        assert told == []
        View(bench.db).allow_all()
        await settled(writer)
        assert (saved(bench, "a"), told) == ("1", [1])
        (line,) = logged(caplog)
        assert line.startswith("could not save a checkpoint of task a, which waits for it; trying again: ")

    try:
        on_bench(db, url, test)
    finally:
        View(db).allow_all()

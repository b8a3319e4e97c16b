"""The progress of a task: written at once, then once a second at most and at its end, only while the task is ours."""

import logging

import pytest
from redis import Redis

from fastq.broker.operations.finish import Archived, Completed, Done, Requeued
from fastq.server.inflight.progress_writer import ProgressWriter
from fastq.wire import keys
from tests.broker.harness import NOW_S, QUEUE, message
from tests.server.harness import Bench, on_bench
from tests.waiting import until


def test_the_first_is_written_at_once_and_the_last_of_each_second_after_it(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        (task,) = bench.hold("a")
        writer = ProgressWriter(bench.commands, bench.owner, every_s=0.05)
        stored: list[bytes] = []

        def has(data: bytes) -> bool:
            stored.append(bench.db.hget(keys.task(QUEUE, "a"), "progress"))
            return stored[-1] == data

        writer.write(task, b"1")
        await until(lambda: has(b"1"))
        for data in (b"2", b"3", b"4"):
            writer.write(task, data)
        await until(lambda: has(b"4"))
        assert {*stored} <= {None, b"1", b"4"}
        await until(lambda: not writer._writes)
        assert writer.unwritten == {}

    on_bench(db, url, test)


def test_the_last_is_written_with_the_end(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        early, late, theirs, silent, deleted, again = tasks = bench.hold(*"abcdef")
        bench.take_away("c")
        progress = bench.writer.progress = ProgressWriter(bench.commands, bench.owner, every_s=1e6)
        progress.write(early, b"1")
        await until(lambda: progress.unwritten[early] is None)
        progress.write(early, b"2")  # its second is not over
        early.disposition = Completed("a", message("a"), NOW_S + 60)
        late.disposition, theirs.disposition = (Archived(name, message(name)) for name in "bc")
        silent.disposition = Completed("d", message("d"), NOW_S + 60)
        deleted.disposition, again.disposition = Done("e"), Requeued("f")
        for task in (late, theirs, deleted, again):
            progress.write(task, b"3")  # in the turn of the loop in which it ends
        assert len(progress.with_ends_of(tasks)) == 3, "a task that is deleted or runs again needs none"
        await bench.writer.write(tasks, checks_done=False)
        kept = [bench.db.hget(keys.task(QUEUE, name), "progress") for name in "abcdef"]
        assert kept == [b"2", b"3", None, None, None, None]
        await progress.stop()
        assert progress.unwritten == {}

    on_bench(db, url, test)


def test_a_write_that_fails_is_tried_again(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fastq")

    async def test(bench: Bench) -> None:
        (task,) = bench.hold("a")
        writer = ProgressWriter(bench.commands, bench.owner, every_s=0.01)
        bench.queue.db.rename(lease := keys.lease(QUEUE), "kept")
        bench.db.set(lease, "no sorted set")
        writer.write(task, b"1")
        await until(lambda: "could not write the progress of task a; trying again: " in caplog.text)
        bench.db.rename("kept", lease)
        await until(lambda: bench.db.hget(keys.task(QUEUE, "a"), "progress") == b"1")
        await until(lambda: not writer._writes)

    on_bench(db, url, test)

    on_bench(db, url, test)

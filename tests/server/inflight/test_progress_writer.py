"""The progress of a running task: written at once, then once a second at most, and only while the task is ours."""

from redis import Redis

from fastq.broker.operations.finish import Done
from fastq.server.inflight.progress_writer import ProgressWriter
from fastq.wire import keys
from tests.broker.harness import QUEUE
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
        assert writer._last == {}

    on_bench(db, url, test)


def test_it_ends_with_its_task_and_with_the_server(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        ours, ended, theirs = bench.hold("a", "b", "c")
        bench.take_away("c")
        writer = ProgressWriter(bench.commands, bench.owner, every_s=1e6)
        ended.disposition = Done("b")
        for task in (ours, ended, theirs):
            writer.write(task, b"1")
        await until(lambda: bench.db.hget(keys.task(QUEUE, "a"), "progress") == b"1")
        await until(lambda: ended not in writer._last)
        await writer.stop()
        assert writer._last == {}
        assert [bench.db.hget(keys.task(QUEUE, name), "progress") for name in "bc"] == [None, None]

    on_bench(db, url, test)

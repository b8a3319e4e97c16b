"""The memory limit: the task that runs when its process grows above it is charged, with figures, and no other."""

import re

import pytest

from fastq.pool.link import PoolStartError
from fastq.pool.outcome import Kind
from tests.pool.harness import bench, gone, run, settings

MB = 1 << 20
OBITUARY = r"worker process {} died .*: it had grown to \d{{3}} MB, above memory_limit \(210 MB\)"


def test_a_task_that_grows_above_the_limit_is_ended_and_charged() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=200 * MB, prefetch_time=600)) as b:
            (old,) = b.pool.child_pids
            await b.run("noop")
            b.submit(b.task("big", "grow", size=str(250 * MB)), *(b.task(number, "pid") for number in range(5)))
            event = await b.outcome("big")
            assert event.kind is Kind.CRASHED
            assert re.search(OBITUARY.format(old), event.data.decode()), event.data
            events = await b.outcomes(range(5))
            assert {event.kind for event in events} == {Kind.RESULT}, "those behind it run in the next child"
            await gone(old)
            assert b.notices == []

    run(test())


def test_of_coroutines_the_one_that_began_last_is_charged() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=200 * MB, async_concurrency=4)) as b:
            old = [b.task(number, "sleep", is_async=True) for number in range(3)]
            for task in old:
                b.submit(task)
                await b.beacon.pids()
            b.submit(b.task("big", "grow", is_async=True, size=str(250 * MB)))
            assert (await b.outcome("big")).kind is Kind.CRASHED
            assert [event.kind for event in await b.outcomes(range(3))] == [Kind.RERUN] * 3

    run(test())


def test_a_child_within_the_limit_is_left_alone() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=1000 * MB)) as b:
            (pid,) = b.pool.child_pids
            go = b.beacon.file("go")
            b.submit(b.task("work", "wait_for", file=str(go)))
            await b.beacon.pids()
            for _ in range(3):
                b.pool._supervisor._memory._due_s = 0.0
                b.pool._supervisor.check()
            go.touch()
            assert (await b.outcome("work")).kind is Kind.DONE
            assert b.pool.child_pids == [pid]

    run(test())


def test_a_system_that_does_not_tell_sizes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.pool.supervisor.rss_of", lambda pid: 0)

    async def test() -> None:
        with pytest.raises(PoolStartError, match="memory_limit: this system does not tell"):
            async with bench(settings(memory_limit=1000 * MB)):
                pass

    run(test())

"""The memory limit: a task that makes its process grow above it is ended as by its timeout, and no other is charged."""

import math
import re

import pytest

from fastq.pool.main.memory_watch import _Seen as Seen
from fastq.pool.main.preloader_client import PoolStartError
from fastq.pool.shared.event_kind import TOO_LATE, EventKind
from tests.pool.harness import Bench, bench, gone, run, settings
from tests.waiting import until

MB = 1 << 20
LIMIT = 200 * MB
BIG = str(250 * MB)
OBITUARY = r"worker process {} died .*: it had grown to \d{{3}} MB, above memory_limit \(210 MB\)"
NOTICE = r"worker process {} has grown to \d{{3}} MB, above memory_limit \(210 MB\); it is replaced"


def hold_looks(b: Bench) -> None:
    """Let the pool's tick look at no sizes; the test does."""
    b.pool._memory._due_s = math.inf


def look(b: Bench) -> None:
    b.pool._memory._due_s = 0.0
    b.pool._memory.check(b.pool._supervisor.children)
    hold_looks(b)


def is_in_step(b: Bench, key: object) -> bool:
    """Return whether the event loop of the only child is in a step of a task."""
    (child,) = b.pool._supervisor.children
    found = child.queue.find(child.queue.in_step)
    return found is not None and found.key == key


def test_a_handler_that_grows_above_the_limit_is_told_and_its_child_replaced() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=LIMIT, prefetch_time=600, timeout_grace=600)) as b:
            (old,) = b.pool.child_states
            b.submit(b.task("big", "grow_and_clean_up", size=BIG), *(b.task(number, "pid") for number in range(5)))
            assert await b.beacon.pids() == [old]
            told = r"cleaned TaskCanceled: its process has grown above memory_limit \(peak RSS \d{3} MB\)"
            assert re.fullmatch(told, await b.beacon.next())
            assert (await b.outcome("big")).kind is EventKind.MEMORY_LIMIT
            events = await b.outcomes(range(5))
            assert {event.kind for event in events} == {EventKind.RESULT}
            assert str(old).encode() not in {event.data for event in events}, "those behind it run in the next child"
            await gone(old)
            (notice,) = b.notices
            assert re.fullmatch(NOTICE.format(old), notice)

    run(test())


@pytest.mark.parametrize(("do", "grace"), [("grow_and_ignore", 0.2), ("grow_and_clean_up", 0)])
def test_a_handler_that_does_not_end_after_the_grace_is_killed_and_charged(do: str, grace: float) -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=LIMIT, timeout_grace=grace)) as b:
            (old,) = b.pool.child_states
            b.submit(b.task("big", do, size=BIG))
            event = await b.outcome("big")
            assert event.kind is EventKind.CRASHED
            assert re.fullmatch(OBITUARY.format(old), event.data.decode()), event.data
            await gone(old)

    run(test())


def test_a_handler_that_returns_after_it_was_told_has_still_failed() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=LIMIT, timeout_grace=600)) as b:
            hold_looks(b)
            assert (await b.run("allocate", size=BIG)).kind is EventKind.RESULT
            b.submit(b.task("late", "return_late"))
            await b.beacon.pids()
            (child,) = b.pool._supervisor.children
            b.pool._memory._seen[child] = Seen(finished=child.queue.finished)  # as if it had grown since
            look(b)
            event = await b.outcome("late")
            assert (event.kind, event.data) == (EventKind.MEMORY_LIMIT, TOO_LATE)

    run(test())


def test_a_task_that_found_its_child_too_big_runs_again_free_of_charge() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=LIMIT, prefetch_time=600, timeout_grace=600)) as b:
            hold_looks(b)
            look(b)
            (old,) = b.pool.child_states
            b.submit(b.task("big", "allocate", size=BIG), b.task("innocent", "sleep"), b.task("next", "noop"))
            assert await b.beacon.pids() == [old]
            assert (await b.outcome("big")).kind is EventKind.RESULT
            look(b)
            assert (await b.outcome("innocent")).kind is EventKind.RERUN
            assert (await b.outcome("next")).kind is EventKind.DONE
            await gone(old)

    run(test())


def test_a_plain_task_that_ran_at_the_last_look_is_charged_whatever_ran_before_it() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=LIMIT, timeout_grace=600)) as b:
            hold_looks(b)
            await b.run("noop")
            go = b.beacon.file("go")
            b.submit(b.task("big", "wait_and_grow", size=BIG, file=str(go)))
            await b.beacon.pids()
            look(b)
            go.touch()
            assert await b.beacon.next() == "grown"
            look(b)
            assert (await b.outcome("big")).kind is EventKind.MEMORY_LIMIT

    run(test())


def test_a_child_that_is_too_big_between_tasks_is_replaced() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=LIMIT)) as b:
            hold_looks(b)
            old = int((await b.run("allocate", size=BIG)).data)
            b.pool._memory._due_s = 0.0
            await gone(old)
            assert (await b.run("pid")).data != str(old).encode()
            (notice,) = b.notices
            assert re.fullmatch(NOTICE.format(old), notice)

    run(test())


def test_a_coroutine_that_grows_is_canceled_and_the_one_that_began_later_goes_on() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=LIMIT, async_concurrency=4, timeout_grace=600)) as b:
            hold_looks(b)
            (old,) = b.pool.child_states
            await b.run("noop")
            grow, end = b.beacon.file("grow"), b.beacon.file("end")
            b.submit(b.task("big", "grow_for_a_while", is_async=True, size=BIG, file=str(grow)))
            await b.beacon.pids()
            look(b)
            b.submit(b.task("innocent", "wait_for", is_async=True, file=str(end)))
            await b.beacon.pids()
            grow.touch()
            assert await b.beacon.next() == "grown"
            await until(lambda: not is_in_step(b, "innocent"))  # it polls; nobody could be blamed then
            look(b)
            assert (await b.outcome("big")).kind is EventKind.MEMORY_LIMIT
            look(b)
            end.touch()
            assert (await b.outcome("innocent")).data == f"wait_for {old}".encode()
            await gone(old)

    run(test())


def test_coroutines_beside_one_that_was_told_and_gave_nothing_back_run_again() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=LIMIT, async_concurrency=4)) as b:
            hold_looks(b)
            others = [b.task(number, "sleep", is_async=True) for number in range(3)]
            b.submit(*others, b.task("big", "grow", is_async=True, size=BIG))
            while await b.beacon.next() != "grown":
                pass
            (child,) = b.pool._supervisor.children
            (kept,) = [row for row in b.pool.running() if row.submission.key == "big"]
            b.pool._memory._seen[child] = Seen(kept.started_ns)
            look(b)
            assert (await b.outcome("big")).kind is EventKind.MEMORY_LIMIT
            b.pool._memory._due_s = 0.0
            assert {event.kind for event in await b.outcomes(range(3))} == {EventKind.RERUN}

    run(test())


@pytest.mark.parametrize("was_seen", [True, False])
def test_the_coroutine_that_the_loop_is_in_is_charged_if_it_ran_within_the_limit(was_seen: bool) -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=LIMIT, async_concurrency=4)) as b:
            hold_looks(b)
            (old,) = b.pool.child_states
            others = [b.task(number, "sleep", is_async=True) for number in range(3)]
            b.submit(*others)
            for _ in others:
                await b.beacon.pids()
            look(b)
            go = b.beacon.file("go")
            b.submit(b.task("big", "grow_and_block", is_async=True, size=BIG, file=str(go)))
            await b.beacon.pids()
            if was_seen:
                look(b)
            go.touch()
            assert await b.beacon.next() == "grown"
            look(b)
            b.pool._memory._due_s = 0.0  # it goes on while the cause is sought
            event = await b.outcome("big")
            if was_seen:
                assert event.kind is EventKind.CRASHED
                assert re.fullmatch(OBITUARY.format(old), event.data.decode()), event.data
            else:
                assert event.kind is EventKind.RERUN, "it may have found its child like that"
            assert {event.kind for event in await b.outcomes(range(3))} == {EventKind.RERUN}

    run(test())


def test_a_child_within_the_limit_is_left_alone() -> None:
    async def test() -> None:
        async with bench(settings(memory_limit=1000 * MB)) as b:
            (pid,) = b.pool.child_states
            go = b.beacon.file("go")
            b.submit(b.task("work", "wait_for", file=str(go)))
            await b.beacon.pids()
            for _ in range(3):
                look(b)
            go.touch()
            assert (await b.outcome("work")).kind is EventKind.DONE
            assert list(b.pool.child_states) == [pid]

    run(test())


def test_a_system_that_does_not_tell_sizes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.pool.main.supervisor.rss_of", lambda pid: 0)

    async def test() -> None:
        with pytest.raises(PoolStartError, match="memory_limit: this system does not report"):
            async with bench(settings(memory_limit=1000 * MB)):
                pass

    run(test())

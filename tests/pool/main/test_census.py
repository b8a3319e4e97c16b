"""The numbers of a pool: what its children do, for how long they had tasks, why they ended."""

import os
import signal

import pytest

from fastq.pool.main.census import Census, why_ended, why_replaced
from fastq.pool.main.child import Child, ChildState
from fastq.pool.main.config import PoolConfig
from fastq.pool.shared.event_kind import EventKind
from tests.pool.harness import bench, gone, run, settings
from tests.waiting import until


def test_children_are_counted_by_what_they_do() -> None:
    async def test() -> None:
        async with bench(settings(processes=2, prefetch_time=600)) as b:
            assert b.pool.census().children == {"idle": 2}
            go = b.beacon.file("go")
            tasks = [b.task(number, "wait_for", file=str(go)) for number in range(3)]
            b.submit(*tasks)
            await b.beacon.pids()
            await b.beacon.pids()
            busy = b.pool.census()
            assert (busy.children, busy.running, busy.waiting) == ({"busy": 2}, 2, 1)
            await until(lambda: b.pool.census().worked_s[0] > 0)
            go.touch()
            await b.outcomes(range(3))
            idle = b.pool.census()
            assert (idle.children, idle.running, idle.waiting) == ({"idle": 2}, 0, 0)
            assert {child.pid: child.state for child in idle.each} == dict.fromkeys(b.pool.child_states, "idle")
            busy_s, alive_s = idle.worked_s
            assert 0 < busy_s <= alive_s
            await until(lambda: all(child.rss for child in b.pool._supervisor.children))
            largest, total = b.pool.census().rss_bytes
            assert 0 < largest < total <= 2 * largest
            assert max(child.rss_bytes for child in b.pool.census().each) > 0

    run(test())


def test_the_memory_of_each_child_is_looked_at_once_in_two_seconds() -> None:
    async def test() -> None:
        async with bench(settings(processes=2)) as b:
            children, census = b.pool._supervisor.children, Census()
            looked: list[set[int]] = []
            for now_s in (100.0, 100.9, 101.0):
                for child in children:
                    child.rss = 0
                census.sample(children, now_s, 0.0)
                looked.append({child.pid for child in children if child.rss})
            assert len(looked[0]) == 1
            assert looked == [looked[0], set(), set(b.pool.child_states) - looked[0]]

    run(test())


def test_time_before_a_task_came_is_not_worked() -> None:
    async def test() -> None:
        async with bench(settings()) as b:
            go = b.beacon.file("go")
            b.submit(b.task("a", "wait_for", file=str(go)))
            await b.beacon.pids()
            children, census = b.pool._supervisor.children, Census()
            for now_s, busy_since_s in ((100.0, 0.0), (101.0, 100.75), (103.0, 100.75)):
                census.sample(children, now_s, busy_since_s)
            assert census.take(children, 1).worked_s == (2.25, 3.0)
            go.touch()
            await b.outcome("a")

    run(test())


def test_children_that_ended_are_counted_by_reason() -> None:
    async def test() -> None:
        # A child that is slow to begin its one task must not give it back: the next child would end for it, too.
        async with bench(settings(max_tasks_per_child=1, prefetch_time=600)) as b:
            old = set(b.pool.child_states)
            assert (await b.run()).kind is EventKind.DONE
            await gone(*old)
            await until(lambda: any(b.pool.census().ended.values()))
            found = {reason: number for reason, number in b.pool.census().ended.items() if number}
            assert found == {"max_tasks": 1}
        ended = b.pool.census().ended
        assert {reason for reason, number in ended.items() if number} == {"max_tasks", "shutdown"}
        assert {"crashed", "killed", "start_failed"} <= ended.keys()

    run(test())


def test_a_child_that_gives_its_last_task_back_still_leaves_for_that_task() -> None:
    """It is to be replaced as soon as it has its last task, which another child may run if it is slow to begin it."""

    async def test() -> None:
        async with bench(settings(max_tasks_per_child=1)) as b:
            (old,) = b.pool._supervisor.children
            os.kill(old.pid, signal.SIGSTOP)
            b.submit(b.task("a"))
            await until(lambda: old.state is not ChildState.READY and not old.queue.pending)
            os.kill(old.pid, signal.SIGCONT)
            await gone(old.pid)
            await until(lambda: any(b.pool.census().ended.values()))
            assert {reason for reason, number in b.pool.census().ended.items() if number} == {"max_tasks"}

    run(test())


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (ChildState.STARTING, "start_failed"),
        (ChildState.READY, "crashed"),
        (ChildState.LEAVING, "crashed"),
        (ChildState.KILLED, "killed"),
    ],
)
def test_the_last_state_of_a_child_tells_why_it_ended(state: ChildState, why: str) -> None:
    async def test() -> None:
        child = Child.create(1, PoolConfig(runner="none:none"))
        try:
            child.state = state
            assert why_ended(child, was_closed=False) == why
            assert why_ended(child, was_closed=True) == "shutdown"
            child.state, child.why_replaced = ChildState.EXITING, why_replaced(child)
            assert why_ended(child, was_closed=False) == "replaced"
            child.is_outdated = True
            assert why_replaced(child) == "reload"
            child.is_too_big = True
            assert why_replaced(child) == "max_memory"
        finally:
            child.close()

    run(test())

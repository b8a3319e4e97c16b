"""Coroutines that block the event loop of their child are told of; those that wait are not."""

import math

import pytest

from fastq.pool.main.child import Child
from tests.pool.harness import Bench, bench, run, settings
from tests.waiting import until


def look(b: Bench, now_s: float) -> None:
    """Look as at a tick of that time; the pool's own ticks do not."""
    watch = b.pool._steps
    watch._due_s = -math.inf
    watch.check(b.pool._supervisor.children, now_s)
    watch._due_s = math.inf


def only_child(b: Bench) -> Child:
    b.pool._steps._due_s = math.inf
    (child,) = b.pool._supervisor.children
    return child


async def begun(child: Child, tasks: int, *, is_inside: bool) -> None:
    """Wait until all tasks have begun, and the event loop is in one of them or in none."""
    queue = child.queue
    await until(lambda: queue.pending == tasks and not queue.oldest_waiting() and bool(queue.in_step) == is_inside)


def test_a_coroutine_that_sleeps_in_its_step_is_told_of_once() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            child = only_child(b)
            b.submit(b.task("waits", "sleep", is_async=True))
            await begun(child, 1, is_inside=False)
            b.submit(b.task("blocks", "block", is_async=True))
            await begun(child, 2, is_inside=True)
            times = iter(range(10**9))

            def is_told() -> bool:
                look(b, next(times) * 0.3)
                return bool(b.notices)

            await until(is_told)
            (notice,) = b.notices
            assert notice.startswith(
                "a coroutine of type 'block' has blocked the event loop of its worker process for "
            )
            assert "and the other coroutines there wait; await asyncio.sleep and" in notice
            for _ in range(5):
                look(b, next(times) * 0.3)
            assert b.notices == [notice]

    run(test())


@pytest.mark.parametrize(("others", "do"), [(1, "sleep"), (0, "block")], ids=["it gives the loop back", "nobody waits"])
def test_no_other_coroutine_is_told_of(others: int, do: str) -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            child = only_child(b)
            b.submit(b.task("it", do, is_async=True), *(b.task(n, "sleep", is_async=True) for n in range(others)))
            await begun(child, 1 + others, is_inside=do == "block")
            for number in range(20):
                look(b, number * 0.3)
            assert b.notices == []

    run(test())

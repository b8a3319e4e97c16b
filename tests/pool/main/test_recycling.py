import re

import pytest

from fastq.pool.main.child import Child, ChildState
from fastq.pool.main.preloader_client import PoolStartError
from fastq.pool.main.supervisor import Supervisor
from fastq.pool.shared.event_kind import EventKind
from tests.pool.harness import bench, gone, run, settings
from tests.waiting import until

MB = 1 << 20


def test_a_child_runs_no_more_than_its_share_of_tasks() -> None:
    async def test() -> None:
        async with bench(settings(max_tasks_per_child=7, prefetch_time=600)) as b:
            b.submit(*(b.task(number, "pid") for number in range(70)))
            pids = [int(event.data) for event in await b.outcomes(range(70))]
            shares = [pids.count(pid) for pid in dict.fromkeys(pids)]
            assert shares == [7] * 10
            await gone(*set(pids) - set(b.pool.child_states))

    run(test())


def test_the_successor_is_ready_before_its_predecessor_has_ended() -> None:
    async def test() -> None:
        async with bench(settings(max_tasks_per_child=1, prefetch_time=600)) as b:
            (old,) = b.pool.child_states
            go = b.beacon.file("go")
            b.submit(b.task("last", "wait_for", file=str(go)), b.task("next", "pid"))
            assert await b.beacon.pids() == [old]
            await until(lambda: list(b.pool.child_states.values()) == [ChildState.LEAVING, ChildState.READY])
            # Not more handlers than slots: it does not start before the other has ended.
            assert [one.submission.key for one in b.pool.running()] == ["last"]
            go.touch()
            assert int((await b.outcome("next")).data) != old

    run(test())


def test_who_waits_for_room_hears_of_a_successor_that_is_ready() -> None:
    async def test() -> None:
        async with bench(settings(max_tasks_per_child=1)) as b:
            for number in range(20):
                rooms = b.rooms
                assert b.pool.free
                b.submit(b.task(number))
                await b.outcome(number)
                await b.until(lambda rooms=rooms: b.rooms > rooms)  # type: ignore[misc]  # mypy cannot infer it

    run(test())


def test_successors_start_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    starting: list[int] = []
    watch = Supervisor._watch

    def count(self: Supervisor, child: Child, pid: int, pidfd: int) -> None:
        watch(self, child, pid, pidfd)
        starting.append(sum(one.state is ChildState.STARTING for one in self.children))

    async def test() -> None:
        async with bench(settings(max_tasks_per_child=1, processes=3, start_method="spawn", prefetch_time=600)) as b:
            monkeypatch.setattr(Supervisor, "_watch", count)
            old = set(b.pool.child_states)
            go = b.beacon.file("go")
            b.submit(*(b.task(number, "wait_for", file=str(go)) for number in range(3)))
            assert {pid for _ in old for pid in await b.beacon.pids()} == old

            def are_all_there() -> bool:
                states = sorted(b.pool.child_states.values(), key=lambda state: state.value)
                return states == [ChildState.READY] * 3 + [ChildState.LEAVING] * 3

            await until(are_all_there)
            assert starting == [1, 1, 1]
            assert b.pool.running() != [], "the old ones are at it until their successors can take over"
            go.touch()
            await b.outcomes(range(3))
            await gone(*old)

    run(test())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_child_above_its_memory_is_replaced_and_what_waited_moves_on(is_async: bool) -> None:
    async def test() -> None:
        async with bench(settings(max_memory_per_child=200 * MB, prefetch_time=600, async_concurrency=4)) as b:
            (old,) = b.pool.child_states
            await b.run("noop")
            big = b.task("big", "allocate", size=str(250 * MB))
            b.submit(big, *(b.task(number, "noop" if is_async else "pid", is_async=is_async) for number in range(10)))
            assert (await b.outcome("big")).kind is EventKind.RESULT
            events = await b.outcomes(range(10))
            assert {event.kind for event in events} == {EventKind.RESULT}
            assert {int(event.data.split()[-1]) for event in events} == set(b.pool.child_states) - {old}
            await gone(old)
            (info,) = [info for info in b.infos if "grown" in info]
            assert re.fullmatch(
                rf"worker process {old} has grown to \d{{3}} MB \(max_memory_per_child\); it is replaced", info
            )

    run(test())


def test_children_that_leak_are_replaced_again_and_again() -> None:
    async def test() -> None:
        async with bench(settings(max_memory_per_child=200 * MB, prefetch_time=600)) as b:
            b.submit(*(b.task(number, "allocate", size=str(40 * MB)) for number in range(20)))
            pids = [int(event.data) for event in await b.outcomes(range(20))]
            # 40 MB each under 200 MB, of which the app itself takes some: each child makes a few and no more.
            assert max(pids.count(pid) for pid in pids) <= 5
            assert b.failed == []

    run(test())


@pytest.mark.parametrize("name", ["max_memory_per_child", "memory_limit"])
def test_a_limit_that_the_app_alone_nearly_fills_is_refused(name: str) -> None:
    async def test() -> None:
        options: dict[str, float | str] = {name: 20 * MB}
        with pytest.raises(PoolStartError, match=f"{name} of {20 * MB} bytes is too small"):
            async with bench(settings("", **options)):
                pass

    run(test())

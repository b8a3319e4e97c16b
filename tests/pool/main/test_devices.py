"""The children of a pool with devices: each has one, and its successor gets it once it is gone."""

import os
from pathlib import Path
from typing import Any

import pytest

from fastq.pool.main.child import ChildState
from fastq.pool.main.preloader_client import PoolStartError
from fastq.pool.shared.event_kind import EventKind
from tests.pool.harness import Bench, bench, gone, is_alive, run, settings
from tests.waiting import until


def with_devices(*devices: str, **options: Any) -> Any:
    return settings(devices=devices, **options)


async def where(b: Bench) -> tuple[int, str]:
    """Return the process that runs a task, and its device."""
    while (event := await b.run("device")).kind is EventKind.RETURNED:
        pass  # it had not begun when its child, and the other one, were replaced
    assert event.kind is EventKind.RESULT, event
    pid, device = event.data.decode().split()
    return int(pid), device


def watch(b: Bench) -> list[str]:
    """Return a list of the devices that are ordered while a process that had one is still there."""
    order, mixed = b.forks.order, list[str]()
    seats = b.pool._supervisor.seats._all
    of_pids = {seat.current.pid: seat.device for seat in seats if seat.current is not None}

    def watched(user: Any, number: int, fds: list[int], config: Any, device: str = "") -> Any:
        children = b.pool._supervisor._children
        of_pids.update(
            {child.pid: of_numbers[one] for one, child in children.items() if one in of_numbers and child.pid}
        )
        mixed.extend(held for pid, held in of_pids.items() if held == device and is_alive(pid))
        of_numbers[number] = device
        return order(user, number, fds, config, device)

    of_numbers: dict[int, str] = {}
    b.forks.order = watched  # type: ignore[method-assign]
    return mixed


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_children_get_devices_by_turns(start_method: str) -> None:
    async def test() -> None:
        async with bench(with_devices("5", "GPU-7", processes=3, start_method=start_method)) as b:
            await b.until(lambda: len(b.pool.child_states) == 3)
            go = b.beacon.file("go")
            b.submit(*(b.task(number, "device", file=str(go)) for number in range(3)))
            assert len({pid for _ in range(3) for pid in await b.beacon.pids()}) == 3  # one in each child
            go.touch()
            found = [event.data.decode().split()[1] for event in await b.outcomes(range(3))]
            assert sorted(found) == ["5,5,5", "5,5,5", "GPU-7,GPU-7,GPU-7"]

    run(test())


def test_without_devices_nothing_is_set() -> None:
    async def test() -> None:
        async with bench(settings()) as b:
            _, device = await where(b)
            assert device == f"{os.environ.get('CUDA_VISIBLE_DEVICES')},{os.environ.get('HIP_VISIBLE_DEVICES')},None"

    run(test())


def test_a_successor_gets_the_device_once_its_predecessor_is_gone() -> None:
    async def test() -> None:
        async with bench(with_devices("0", "1", processes=2, max_tasks_per_child=2)) as b:
            mixed = watch(b)
            seen = [await where(b) for _ in range(20)]
            assert len({pid for pid, _ in seen}) >= 9
            assert {device for _, device in seen} <= {"0,0,0", "1,1,1"}
            assert mixed == []

    run(test())


def test_a_killed_child_is_gone_before_its_device_is_given_again() -> None:
    async def test() -> None:
        async with bench(with_devices("0")) as b:
            mixed = watch(b)
            for _ in range(3):
                (pid,) = b.pool.child_states
                await b.run("kill_self")
                await gone(pid)
                await b.room()
            assert mixed == []
            assert (await where(b))[1] == "0,0,0"

    run(test())


def test_a_reload_empties_one_device_at_a_time() -> None:
    async def test() -> None:
        async with bench(with_devices("0", "1", "2", processes=3)) as b:
            await b.until(lambda: b.pool._supervisor.seats.all_ready)
            old, mixed = set(b.pool.child_states), watch(b)
            fewest = 3
            reloaded = await b.forks.reload()
            while not reloaded.done():
                ready = [state for state in b.pool.child_states.values() if state.name == "READY"]
                fewest = min(fewest, len(ready))
                await b.run("noop")
            await b.until(lambda: b.pool._supervisor.seats.all_ready)
            assert old.isdisjoint(b.pool.child_states)
            assert fewest >= 2
            assert mixed == []
            assert {(await where(b))[1] for _ in range(40)} <= {"0,0,0", "1,1,1", "2,2,2"}

    run(test())


def ill_at_times(path: Path) -> Any:
    argument, runner = str(path), "tests.pool.runners:load_ill_at_times"
    return with_devices("0", "1", "2", processes=3, argument=argument, runner=runner)


def test_a_reload_does_not_wait_for_a_device_on_which_no_child_starts(tmp_path: Path) -> None:
    async def test() -> None:
        async with bench(ill_at_times(tmp_path / "ill")) as b:
            first, broken, last = seats = b.pool._supervisor.seats._all
            old = broken.current
            assert old is not None
            await until(lambda: old.is_settled)  # before that, so many failures would end the pool
            (tmp_path / "ill").write_text("raise at start on 1")
            old.kill()
            await until(lambda: broken.has_failed)
            await (await b.forks.reload())
            await until(lambda: all(each.current and not each.current.is_outdated for each in (first, last)))
            (tmp_path / "ill").unlink()
            await until(lambda: all(each.current and each.current.state is ChildState.READY for each in seats))

    run(test())


def test_a_reload_to_children_that_cannot_start_empties_one_device(tmp_path: Path) -> None:
    async def test() -> None:
        async with bench(ill_at_times(tmp_path / "ill")) as b:
            seats = b.pool._supervisor.seats._all
            (tmp_path / "ill").write_text("raise at start")
            reloaded = await b.forks.reload()
            await until(lambda: len(b.notices) >= 3)
            assert sum(each.is_vacated and each.has_failed for each in seats) == 1
            assert sum(each.current is not None and each.current.state is ChildState.READY for each in seats) == 2
            reloaded.cancel()

    run(test())


def test_an_import_that_uses_a_device_is_refused() -> None:
    async def test() -> None:
        with pytest.raises(PoolStartError) as raised:
            async with bench(with_devices("0", argument="torch")):
                raise AssertionError("it started")
        assert raised.value.is_misuse
        assert str(raised.value).startswith("CUDA is initialized in torch after the import of the app")

    run(test())


def test_without_devices_it_is_not() -> None:
    async def test() -> None:
        async with bench(settings("torch")) as b:
            await b.run("noop")

    run(test())

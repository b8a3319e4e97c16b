"""What an app has to do at the start and the end of each child: done once, in order, and not at the cost of a task."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from fastq.pool.main.child import ChildState
from fastq.pool.main.preloader_client import PoolStartError
from fastq.pool.shared.event_kind import EventKind
from tests.pool.harness import Bench, bench, run, settings
from tests.waiting import until

RUNNER = "tests.pool.runners:load_with_hooks"


def notes(directory: Path) -> dict[int, list[str]]:
    return {int(file.name): file.read_text().splitlines() for file in directory.glob("[0-9]*")}


def test_each_child_begins_and_ends_with_its_hooks(tmp_path: Path) -> None:
    async def test() -> set[int]:
        async with bench(settings(str(tmp_path), runner=RUNNER, processes=2)) as b:
            assert (await b.run()).kind is EventKind.DONE
            b.submit(b.task("async", "noop", is_async=True))
            assert (await b.outcome("async")).kind is EventKind.RESULT
            return set(b.pool.child_states)

    pids = run(test())
    found = notes(tmp_path)
    assert set(found) == pids
    begun, ended = ["start", "async start"], ["async stop", "stop"]
    for lines in found.values():
        assert (lines[:2], lines[-2:]) == (begun, ended)
    assert sorted(line for lines in found.values() for line in lines[2:-2]) == ["async task", "task"]


def test_a_child_that_is_replaced_stops_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with bench(settings(str(tmp_path), runner=RUNNER, max_tasks_per_child=1)) as b:
            assert (await b.run()).kind is EventKind.DONE
            await until(lambda: ["start", "async start", "task", "async stop", "stop"] in notes(tmp_path).values())

    run(test())


def test_a_child_whose_start_fails_serves_nothing_and_another_is_tried(tmp_path: Path) -> None:
    async def test() -> None:
        async with bench(settings(str(tmp_path), runner=RUNNER)) as b:
            assert (await b.run()).kind is EventKind.DONE
            (tmp_path / "ill").touch()
            (pid,) = b.pool.child_states
            os.kill(pid, signal.SIGKILL)
            await until(lambda: len(b.notices) >= 2)
            for notice in b.notices:
                assert (
                    "because the app's lifespan or child_start 'RunnerWithHooks.__init__.<locals>.<lambda>' failed:\nTr"
                    in notice
                )
                assert "fastq/pool/" not in notice, "of the traceback, only the app's own lines"
                assert "RuntimeError: no start today\n" in notice
                assert "retrying in" in notice
            assert b.failed == []
            (tmp_path / "ill").unlink()
            await until(lambda: list(b.pool.child_states.values()) == [ChildState.READY])
            assert (await b.run()).kind is EventKind.DONE
        assert len(notes(tmp_path)) == 2

    run(test())


def test_a_pool_whose_children_never_start_says_why(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "ill").touch()
        with pytest.raises(PoolStartError, match="RuntimeError: no start today"):
            async with bench(settings(str(tmp_path), runner=RUNNER)):
                raise AssertionError("it started")

    run(test())


def test_a_start_that_fails_is_tried_for_longer_than_one_that_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.pool.main.failures._BACKOFF_S", (0.01,))

    async def test() -> None:
        (tmp_path / "ill").touch()
        config = settings(str(tmp_path), runner=RUNNER, start_patience=600)
        b = Bench(config)
        try:
            starting = asyncio.create_task(b.pool.start(b))
            await until(lambda: len(b.notices) > 6)  # five crashes would have ended it
            assert all(notice.endswith("retrying in 0.0 s, for 600 s (--start-timeout)") for notice in b.notices)
            (tmp_path / "ill").unlink()
            await starting
            assert (await b.run()).kind is EventKind.DONE
            assert b.failed == []
        finally:
            await b.pool.stop()
            b.beacon.close()

    run(test())


def test_a_reload_tries_new_code_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.pool.main.failures._BACKOFF_S", (3600.0,))

    async def test() -> None:
        (tmp_path / "ill").touch()
        b = Bench(settings(str(tmp_path), runner=RUNNER))
        try:
            starting = asyncio.create_task(b.pool.start(b))
            await until(lambda: b.notices)
            (tmp_path / "ill").unlink()
            await b.forks.reload()
            await starting
        finally:
            await b.pool.stop()
            b.beacon.close()

    run(test())


def test_after_a_failed_start_children_come_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.pool.main.failures._BACKOFF_S", (0.01,))
    monkeypatch.setattr("fastq.pool.main.supervisor._YOUNG_S", 3600)  # no child forgets the failures by its age

    async def test() -> None:
        async with bench(settings(str(tmp_path), runner=RUNNER, processes=3)) as b:
            assert (await b.run()).kind is EventKind.DONE
            supervisor = b.pool._supervisor
            most = 0

            def starting() -> int:
                return [child.state for child in supervisor.children].count(ChildState.STARTING)

            def note() -> None:
                nonlocal most
                most = max(most, starting())

            (tmp_path / "ill").touch()
            killed = set(b.pool.child_states)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            # The first replacements start together, since no start has failed yet.
            await until(
                lambda: bool(supervisor._failures) and starting() <= 1 and not killed & set(b.pool.child_states)
            )

            order = supervisor.seats._order

            def noted(device: str) -> object:
                child = order(device)
                note()
                return child

            supervisor.seats._order = noted  # type: ignore[assignment]  # it returns what the other does
            (tmp_path / "ill").unlink()
            await until(lambda: list(b.pool.child_states.values()) == [ChildState.READY] * 3)
            assert most == 1

    run(test())


def test_a_stop_that_fails_ends_its_child_all_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with bench(settings(str(tmp_path), runner=RUNNER)) as b:
            assert (await b.run()).kind is EventKind.DONE
            (tmp_path / "ill").touch()

    run(test())
    (lines,) = notes(tmp_path).values()
    assert lines == ["start", "async start", "task"]
    said = capfd.readouterr().err
    assert "child_stop failed\nTraceback" in said
    assert "RuntimeError: no async stop today" in said
    assert "RuntimeError: no stop today" in said, "one that fails keeps no other from being called"


def test_a_stop_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.pool.main.supervisor._EXIT_WAIT_S", 0.5)

    async def test() -> None:
        async with bench(settings(str(tmp_path), runner=RUNNER)) as b:
            assert (await b.run()).kind is EventKind.DONE
            (tmp_path / "stuck").touch()

    run(test())


@pytest.mark.parametrize("processes", [1, 3])
def test_what_an_import_prints_is_printed_once(processes: int, capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with bench(settings(runner="tests.pool.runners:load_printing", processes=processes)) as b:
            assert (await b.run()).kind is EventKind.DONE

    run(test())
    assert capfd.readouterr().out.splitlines() == ["imported"]

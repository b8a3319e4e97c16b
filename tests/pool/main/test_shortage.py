"""What the pool does where the main process has no descriptors or memory left: nothing that it was given is lost."""

import asyncio
import errno
import os
import resource
import signal

import pytest

from fastq.pool.main.child import ChildState
from fastq.pool.main.child_queue import Event
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.ring import RingCorruptError, now_ns
from tests.pool.desk import Desk, S, desk_fixture
from tests.pool.harness import bench, gone, no_descriptors, run, settings
from tests.waiting import until

__all__ = ["desk_fixture"]

BIG = 600_000


def test_a_result_that_is_lost_for_want_of_a_descriptor_costs_its_child_and_charges_nobody() -> None:
    async def test() -> None:
        async with bench() as b:
            (before,) = b.pool.child_states
            await b.room()
            with no_descriptors():
                b.submit(b.task("big", "size", size=str(BIG)))
                assert (await b.outcome("big")).kind is EventKind.RERUN
                assert f"worker process {before} is replaced: its results cannot be read" in b.notices[0]
            assert len((await b.run("size", size=str(BIG))).data) == BIG
            await gone(before)

    run(test())


def test_a_task_that_cannot_be_handed_over_goes_back_and_the_pool_goes_on() -> None:
    async def test() -> None:
        async with bench() as b:
            await b.room()
            with no_descriptors():
                b.submit(b.task("big", "noop", text="x" * BIG), b.task("behind"))
                events = await b.outcomes(["big", "behind"])
                assert [event.kind for event in events] == [EventKind.RETURNED] * 2
                assert b.pool.free == 0
                assert "Too many open files" in b.notices[0]
            assert (await b.run("noop", text="x" * BIG)).kind is EventKind.DONE

    run(test())


@pytest.mark.parametrize("sort", ["plain", "async"])
def test_a_child_that_can_open_nothing_returns_a_large_task_unrun_and_is_replaced(sort: str) -> None:
    async def test() -> None:
        async with bench() as b:
            (before,) = b.pool.child_states
            b.submit(b.task("first", is_async=sort == "async"))  # an event loop needs descriptors of its own
            await b.outcome("first")
            resource.prlimit(before, resource.RLIMIT_NOFILE, (1, 1))
            b.submit(b.task("big", "noop", text="x" * BIG, is_async=sort == "async"))
            assert (await b.outcome("big")).kind is EventKind.RETURNED
            await until(lambda: before not in b.pool.child_states)
            # Before it, where that takes its time, of the import.
            assert b.infos[-1] == f"worker process {before} has no descriptor left for a large payload; it is replaced"
            assert (await b.run("noop", text="x" * BIG)).kind is EventKind.DONE

    run(test())


def test_a_large_task_fails_in_a_child_that_could_open_nothing_from_its_start() -> None:
    """The next child could not either, and the task would go from one to the other for ever."""

    async def test() -> None:
        async with bench() as b:
            (child,) = b.pool.child_states
            resource.prlimit(child, resource.RLIMIT_NOFILE, (1, 1))
            event = await b.run("noop", text="x" * BIG)
            assert event.kind is EventKind.BROKEN
            assert event.data.startswith(b"its worker process has no descriptor for a large payload")
            assert (await b.run("pid")).data == str(child).encode(), "small ones run there"
            assert (await b.run("noop", text="x" * BIG)).kind is EventKind.RETURNED

    run(test())


def test_children_that_are_to_leave_and_cannot_be_followed_leave_and_no_outcome_is_lost() -> None:
    async def test() -> None:
        async with bench(settings(processes=2, max_tasks_per_child=2, prefetch_time=600)) as b:
            old = set(b.pool.child_states)
            b.submit(*(b.task(number) for number in range(2)))
            await b.outcomes(range(2))
            with no_descriptors():
                b.submit(*(b.task(number) for number in range(2, 4)))
                assert {event.kind for event in await b.outcomes(range(2, 4))} == {EventKind.DONE}
                await until(lambda: not old & set(b.pool.child_states))
            assert {(await b.run("noop")).kind for _ in range(6)} == {EventKind.DONE}

    run(test())


@pytest.mark.parametrize("where", ["on_events", "timekeeper", "supervisor"])
def test_a_defect_in_one_part_of_a_turn_does_not_stop_the_pump(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with bench() as b:
            failures: list[object] = []

            def fail(*_: object) -> None:
                failures.append(1)
                raise LookupError("a defect")

            with monkeypatch.context() as patch:
                if where == "on_events":
                    heard = b.on_events

                    def fail_once(events: list[Event]) -> None:
                        heard(events)
                        if not failures:
                            fail()

                    patch.setattr(b, "on_events", fail_once)
                else:
                    patch.setattr(getattr(b.pool, f"_{where}"), "check", fail)
                told: list[dict[str, object]] = []
                asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
                await b.run("noop")
                await until(lambda: failures)
                assert (await b.run("noop")).kind is EventKind.DONE
                assert isinstance(told[0]["exception"], LookupError)

    run(test())


def test_a_child_that_is_frozen_before_it_begins_anything_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.pool.main.supervisor._DEAF_NS", 10**9)

    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            (before,) = b.pool.child_states
            os.kill(before, signal.SIGSTOP)
            b.submit(b.task("task", "pid"))
            event = await b.outcome("task")
            assert event.kind is EventKind.RESULT
            assert int(event.data) != before
            await until(lambda: list(b.pool.child_states.values()) == [ChildState.READY])
            await gone(before)

    run(test())


# The dispatcher by itself ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many"), MemoryError("no more"), LookupError("a defect")])
def test_a_task_that_cannot_be_handed_over_waits_and_is_not_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(data: bytes) -> int:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("fastq.pool.main.child_queue.pack_segment", fail)
        assert desk.submit("big", size=600_000) == []
        assert desk.submit("behind") == []
        assert desk.dispatcher.pending == 2
        assert desk.loads == [0, 0]
        assert desk.dispatcher.take_shortage() is error
        assert desk.dispatcher.take_shortage() is None
        assert desk.dispatcher.free(only_async=False) == 0, "more would only wait, too"
    assert desk.dispatcher.dispatch() == []
    assert desk.loads == [1, 1]
    assert desk.children[0].tasks.take() is not None


def test_a_result_that_cannot_be_read_keeps_nobody_from_the_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.submit("one", "two")
    seqs = [child.begin() for child in desk.children]
    desk.children[0].results.put(999, b"", kind=EventKind.DONE)
    desk.children[1].end(seqs[1])
    events: list[Event] = []
    ((queue, error),) = desk.dispatcher.collect(events)
    assert queue is desk.children[0].queue
    assert isinstance(error, RingCorruptError)
    assert [event.submission.key for event in events] == ["two"]
    assert desk.dispatcher.collect(events) == [], "it is told once"


def test_a_child_that_takes_nothing_is_known_after_a_while(desk: Desk) -> None:
    child = desk.children[0]
    now = now_ns()

    def is_deaf(at_s: float) -> bool:
        return child.queue.is_deaf(now + int(at_s * S), 30 * S)

    assert not is_deaf(0)
    desk.submit(1)
    assert [is_deaf(at_s) for at_s in range(1, 30)] == [False] * 29
    assert is_deaf(31)
    assert not is_deaf(100), "this process stood still itself"
    assert [is_deaf(100 + at_s) for at_s in range(1, 35)] == [False] * 30 + [True] * 4
    child.begin()
    assert not any(is_deaf(135 + at_s) for at_s in range(100)), "what runs is the timekeeper's business"

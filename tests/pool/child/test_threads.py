"""Plain tasks in threads of one child: side by side, each with an end of its own, and none in another's way."""

import contextlib
import functools
import io
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fastq.pool.main import timekeeper
from fastq.pool.main.child import Child, ChildState
from fastq.pool.main.child_queue import Submission
from fastq.pool.main.config import PoolConfig
from fastq.pool.main.protocol import CancelOutcome
from fastq.pool.main.timekeeper import Timekeeper
from fastq.pool.shared import layout
from fastq.pool.shared.event_kind import NOT_BEGUN, EventKind
from fastq.pool.shared.processes import thread_times
from tests.pool.harness import Bench, bench, gone, run, settings
from tests.pool.runners import refuse_threads
from tests.pool.site import Site
from tests.waiting import PATIENCE_S, after, until, wait_until


def threaded(threads: int = 4, *, argument: str = "", **options: float | str) -> PoolConfig:
    return settings(argument, **{"threads": threads, "prefetch_time": 600, **options})


def give(b: Bench, do: str, *keys: object, timeout: float = 0.0, **order: str) -> list[Submission]:
    tasks = [b.task(key, do, timeout=timeout, deadline=0.0, is_async=False, is_threaded=True, **order) for key in keys]
    b.submit(*tasks)
    return tasks


async def begun(b: Bench, count: int = 1) -> set[int]:
    return {pid for _ in range(count) for pid in await b.beacon.pids()}


async def held(pid: int) -> None:
    """Wait until one of a child's threads has computed for a while: longer than it may before it enters a call in C."""
    before = thread_times(pid)
    await until(lambda: any(ns - before.get(one, (0, 0))[0] > 50_000_000 for one, (ns, _) in thread_times(pid).items()))


# Side by side -------------------------------------------------------------------------------------------------------


def test_as_many_run_at_once_as_there_are_threads_beside_coroutines_but_not_beside_plain_tasks() -> None:
    async def test() -> None:
        async with bench(threaded(3, async_concurrency=2)) as b:
            go = str(b.beacon.file("go"))
            give(b, "wait_for", *range(5), file=go)
            b.submit(*(b.task(("async", n), "wait_for", is_async=True, file=go) for n in range(2)))
            b.submit(b.task("alone", "noop"))
            assert await begun(b, 5) == set(b.pool.child_states)
            assert {one.submission.key for one in b.pool.running()} == {0, 1, 2, ("async", 0), ("async", 1)}
            b.beacon.file("go").touch()
            kinds = {event.kind for event in await b.outcomes([*range(5), "alone"])}
            assert kinds == {EventKind.DONE}
            await b.outcomes(("async", n) for n in range(2))
            # In one child, threads and coroutines are one sort.
            b.beacon.file("go").unlink()
            while b.beacon.told():
                pass
            b.submit(*(b.task(("more", n), "wait_for", is_async=True, file=go) for n in range(2)))
            give(b, "wait_for", *"abc", file=go)
            await begun(b, 5)
            assert len(b.pool.running()) == 5
            b.beacon.file("go").touch()
            await b.outcomes("abc")

    run(test())


@pytest.mark.parametrize("is_threaded", [True, False])
def test_what_waits_for_a_row_leaves_the_way_free_for_the_other_sort_once_it_is_withdrawn(is_threaded: bool) -> None:
    async def test() -> None:
        async with bench(threaded(2, async_concurrency=2)) as b:
            b.beacon.file("ready").touch()

            def submit(key: str, file: str, in_thread: bool) -> Submission:
                path = str(b.beacon.file(file))
                task = b.task(key, "wait_for", is_async=True, is_threaded=in_thread, file=path)
                b.submit(task)
                return task

            submit("known", "ready", is_threaded)
            await b.outcome("known")
            for key in "ab":
                submit(key, "go", is_threaded)
            await begun(b, 3)
            stuck = submit("stuck", "go", is_threaded)
            assert stuck.queue is not None
            submit("behind", "ready", not is_threaded)
            assert b.pool.cancel(stuck) is CancelOutcome.WITHDRAWN
            await b.outcome("behind")
            stuck = submit("stuck", "go", is_threaded)
            assert b.pool.cancel(stuck) is CancelOutcome.WITHDRAWN
            submit("after", "ready", not is_threaded)
            await b.outcome("after")
            b.beacon.file("go").touch()
            await b.outcomes("ab")

    run(test())


@pytest.mark.parametrize("is_threaded", [True, False])
def test_tasks_whose_rows_are_busy_leave_the_other_sort_its_own(is_threaded: bool) -> None:
    rows: dict[str, Any] = (
        {"threads": 2, "async_concurrency": 50} if is_threaded else {"threads": 50, "async_concurrency": 2}
    )

    async def test() -> None:
        async with bench(threaded(**rows, prefetch_time=0.05)) as b:
            go = str(b.beacon.file("go"))

            def submit(key: str, in_thread: bool) -> None:
                b.submit(b.task(key, "wait_for", is_async=True, is_threaded=in_thread, file=go))

            submit("a", is_threaded)
            submit("b", is_threaded)
            await begun(b, 2)
            assert b.pool.free == 0, "none of the other sort has come yet"
            submit("more", is_threaded)
            submit("beside", not is_threaded)
            await begun(b)
            assert {one.submission.key for one in b.pool.running()} == {"a", "b", "beside"}
            assert (await b.outcome("more")).kind is EventKind.RETURNED
            assert b.pool.free == 16, "few: they may be of the sort that has no row"
            b.beacon.file("go").touch()
            await b.outcomes(["a", "b", "beside"])

    run(test())


def test_threads_are_kept_and_what_is_theirs_is_freed_in_them_before_the_child_ends() -> None:
    async def test() -> None:
        async with bench(threaded(4, max_tasks_per_child=20)) as b:
            seen = set()
            for number in range(20):
                give(b, "thread", number)
                seen.add((await b.outcome(number)).data.decode())
            assert len(seen) <= 4
            assert {await b.beacon.next() for _ in seen} == {f"freed {where}" for where in seen}

    run(test())


def test_each_task_has_a_context_of_its_own_and_writes_its_own_results() -> None:
    async def test() -> None:
        async with bench(threaded(8, runner="tests.pool.unruly:load", ring_bytes=1 << 16)) as b:
            give(b, "var", *range(50))
            assert {event.data for event in await b.outcomes(range(50))} == {b"unset"}
            for size in (100, 20_000):  # in the ring, and in segments
                marks = {("write", size, n): f"<{n:3}>" for n in range(30)}
                for key, mark in marks.items():
                    give(b, "write_marks", key, mark=mark, size=str(size))
                for key, mark in marks.items():
                    assert (await b.outcome(key)).kind is EventKind.DONE
                    assert [event.data for event in b.events[key]] == [mark.encode() * size, mark.encode(), b""]

    run(test())


# Ends ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_the_end_is_raised_in_its_thread_alone(how: str) -> None:
    async def test() -> None:
        async with bench(threaded(timeout_grace=600)) as b:
            never = str(b.beacon.file("never"))
            give(b, "wait_for", 1, 2, file=never)
            (told,) = give(b, "wait_for", "told", file=never, timeout=0.1 if how == "timeout" else 0.0)
            pids = await begun(b, 3)
            if how == "cancel":
                assert b.pool.cancel(told) is CancelOutcome.TOLD
            event = await b.outcome("told")
            assert event.kind is (EventKind.TIMEOUT if how == "timeout" else EventKind.CANCELED)
            assert {one.submission.key for one in b.pool.running()} == {1, 2}
            assert set(b.pool.child_states) == pids

    run(test())


def test_an_error_that_cannot_be_described_ends_its_task_and_not_its_thread() -> None:
    async def test() -> None:
        async with bench(threaded()) as b:
            give(b, "raise_indescribable", "bad")
            assert (await b.outcome("bad")).kind is EventKind.BROKEN
            give(b, "noop", "next")
            assert (await b.outcome("next")).kind is EventKind.DONE

    run(test())


def test_a_task_whose_time_is_up_is_not_begun() -> None:
    async def test() -> None:
        async with bench(threaded()) as b:
            late = b.task("late", "kill_self", is_threaded=True, deadline=time.time() - 1)
            b.submit(late)
            event = await b.outcome("late")
            assert (event.kind, event.data) == (EventKind.TIMEOUT, NOT_BEGUN)

    run(test())


def test_cancellations_around_the_end_hit_no_later_task_of_the_thread() -> None:
    async def test() -> None:
        async with bench(threaded(2, timeout_grace=600)) as b:
            (pid,) = b.pool.child_states
            drawn = random.Random(4)
            canceled = set()
            for number in range(150):
                (task,) = give(b, "nap", number)
                if number % 2:
                    await until(after(drawn.random() * 0.004), interval_s=0.0005)
                    b.pool.cancel(task)
                    canceled.add(number)
            await b.until(lambda: not b.pool.pending)
            assert set(b.pool.child_states) == {pid}
            kinds = {key: events[-1].kind for key, events in b.events.items()}
            assert {kind for key, kind in kinds.items() if key not in canceled} == {EventKind.DONE}
            assert set(kinds.values()) <= {EventKind.DONE, EventKind.CANCELED}

    run(test())


@pytest.mark.parametrize("do", ["sleep_surely", "ignore"])
def test_one_that_does_not_end_costs_its_child_and_the_others_run_again_free_of_charge(do: str) -> None:
    async def test() -> None:
        async with bench(threaded()) as b:
            never = str(b.beacon.file("never"))
            give(b, "wait_for", 1, 2, file=never)
            (pid,) = await begun(b, 2)
            (guilty,) = give(b, do, "guilty")
            await begun(b)
            assert b.pool.cancel(guilty) is CancelOutcome.TOLD
            assert (await b.outcome("guilty")).kind is EventKind.CANCELED
            assert {event.kind for event in await b.outcomes([1, 2])} == {EventKind.RERUN}
            await gone(pid)

    run(test())


@pytest.mark.parametrize("is_async", [False, True])
def test_the_thread_that_holds_the_interpreter_is_charged_for_those_that_cannot_hear(is_async: bool) -> None:
    """Also where what cannot hear is a coroutine beside it."""

    async def test() -> None:
        async with bench(threaded()) as b:
            never = str(b.beacon.file("never"))
            other = b.task("other", "wait_for", is_async=is_async, is_threaded=not is_async, file=never)
            b.submit(other)
            await begun(b)
            give(b, "hold_gil", "guilty")
            await held(*await begun(b))
            assert b.pool.cancel(other) is CancelOutcome.TOLD
            event = await b.outcome("guilty")
            assert event.kind is EventKind.CRASHED
            assert "the task held the interpreter (GIL) for 0.2 s" in event.data.decode()
            assert (await b.outcome("other")).kind is EventKind.RERUN

    run(test())


def test_a_coroutine_that_waits_for_the_interpreter_in_a_step_is_not_charged() -> None:
    async def test() -> None:
        async with bench(threaded()) as b:
            go = b.beacon.file("go")
            give(b, "wait_and_hold_gil", "guilty", file=str(go))
            (other,) = give(b, "wait_for", "other", file=str(b.beacon.file("never")))
            await begun(b, 2)
            b.submit(b.task("in a step", "let_go", is_async=True))
            pids = await begun(b)
            go.touch()
            await held(*pids)
            assert b.pool.cancel(other) is CancelOutcome.TOLD
            assert (await b.outcome("guilty")).kind is EventKind.CRASHED
            assert {event.kind for event in await b.outcomes(["other", "in a step"])} == {EventKind.RERUN}

    run(test())


@pytest.mark.parametrize("do", ["block", "block_in_c", "let_go"])
def test_a_coroutine_that_blocks_the_loop_is_charged_though_a_thread_computes(do: str) -> None:
    async def test() -> None:
        async with bench(threaded()) as b:
            give(b, "spin", "computes")
            (other,) = give(b, "wait_for", "other", file=str(b.beacon.file("never")))
            await begun(b, 2)
            b.submit(b.task("blocks", do, is_async=True))
            await begun(b)
            assert b.pool.cancel(other) is CancelOutcome.TOLD
            assert (await b.outcome("blocks")).kind is EventKind.CRASHED
            assert {event.kind for event in await b.outcomes(["other", "computes"])} == {EventKind.RERUN}

    run(test())


def test_one_look_at_the_threads_of_a_child_serves_all_of_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    check = Timekeeper.check

    def count_of_tick(self: Timekeeper, children: list[Child], now_ns: int) -> None:
        looks.append(0)
        check(self, children, now_ns)

    def count(pid: int) -> dict[int, tuple[int, int]]:
        looks[-1] += 1
        return thread_times(pid)

    monkeypatch.setattr(Timekeeper, "check", count_of_tick)
    monkeypatch.setattr(timekeeper, "thread_times", count)

    async def test() -> None:
        async with bench(threaded(5)) as b:
            others = give(b, "wait_for", 1, 2, 3, file=str(b.beacon.file("never")))
            await begun(b, 3)
            give(b, "hold_gil_in_c", "holds")  # without any CPU time, so that the search takes as long as it may
            await begun(b)
            for other in others:
                b.pool.cancel(other)
            await b.outcomes([1, 2, 3])

    run(test())
    assert max(looks) <= 2, "the first look, and one of those that follow"
    assert sum(looks) < 10


def test_a_task_that_hears_of_its_end_while_the_cause_is_sought_has_its_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timekeeper, "_LOOK_NS", 600 * 10**9)

    async def test() -> None:
        async with bench(threaded()) as b:
            (other,) = give(b, "ignore", "other")
            (pid,) = await begun(b)
            go = b.beacon.file("go")
            b.submit(b.task("blocks", "cancel_next", is_async=True, file=str(go)))
            await begun(b)
            b.pool.cancel(other)
            keeper = b.pool._timekeeper
            await until(lambda: keeper._looks)
            keeper.grace_ns = 600 * 10**9
            go.touch()
            assert await b.beacon.next() == "ignored TaskCanceled"
            await until(lambda: not keeper._looks)
            assert b.pool.child_states == {pid: ChildState.READY}

    run(test())


def test_a_thread_that_begins_or_ends_during_a_look_is_none_that_is_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, task, gone_since, new = 1, 2, 3, 4
    before = {loop: (0, 0), task: (5, 0), gone_since: (0, 0)}
    after = {loop: (10**6, 20), task: (90 * 10**6, 0), new: (9 * 10**9, 0)}
    assert timekeeper._holder(loop, before, after) == task
    threads, listdir = thread_times(os.getpid()), os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: ["999999999", *listdir(path)])
    assert thread_times(os.getpid()).keys() >= threads.keys()


def test_one_that_holds_the_interpreter_beyond_its_own_time_has_timed_out() -> None:
    async def test() -> None:
        async with bench(threaded()) as b:
            give(b, "wait_for", "other", file=str(b.beacon.file("never")))
            await begun(b)
            give(b, "hold_gil", "guilty", timeout=0.3)
            assert (await b.outcome("guilty")).kind is EventKind.TIMEOUT
            assert (await b.outcome("other")).kind is EventKind.RERUN

    run(test())


def test_where_none_is_known_to_hold_the_interpreter_all_run_again() -> None:
    async def test() -> set[EventKind]:
        async with bench(threaded()) as b:
            (other,) = give(b, "wait_for", "other", file=str(b.beacon.file("never")))
            await begun(b)
            give(b, "hold_gil_in_c", "holds")  # without any CPU time
            await begun(b)
            assert b.pool.cancel(other) is CancelOutcome.TOLD
            if (await b.outcome("other")).kind is EventKind.CANCELED:  # it heard before the interpreter was held
                return {EventKind.CANCELED}
            return {event.kind for event in await b.outcomes(["other", "holds"])}

    kinds = [run(test())]
    while kinds[-1] == {EventKind.CANCELED} and len(kinds) < 10:
        kinds.append(run(test()))
    assert kinds[-1] == {EventKind.RERUN}


def test_a_coroutine_that_blocks_the_loop_is_charged_for_threads_that_cannot_be_told() -> None:
    async def test() -> None:
        async with bench(threaded()) as b:
            (other,) = give(b, "wait_for", "other", file=str(b.beacon.file("never")))
            await begun(b)
            b.submit(b.task("blocks", "block", is_async=True))
            await begun(b)
            assert b.pool.cancel(other) is CancelOutcome.TOLD
            assert (await b.outcome("blocks")).kind is EventKind.CRASHED
            assert (await b.outcome("other")).kind is EventKind.RERUN

    run(test())


def test_a_crash_charges_all_that_ran_and_nothing_that_waited() -> None:
    async def test() -> None:
        async with bench(threaded(2)) as b:
            give(b, "wait_for", "other", file=str(b.beacon.file("never")))
            await begun(b)
            give(b, "kill_self", "crash")
            give(b, "noop", "waits")
            assert {event.kind for event in await b.outcomes(["crash", "other"])} == {EventKind.CRASHED}
            assert (await b.outcome("waits")).kind is EventKind.DONE

    run(test())


# The system gives no thread -----------------------------------------------------------------------------------------


def test_a_task_for_which_the_system_gives_no_thread_waits_for_one_unbegun(capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with bench(threaded(runner="tests.pool.runners:load_short_of_threads")) as b:
            (pid,) = b.pool.child_states
            go = str(b.beacon.file("go"))
            b.submit(b.task("beside", "wait_for", is_async=True, file=go))
            await begun(b)
            refuse_threads(pid)
            give(b, "wait_for", "begun", file=go)
            _, second = give(b, "noop", "waits", "is withdrawn")
            await begun(b)
            assert b.pool.cancel(second) is CancelOutcome.WITHDRAWN
            assert {one.submission.key for one in b.pool.running()} == {"beside", "begun"}
            b.beacon.file("go").touch()
            assert {event.kind for event in await b.outcomes(["begun", "waits"])} == {EventKind.DONE}
            assert (await b.outcome("beside")).kind is EventKind.RESULT
            assert set(b.pool.child_states) == {pid}

    run(test())
    assert capfd.readouterr().err.count("has 1 of 4 threads, for which tasks wait: can't start new thread") == 1


def test_children_that_get_no_thread_are_tried_less_and_less_often_and_get_no_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.pool.main.failures._BACKOFF_S", (0.05, 0.06))

    async def test() -> None:
        ill = tmp_path / "ill"
        config = threaded(runner="tests.pool.runners:load_short_of_threads", argument=str(ill))
        async with bench(config) as b:
            give(b, "noop", "works")
            await b.outcome("works")
            ill.touch()
            give(b, "kill_self", "dies")
            assert (await b.outcome("dies")).kind is EventKind.CRASHED
            b.submit(b.task("beside", is_async=True))
            give(b, "noop", "after")
            await until(lambda: len(b.notices) >= 7)  # of children that had not worked before, five would be too many
            assert all("can't start new thread" in notice and "retrying in" in notice for notice in b.notices)
            assert len(b.order) == 2, "the others wait"
            ill.unlink()
            assert {event.kind for event in await b.outcomes(["beside", "after"])} == {EventKind.RESULT, EventKind.DONE}

    run(test())


def test_stop_aborts_threads() -> None:
    async def test() -> None:
        async with bench(threaded(timeout_grace=600)) as b:
            for do in ("spin", "sleep", "ignore"):
                give(b, do, do)
                await begun(b)
            await b.pool.stop()
            assert [event.kind for event in b.order] == [EventKind.ABORTED] * 3

    run(test())


# The race at the end, held still ------------------------------------------------------------------------------------


def test_what_is_raised_as_a_handler_returns_is_not_raised_after_it() -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(write_fd, b"x" * 4096):
            pass
    os.set_blocking(write_fd, True)
    # It waits for room in the pipe, and returns, in C: nothing can be raised before it has returned.
    with open(write_fd, "w") as file, open(read_fd, "rb", buffering=0) as reader:
        escape_of(Site(functools.partial(print, file=file, flush=True)), reader)


def escape_of(site: Site, reader: io.FileIO) -> None:
    task = site.begin(7)
    escaped: list[BaseException] = []

    def serve() -> None:
        try:
            site.work.run_in_thread(task)
            for _ in range(1000):
                time.sleep(0)
        except BaseException as error:  # noqa: BLE001 - that is what must not be
            escaped.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    wait_until(lambda: site.work.raise_in_thread(task))
    assert site.slots.interrupt(7, layout.ROW_CANCELED)
    reader.read(1 << 16)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert escaped == []
    _, kind, _ = site.results.take() or (0, 0, b"")
    assert kind == EventKind.CANCELED
    site.wakeup.close()


PROFILED = """
import sys
from tests.pool.child import test_threads

test_threads.test_what_is_raised_as_a_handler_returns_is_not_raised_after_it()
sys.setprofile(lambda frame, event, argument: None)
(lambda: None)()
"""


def test_a_profiler_goes_on_after_an_error_was_thrown_into_a_thread() -> None:
    # In a process of its own: if it fails, the interpreter stands still for ever.
    subprocess.run([sys.executable, "-c", PROFILED], check=True, timeout=PATIENCE_S)

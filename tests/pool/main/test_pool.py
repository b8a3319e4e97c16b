import asyncio
import contextlib
import gc
import os
import signal
import socket
import struct
from collections import Counter

import pytest

from fastq.pool.child.work import MAX_RESULT
from fastq.pool.main.child_queue import Submission
from fastq.pool.main.config import PoolConfig
from fastq.pool.main.protocol import CancelOutcome
from fastq.pool.shared.event_kind import EventKind
from tests.pool.harness import Bench, bench, gone, is_alive, run, settings
from tests.waiting import PATIENCE_S, until


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_every_task_gets_its_own_answer_once(processes: int, start_method: str) -> None:
    async def test() -> None:
        async with bench(settings(processes=processes, start_method=start_method, prefetch_time=600)) as b:
            b.submit(*(b.task(number, "echo", text=f"text {number}") for number in range(2000)))
            for number, event in enumerate(await b.outcomes(range(2000))):
                assert (event.kind, event.data) == (EventKind.RESULT, f"text {number}".encode())
            assert len(b.order) == 2000
            assert b.pool.pending == 0

    run(test())


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 300_000, 5_000_000])
def test_payloads_and_results_of_any_size_pass(size: int) -> None:
    async def test() -> None:
        async with bench(settings(ring_bytes=1 << 16, prefetch_time=600)) as b:
            for number in range(4):
                b.submit(
                    b.task(("in", number), "echo", text="t" * size), b.task(("out", number), "size", size=str(size))
                )
            for number in range(4):
                assert (await b.outcome(("in", number))).data == b"t" * size
                assert (await b.outcome(("out", number))).data == b"r" * size

    run(test())


def test_the_results_of_a_child_that_is_in_a_long_task_are_read() -> None:
    """It has more work before it, so it did not ring."""

    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            await b.run("noop")
            go = b.beacon.file("go")
            long = Submission("long", b.task("", "wait_for", file=str(go)).data, "noop")
            b.submit(b.task("short"), long, *(b.task(number) for number in range(8)))
            assert (await b.outcome("short")).kind is EventKind.DONE
            assert b.pool.pending == 9
            go.touch()
            await b.outcomes(["long", *range(8)])

    run(test())


def test_a_result_above_the_limit_is_refused_and_the_next_task_runs() -> None:
    async def test() -> None:
        async with bench() as b:
            event = await b.run("size", size=str(MAX_RESULT + 1))
            assert event.kind is EventKind.BROKEN
            assert "above the limit" in event.data.decode()
            assert (await b.run("size", size=str(MAX_RESULT))).kind is EventKind.RESULT

    run(test())


@pytest.mark.parametrize(("size", "times"), [(10, 3), (2000, 300), (300_000, 5)])
def test_written_results_come_in_order_before_the_end(size: int, times: int) -> None:
    """300 of 2 kB are several times what the result ring holds: the child waits for room."""

    async def test() -> None:
        async with bench(settings(ring_bytes=1 << 16)) as b:
            key = "writes"
            b.submit(b.task(key, "write", size=str(size), times=str(times)))
            assert (await b.outcome(key)).kind is EventKind.DONE
            *written, last = b.events[key]
            assert last.kind is EventKind.DONE
            assert [(event.kind, event.data) for event in written] == [
                (EventKind.WRITTEN, bytes([number % 256]) * size) for number in range(times)
            ]

    run(test())


def test_a_task_waits_until_its_checkpoint_is_saved() -> None:
    async def test() -> None:
        async with bench(settings(processes=1)) as b:
            for first in (1, 3):  # the numbers of a child only grow, so no task takes another's answer for its own
                task = b.task(first, "save")
                b.submit(task)
                await b.until(lambda first=first: len(b.events.get(first, [])) == 2)  # type: ignore[misc]
                found = [(event.kind, event.data, event.ran_ns) for event in b.events[first]]
                assert found == [(EventKind.CHECKPOINT, f"state {n}".encode(), first + n) for n in range(2)]
                b.pool.note_saved(task, first)
                b.pool.note_saved(task, first + 1)
                b.pool.note_saved(task, first)  # told late, it takes nothing back
                assert (await b.outcome(first)).data == f"[{first}, {first + 1}]".encode()

    run(test())


def test_tasks_see_that_they_should_come_to_an_end_also_in_children_that_start_later() -> None:
    async def test() -> None:
        # A task that a slow child has not begun in time would be returned, since this child takes no other.
        async with bench(settings(processes=1, max_tasks_per_child=1, prefetch_time=600)) as b:
            b.submit(b.task("before", "wait_for_stop"))
            await b.beacon.pids()
            b.pool.announce_stop()
            assert (await b.outcome("before")).kind is EventKind.DONE
            assert (await b.run("wait_for_stop")).kind is EventKind.DONE

    run(test())


@pytest.mark.parametrize(
    ("do", "text"),
    [
        ("wrong_answer", "a runner answered"),
        ("raise_error", "ZeroDivisionError"),
        ("raise_bad_text", "ZeroDivisionError: ?"),
        ("raise_indescribable", "_Indescribable"),
    ],
)
def test_a_broken_runner_breaks_its_task_only(do: str, text: str) -> None:
    async def test() -> None:
        async with bench() as b:
            event = await b.run(do)
            assert event.kind is EventKind.BROKEN
            assert text in event.data.decode()
            assert (await b.run("noop")).kind is EventKind.DONE

    run(test())


def test_a_waiting_task_is_withdrawn_and_never_runs() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            await b.run("noop")
            go = b.beacon.file("go")
            waiting = b.task("waiting", "kill_self")
            b.submit(b.task("running", "wait_for", file=str(go)), waiting, b.task("behind", "noop"))
            await b.beacon.pids()
            assert b.pool.cancel(waiting) is CancelOutcome.WITHDRAWN
            assert b.pool.cancel(waiting) is CancelOutcome.TOO_LATE
            go.touch()
            assert {event.kind for event in await b.outcomes(["running", "behind"])} == {EventKind.DONE}
            assert "waiting" not in b.events

    run(test())


@pytest.mark.parametrize("do", ["sleep", "ignore", "hold_gil"])
def test_a_running_task_is_cancelled(do: str) -> None:
    async def test() -> None:
        async with bench() as b:
            task = b.task("hang", do)
            b.submit(task)
            await b.beacon.pids()
            assert b.pool.cancel(task) is CancelOutcome.TOLD
            assert b.pool.cancel(task) is CancelOutcome.TOO_LATE
            assert (await b.outcome("hang")).kind is EventKind.CANCELED
            assert b.pool.cancel(task) is CancelOutcome.TOO_LATE

    run(test())


def test_running_tasks_are_known_with_their_child_and_start() -> None:
    async def test() -> None:
        async with bench(settings(processes=2)) as b:
            b.submit(b.task("one", "sleep", timeout=3600), b.task("two", "sleep"))
            pids = {*await b.beacon.pids(), *await b.beacon.pids()}
            running = b.pool.running()
            assert {one.pid for one in running} == pids == set(b.pool.child_states)
            limits = {one.submission.key: one.deadline_ns and one.deadline_ns - one.started_ns for one in running}
            assert limits == {"one": 3600 * 10**9, "two": 0}

    run(test())


def test_a_child_that_writes_nonsense_is_killed_and_its_task_crashed() -> None:
    async def test() -> None:
        async with bench() as b:
            event = await b.run("scribble")
            assert event.kind is EventKind.CRASHED
            assert "does not go with head" in event.data.decode()
            assert (await b.run("noop")).kind is EventKind.DONE

    run(test())


# Shutdown ---------------------------------------------------------------------------------------------------------


def test_what_has_not_begun_is_handed_back_in_order() -> None:
    async def test() -> None:
        async with bench(settings(processes=2, prefetch_time=600)) as b:
            await asyncio.gather(b.run("noop"), b.run("noop"))
            go = b.beacon.file("go")
            tasks = [b.task(number, "wait_for", file=str(go)) for number in range(100)]
            b.submit(*tasks)
            await b.beacon.pids()
            await b.beacon.pids()
            running = {one.submission.key for one in b.pool.running()}
            rest = b.pool.withdraw_all()
            assert [task.key for task in rest] == [number for number in range(100) if number not in running]
            late = b.task("late")
            b.submit(late)
            assert (await b.outcome("late")).kind is EventKind.RETURNED
            go.touch()
            assert await b.pool.drain(PATIENCE_S)
            assert b.pool.pending == 0
            assert {b.events[key][0].kind for key in running} == {EventKind.DONE}

    run(test())


@pytest.mark.parametrize("do", ["sleep", "ignore", "hold_gil", "return_late", "with_grandchildren"])
def test_stop_aborts_what_does_not_end(do: str) -> None:
    async def test() -> None:
        async with bench(settings(timeout_grace=60)) as b:
            b.submit(b.task("hang", do))
            pids = await b.beacon.pids()
            assert not await b.pool.drain(0.01)
            await b.pool.stop()
            (event,) = b.events["hang"]
            assert event.kind is EventKind.ABORTED
            await gone(*pids)

    run(test())


def test_stop_in_the_middle_of_a_start_leaves_nobody() -> None:
    async def test() -> None:
        made = Bench(settings(processes=2))
        start = asyncio.create_task(made.pool.start(made))
        while not made.pool.child_states:
            await asyncio.sleep(0)
        pids = [made.pool.preloader_pid, *made.pool.child_states]
        start.cancel()
        await made.pool.stop()
        made.beacon.close()
        await gone(*pids)

    run(test())


def test_stop_leaves_no_task_of_the_loop_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.pool.main.supervisor._YOUNG_S", 60.0)
    monkeypatch.setattr("fastq.pool.main.failures._BACKOFF_S", (60.0,))

    async def test() -> None:
        async with bench() as b:
            os.kill(b.pool.preloader_pid, signal.SIGKILL)
            await until(lambda: b.notices)  # that another one is tried for later
            assert len(asyncio.all_tasks()) == 2
            await b.pool.stop()
            assert len(asyncio.all_tasks()) == 1

    run(test())


def test_stop_gives_back_what_never_began() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            await b.run("noop")
            b.submit(b.task("hang", "sleep"), *(b.task(number) for number in range(5)))
            await b.beacon.pids()
            await b.pool.stop()
            assert [b.events[number][0].kind for number in range(5)] == [EventKind.RETURNED] * 5
            assert b.events["hang"][0].kind is EventKind.ABORTED

    run(test())


def descriptors() -> dict[int, str]:
    """Return what each descriptor of this process is, for sockets with who is at the other end."""
    gc.collect()
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            what = os.readlink(f"/proc/self/fd/{fd}")
            found[fd] = f"{what} {peer_of(fd)}" if what.startswith("socket:") else what
    return found


def peer_of(fd: int) -> str:
    with socket.socket(fileno=os.dup(fd)) as one:
        try:
            peer = one.getpeername()
        except OSError as error:
            return f"{one.family.name}, bound to {one.getsockname()!r}, {error.strerror}"
        pid = struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return f"{one.family.name}, peer {peer!r}, connected by process {pid}"


def test_a_child_takes_two_descriptors() -> None:
    async def count(processes: int) -> Counter[str]:
        async with bench(settings(processes=processes)):
            return Counter(what.partition(":")[0] for what in descriptors().values())

    assert run(count(7)) - run(count(2)) == {"socket": 5, "anon_inode": 5}, "a control socket and a pidfd each"


def test_descriptors_are_given_back() -> None:
    async def test() -> None:
        before = descriptors()
        for _ in range(3):
            async with bench(settings(processes=2)) as b:
                await b.run("noop")
                await b.run("kill_self")
                await b.run("size", size="2000000")
                os.kill(b.pool.preloader_pid, signal.SIGKILL)
                await b.run("noop")
        del b
        # What woke this test may be the end of a task that was cancelled in the pool, whose traceback holds all of it.
        await asyncio.sleep(0)
        assert descriptors().items() <= before.items()

    run(test())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"runner": "no_colon"}, "'module:attr', not 'no_colon'"),
        ({"processes": 0}, "processes must be at least 1, not 0"),
        ({"start_method": "fork"}, "not 'fork'"),
        ({"timeout_grace": -1}, "timeout_grace must be at least 0, not -1"),
        ({"prefetch_time": float("nan")}, "prefetch_time"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(options: dict[str, str | float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        PoolConfig(**{"runner": "a:b", **options})  # type: ignore[arg-type]  # what is tested


def test_all_children_are_alive_after_the_start() -> None:
    async def test() -> None:
        async with bench(settings(processes=4)) as b:
            assert len(b.pool.child_states) == 4
            assert all(is_alive(pid) for pid in b.pool.child_states)
            assert b.pool.description == "runs orders"

    run(test())

"""What handlers do beyond their own thread, process and time: nobody but they has to answer for it."""

import pytest

from fastq.pool.main.config import PoolConfig
from fastq.pool.main.protocol import CancelOutcome
from fastq.pool.shared import layout
from fastq.pool.shared.event_kind import EventKind
from tests.pool.harness import Bench, bench, gone, run, settings
from tests.waiting import wait_until

RING = 1 << 16
INLINE, IN_A_SEGMENT = 100, 20_000  # bytes: the latter is more than a quarter of the ring
WAYS = pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
SIZES = pytest.mark.parametrize("size", [INLINE, IN_A_SEGMENT])


def unruly(**options: float | str) -> PoolConfig:
    return settings("", **{"runner": "tests.pool.unruly:load", "ring_bytes": RING, "prefetch_time": 600, **options})


async def pid_of(b: Bench) -> bytes:
    return (await b.run("noop")).data


# Results that are written too late, by threads, by forks ------------------------------------------------------------


@WAYS
@SIZES
def test_a_result_for_a_task_that_has_ended_is_an_error_to_who_writes_it(is_async: bool, size: int) -> None:
    async def test() -> None:
        async with bench(unruly()) as b:
            pid = await pid_of(b)
            b.submit(b.task("ended", "keep", is_async=is_async))
            await b.outcome("ended")
            b.submit(b.task("next", "write_for_the_ended", is_async=is_async, times=str(size)))
            event = await b.outcome("next")
            assert (event.kind, event.data) == (EventKind.RESULT, b"it has ended")
            assert len(b.events["ended"]) == len(b.events["next"]) == 1
            assert await pid_of(b) == pid

    run(test())


@SIZES
def test_results_written_from_threads_of_coroutines_are_their_own_tasks(size: int) -> None:
    async def test() -> None:
        async with bench(unruly()) as b:
            marks = {number: f"<{number:3}>" for number in range(60)}
            for number, mark in marks.items():
                b.submit(b.task(number, "write_in_thread", is_async=True, mark=mark, size=str(size)))
            for number, mark in marks.items():
                assert (await b.outcome(number)).kind is EventKind.DONE
                assert [event.data for event in b.events[number]] == [mark.encode() * size, mark.encode(), b""]

    run(test())


@SIZES
def test_threads_of_a_plain_handler_write_at_once(size: int) -> None:
    async def test() -> None:
        async with bench(unruly()) as b:
            for key in range(20):
                b.submit(b.task(key, "write_from_threads", size=str(size)))
            for key in range(20):
                assert (await b.outcome(key)).kind is EventKind.DONE
                *written, _ = b.events[key]
                assert sorted(event.data for event in written) == [bytes([n]) * size for n in range(8)]

    run(test())


def test_what_raises_between_a_segment_and_its_record_does_not_shift_those_that_follow() -> None:
    async def test() -> None:
        async with bench(unruly()) as b:
            b.submit(b.task("torn", "raise_between_segment_and_record", size=str(IN_A_SEGMENT)))
            await b.outcome("torn")
            assert [event.data for event in b.events["torn"]] == [b"2" * IN_A_SEGMENT, b""]

    run(test())


@WAYS
@pytest.mark.parametrize("times", [1, 2_000])
def test_a_fork_cannot_write_for_the_task_and_its_parent_can(is_async: bool, times: int) -> None:
    async def test() -> None:
        async with bench(unruly()) as b:
            pid = await pid_of(b)
            b.submit(b.task("forks", "fork_and_write", is_async=is_async, times=str(times)))
            assert (await b.outcome("forks")).data == b"7 7"
            assert [event.data for event in b.events["forks"]] == [b"from the parent", b"7 7"]
            assert await pid_of(b) == pid

    run(test())


def test_a_coroutine_that_waits_for_room_takes_no_news_from_its_loop() -> None:
    async def test() -> None:
        async with bench(unruly(timeout_grace=600)) as b:
            sleeper = b.task("sleeper", "sleep", is_async=True)
            b.submit(sleeper)
            assert await b.beacon.next() == "sleeps"
            b.submit(b.task("writer", "write", is_async=True, times="100", size="2000"))
            # From here to the wait's end nothing is read: this is the thread that would.
            (child,) = b.pool._supervisor.children
            wait_until(lambda: child.segment.memory[layout.SPACE_WANTED_AT] == 1)
            assert b.pool.cancel(sleeper) is CancelOutcome.TOLD
            assert (await b.outcome("sleeper")).kind is EventKind.CANCELED

    run(test())


def test_a_result_that_finds_no_descriptor_breaks_its_task_only() -> None:
    async def test() -> None:
        async with bench(unruly()) as b:
            pid = await pid_of(b)
            event = await b.run("run_out_of_descriptors", size=str(IN_A_SEGMENT))
            assert event.kind is EventKind.BROKEN
            assert "Too many open files" in event.data.decode()
            assert await pid_of(b) == pid

    run(test())


# Forks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("do", ["fork", "async fork", "async fork_in_part"])
@pytest.mark.parametrize(
    ("end", "status", "text"),
    [
        ("return", 0, ""),
        ("exit", 0, ""),
        ("exit 3", 3, ""),
        ("exit with a text", 1, "the text"),
        ("raise", 1, "ZeroDivisionError: in the copy"),
        ("go on with the loop", 1, "cannot go on with the worker's event loop"),
    ],
)
def test_a_fork_ends_as_a_program_of_its_own(do: str, end: str, status: int, text: str) -> None:
    if end == "go on with the loop" and do == "fork":
        status, text = 0, ""  # it has none

    async def test() -> None:
        async with bench(unruly()) as b:
            pid = await pid_of(b)
            file = b.beacon.file("printed")
            b.submit(b.task("forks", do.split()[-1], is_async="async" in do, end=end, file=str(file)))
            event = await b.outcome("forks")
            assert (event.kind, event.data) == (EventKind.RESULT, str(status).encode())
            printed = file.read_text()
            assert printed.count("printed by the copy") == 1
            assert text in printed
            assert await pid_of(b) == pid

    run(test())


# Contexts -----------------------------------------------------------------------------------------------------------


@WAYS
def test_no_task_sees_the_context_variables_of_another(is_async: bool) -> None:
    async def test() -> None:
        async with bench(unruly(async_concurrency=3)) as b:
            b.submit(*(b.task(number, "var", is_async=is_async) for number in range(100)))
            assert {event.data for event in await b.outcomes(range(100))} == {b"unset"}

    run(test())


# Exits and blocks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["exit", "interrupt"])
@pytest.mark.parametrize(("do", "kind"), [("leave_in_part", EventKind.BROKEN), ("leave_in_callback", EventKind.DONE)])
def test_an_exit_beside_the_handlers_own_coroutine_harms_no_neighbor(do: str, kind: EventKind, by: str) -> None:
    async def test() -> None:
        async with bench(unruly()) as b:
            pid, go = await pid_of(b), b.beacon.file("go")
            b.submit(b.task("neighbor", "wait_for", is_async=True, file=str(go)))
            assert await b.beacon.next() == "waits"
            b.submit(b.task("guilty", do, is_async=True, by=by))
            event = await b.outcome("guilty")
            assert event.kind is kind
            if kind is EventKind.BROKEN:
                assert ("SystemExit: 3" if by == "exit" else "KeyboardInterrupt") in event.data.decode()
            go.touch()
            event = await b.outcome("neighbor")
            assert (event.kind, event.data) == (EventKind.RESULT, pid)

    run(test())


def test_a_child_that_cannot_go_on_ends_whatever_threads_were_left_in_it() -> None:
    async def test() -> None:
        async with bench(unruly(timeout_grace=600)) as b:
            await gone(int((await b.run("break_down")).data))
            assert (await b.run("noop")).kind is EventKind.RESULT

    run(test())


@pytest.mark.parametrize("do", ["block", "block_in_part"])
def test_the_coroutine_that_blocks_the_loop_is_charged_and_no_other(do: str) -> None:
    async def test() -> None:
        async with bench(unruly()) as b:
            others = [b.task(number, "sleep", is_async=True) for number in range(3)]
            b.submit(*others)
            for _ in others:
                assert await b.beacon.next() == "sleeps"
            b.submit(b.task("blocker", do, is_async=True))
            assert await b.beacon.next() == "blocks"
            assert b.pool.cancel(others[1]) is CancelOutcome.TOLD
            event = await b.outcome("blocker")
            assert event.kind is EventKind.CRASHED
            assert "the task blocked the event loop for 0.2 s" in event.data.decode()
            assert {event.kind for event in await b.outcomes(range(3))} == {EventKind.RERUN}

    run(test())


def test_where_nobody_is_known_to_block_the_loop_all_run_again() -> None:
    async def test() -> None:
        async with bench(unruly()) as b:
            other = b.task("other", "sleep", is_async=True)
            b.submit(other)
            assert await b.beacon.next() == "sleeps"
            b.submit(b.task("blocker", "block_in_callback", is_async=True))
            assert await b.beacon.next() == "blocks"
            assert b.pool.cancel(other) is CancelOutcome.TOLD
            assert {event.kind for event in await b.outcomes(["other", "blocker"])} == {EventKind.RERUN}

    run(test())

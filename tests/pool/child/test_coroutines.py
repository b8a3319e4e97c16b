import asyncio
import time

from fastq.pool.main.protocol import CancelOutcome
from fastq.pool.shared.event_kind import NOT_BEGUN, EventKind
from tests.pool.harness import bench, gone, run, settings


def test_coroutines_of_one_child_run_at_the_same_time() -> None:
    async def test() -> None:
        async with bench(settings(async_concurrency=20)) as b:
            go = b.beacon.file("go")
            b.submit(*(b.task(number, "wait_for", is_async=True, file=str(go)) for number in range(20)))
            pids = {(await b.beacon.pids())[0] for _ in range(20)}
            assert pids == set(b.pool.child_states)
            assert len(b.pool.running()) == 20
            go.touch()
            assert {event.kind for event in await b.outcomes(range(20))} == {EventKind.RESULT}

    run(test())


def test_never_more_coroutines_than_rows() -> None:
    async def test() -> None:
        async with bench(settings(async_concurrency=3, prefetch_time=600)) as b:
            go = b.beacon.file("go")
            b.submit(*(b.task(number, "wait_for", is_async=True, file=str(go)) for number in range(10)))
            for _ in range(3):
                await b.beacon.pids()
            assert len(b.pool.running()) == 3
            assert b.pool.pending == 10
            go.touch()
            assert {event.kind for event in await b.outcomes(range(10))} == {EventKind.RESULT}

    run(test())


def test_plain_and_async_tasks_take_turns_in_one_child() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            for number in range(50):
                b.submit(b.task(("plain", number), "noop"), b.task(("async", number), "noop", is_async=True))
            for number in range(50):
                assert (await b.outcome(("plain", number))).kind is EventKind.DONE
                assert (await b.outcome(("async", number))).kind is EventKind.RESULT

    run(test())


def test_a_plain_task_does_not_run_while_a_coroutine_does() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            go = b.beacon.file("go")
            b.submit(b.task("async", "wait_for", is_async=True, file=str(go)), b.task("plain", "noop"))
            await b.beacon.pids()
            assert [one.submission.key for one in b.pool.running()] == ["async"]
            go.touch()
            await b.outcome("plain")
            assert [event.submission.key for event in b.order] == ["async", "plain"]

    run(test())


def test_a_stream_of_coroutines_does_not_starve_plain_tasks() -> None:
    """While one plain task waits, no further coroutines are let in before it."""

    async def test() -> None:
        async with bench(settings(prefetch_time=600, async_concurrency=2)) as b:
            first, second = b.beacon.file("first"), b.beacon.file("second")
            b.submit(b.task("a1", "wait_for", is_async=True, file=str(first)))
            b.submit(b.task("a2", "wait_for", is_async=True, file=str(second)))
            await b.beacon.pids()
            await b.beacon.pids()
            b.submit(b.task("plain", "noop"))
            b.submit(*(b.task(("late", number), "noop", is_async=True) for number in range(5)))
            first.touch()
            await b.outcome("a1")
            second.touch()
            await b.outcome("plain")
            await b.outcomes(("late", number) for number in range(5))
            keys = [event.submission.key for event in b.order]
            assert keys.index("plain") < keys.index(("late", 0))

    run(test())


def test_a_coroutine_is_cancelled_at_its_timeout_and_its_child_lives_on() -> None:
    async def test() -> None:
        async with bench(settings(timeout_grace=60)) as b:
            b.submit(b.task("hang", "sleep", is_async=True, timeout=0.1), b.task("other", "sleep", is_async=True))
            await b.beacon.pids()
            await b.beacon.pids()
            assert (await b.outcome("hang")).kind is EventKind.TIMEOUT
            assert [one.submission.key for one in b.pool.running()] == ["other"]

    run(test())


def test_a_coroutine_is_cancelled_on_demand() -> None:
    async def test() -> None:
        async with bench(settings(timeout_grace=60)) as b:
            task = b.task("hang", "sleep", is_async=True)
            b.submit(task)
            await b.beacon.pids()
            assert b.pool.cancel(task) is CancelOutcome.TOLD
            assert (await b.outcome("hang")).kind is EventKind.CANCELED

    run(test())


def test_a_coroutine_that_blocks_its_loop_is_killed_and_the_others_run_again_free_of_charge() -> None:
    async def test() -> None:
        async with bench() as b:
            b.submit(b.task("innocent", "sleep", is_async=True))
            (pid,) = await b.beacon.pids()
            b.submit(b.task("block", "block", is_async=True, timeout=0.1))
            assert (await b.outcome("block")).kind is EventKind.TIMEOUT
            assert (await b.outcome("innocent")).kind is EventKind.RERUN
            await gone(pid)

    run(test())


def test_a_coroutine_that_ignores_its_cancellation_is_killed_alone_to_blame() -> None:
    async def test(grace_s: float) -> bool:
        async with bench(settings(timeout_grace=grace_s)) as b:
            b.submit(b.task("innocent", "sleep", is_async=True))
            b.submit(b.task("ignore", "ignore", is_async=True, timeout=0.1))
            await b.beacon.pids()
            await b.beacon.pids()
            assert (await b.outcome("ignore")).kind is EventKind.TIMEOUT
            assert (await b.outcome("innocent")).kind is EventKind.RERUN
            return b.beacon.told() == "ignored"

    # A child that stood still for all of its grace has ignored nothing.
    assert any(run(test(grace_s)) for grace_s in (0.5, 5.0, 20.0))


def test_a_coroutine_that_crashes_its_child_charges_all_that_ran() -> None:
    async def test() -> None:
        async with bench() as b:
            b.submit(b.task("other", "sleep", is_async=True))
            await b.beacon.pids()
            b.submit(b.task("crash", "kill_self", is_async=True))
            assert (await b.outcome("crash")).kind is EventKind.CRASHED
            assert (await b.outcome("other")).kind is EventKind.CRASHED

    run(test())


def test_a_coroutine_cancelled_by_its_own_code_is_broken_not_canceled() -> None:
    async def test() -> None:
        async with bench() as b:
            b.submit(b.task("own", "cancel_self", is_async=True))
            event = await b.outcome("own")
            assert event.kind is EventKind.BROKEN
            assert b"from within" in event.data

    run(test())


def test_a_coroutine_that_stops_the_event_loop_ends_no_other() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=10)) as b:
            go = b.beacon.file("go")
            b.submit(b.task("other", "wait_for", is_async=True, file=str(go)))
            await b.beacon.pids()
            b.submit(b.task("stops", "stop_loop", is_async=True))
            assert (await b.outcome("stops")).kind is EventKind.RESULT
            go.touch()
            assert (await b.outcome("other")).kind is EventKind.RESULT
            assert (await b.run("noop")).kind is EventKind.DONE

    run(test())


def test_coroutines_cancelled_by_anothers_code_before_their_first_step_are_broken() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=10)) as b:
            go = b.beacon.file("go")
            b.submit(b.task("other", "cancel_next", is_async=True, file=str(go)))
            await b.beacon.pids()
            b.submit(*(b.task(number, "sleep", is_async=True) for number in range(20)))
            go.touch()
            assert (await b.outcome("other")).kind is EventKind.RESULT
            assert {event.kind for event in await b.outcomes(range(20))} == {EventKind.BROKEN}

    run(test())


def test_a_coroutine_whose_deadline_has_passed_is_not_started() -> None:
    async def test() -> None:
        async with bench() as b:
            b.submit(b.task("late", "kill_self", is_async=True, timeout=3600, deadline=time.time() - 1))
            event = await b.outcome("late")
            assert (event.kind, event.data) == (EventKind.TIMEOUT, NOT_BEGUN)

    run(test())


def test_stop_aborts_coroutines() -> None:
    async def test() -> None:
        async with bench(settings(timeout_grace=60)) as b:
            b.submit(*(b.task(do, do, is_async=True) for do in ("sleep", "ignore", "block")))
            for _ in range(3):
                await b.beacon.pids()
            await b.pool.stop()
            assert [event.kind for event in b.order] == [EventKind.ABORTED] * 3

    run(test())


def test_an_app_of_coroutines_only_has_room_for_as_many_as_there_are_rows_until_their_times_are_known() -> None:
    async def test() -> None:
        async with bench(settings("only_async", async_concurrency=7, processes=2)) as b:
            assert b.pool.free == 14
            go = b.beacon.file("go")
            b.submit(*(b.task(number, "wait_for", is_async=True, file=str(go)) for number in range(10)))
            assert b.pool.free == 4
            go.touch()
            await b.outcomes(range(10))
            await asyncio.sleep(0)
            assert b.pool.free >= 14

    run(test())

"""Batches: several submissions of one rule go to a child as one call, and each of them has its own end."""

import time

import pytest

from fastq.pool.main.child_queue import BatchRule, Event, Submission
from fastq.pool.main.protocol import CancelOutcome
from fastq.pool.shared.event_kind import ITS_BATCH, NOT_BEGUN, TOO_LATE, EventKind
from fastq.pool.shared.ring import now_ns
from tests.pool.desk import MS, Desk, S, spin_until
from tests.pool.desk import desk_fixture as desk_fixture  # a fixture
from tests.pool.harness import Bench, bench, run, settings

SORTS = [(False, False), (True, False), (True, True)]


def batched(rule: BatchRule, *tasks: Submission, sort: tuple[bool, bool] = (False, False)) -> list[Submission]:
    made = []
    for task in tasks:
        one = Submission(task.key, task.data, "noop", is_async=sort[0])
        one.is_threaded, one.batch = sort[1], rule
        made.append(one)
    return made


def ends(b: Bench, count: int) -> list[EventKind]:
    finals = [event for event in b.order if event.kind < EventKind.WRITTEN]
    assert len(finals) == count, "each has one end"
    return [event.kind for event in sorted(finals, key=lambda event: str(event.submission.key))]


@pytest.mark.parametrize("sort", SORTS)
def test_the_tasks_of_a_call_have_their_own_answers(sort: tuple[bool, bool]) -> None:
    async def test() -> None:
        async with bench(settings(threads=2)) as b:
            tasks = [b.task(number, "echo", text=f"text {number}") for number in range(9)]
            b.submit(*batched(BatchRule(10), *tasks, b.task(9, "call_size"), sort=sort))
            answers = [event.data for event in await b.outcomes(range(10))]
            assert answers == [*(f"text {number}".encode() for number in range(9)), b"10"]
            assert b.pool.pending == 0

    run(test())


@pytest.mark.parametrize("sort", SORTS)
def test_all_that_are_done_without_an_answer_are_done(sort: tuple[bool, bool]) -> None:
    async def test() -> None:
        async with bench(settings(threads=2)) as b:
            for _ in range(3):
                b.submit(*batched(BatchRule(64), *(b.task(number) for number in range(64)), sort=sort))
            await b.until(lambda: len(b.order) == 192)
            assert {event.kind for event in b.order} == {EventKind.DONE}
            assert b.pool.pending == 0
            assert (await b.run("echo", text="the child goes on")).data == b"the child goes on"

    run(test())


def test_a_call_has_no_more_tasks_than_its_rule_allows() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            b.submit(*batched(BatchRule(4), *(b.task(number, "call_size") for number in range(10))))
            assert [event.data for event in await b.outcomes(range(10))] == [b"4"] * 8 + [b"2"] * 2

    run(test())


def test_large_tasks_pass_in_one_segment() -> None:
    async def test() -> None:
        async with bench(settings(ring_bytes=1 << 16)) as b:
            tasks = [b.task(number, "echo", text=str(number) * 300_000) for number in range(4)]
            b.submit(*batched(BatchRule(4, max_bytes=10_000_000), *tasks))
            for number, event in enumerate(await b.outcomes(range(4))):
                assert event.data == str(number).encode() * 300_000

    run(test())


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("death", ["segfault", "kill_self"])
def test_a_call_that_kills_its_child_charges_none_of_its_tasks(death: str, sort: tuple[bool, bool]) -> None:
    async def test() -> None:
        async with bench(settings(threads=2)) as b:
            doing = ["noop"] * 7 + [death] + ["noop"] * 56
            tasks = (b.task(number, do) for number, do in enumerate(doing))
            b.submit(*batched(BatchRule(64), *tasks, sort=sort))
            for event in await b.outcomes(range(64)):
                assert (event.kind, event.data) == (EventKind.RERUN, ITS_BATCH)

    run(test())


def test_a_task_that_is_called_alone_is_charged() -> None:
    async def test() -> None:
        async with bench() as b:
            b.submit(*batched(BatchRule(64), b.task("alone", "segfault")))
            assert (await b.outcome("alone")).kind is EventKind.CRASHED

    run(test())


@pytest.mark.parametrize(("do", "sort"), [("sleep", SORTS[0]), ("sleep", SORTS[1]), ("spin", SORTS[2])])
def test_the_least_time_limit_is_that_of_all(do: str, sort: tuple[bool, bool]) -> None:
    async def test() -> None:
        async with bench(settings(threads=2)) as b:
            first, second = b.task(0, do), b.task(1, "noop")
            short = Submission(1, second.data, "noop", timeout=0.05, is_async=sort[0])
            short.is_threaded, short.batch = sort[1], BatchRule(2)
            (long,) = batched(short.batch, first, sort=sort)
            b.submit(long, short)
            assert [event.kind for event in await b.outcomes(range(2))] == [EventKind.TIMEOUT] * 2

    run(test())


def test_a_call_that_outlasts_its_time_and_grace_charges_none() -> None:
    async def test() -> None:
        async with bench() as b:
            rule = BatchRule(3)
            tasks = [Submission(n, b.task(n, do).data, do, timeout=0.05) for n, do in enumerate(["noop", "ignore"])]
            tasks.append(Submission(2, b.task(2).data, "noop"))
            for one in tasks:
                one.batch = rule
            b.submit(*tasks)
            for event in await b.outcomes(range(3)):
                assert (event.kind, event.data) == (EventKind.RERUN, ITS_BATCH)

    run(test())


def test_a_task_whose_time_is_up_is_not_called_and_the_others_are() -> None:
    async def test() -> None:
        async with bench() as b:
            rule = BatchRule(4)
            for late in (0, 2):
                b.order.clear()
                b.events.clear()
                tasks = [
                    Submission(n, b.task(n, "call_size").data, "t", deadline=1.0 if n == late else 0.0)
                    for n in range(4)
                ]
                for one in tasks:
                    one.batch = rule
                b.submit(*tasks)
                events = await b.outcomes(range(4))
                assert (events[late].kind, events[late].data) == (EventKind.TIMEOUT, NOT_BEGUN)
                assert [event.data for n, event in enumerate(events) if n != late] == [b"3"] * 3

    run(test())


@pytest.mark.parametrize("sort", SORTS)
def test_to_cancel_one_marks_it_and_to_cancel_all_ends_the_call(sort: tuple[bool, bool]) -> None:
    async def test() -> None:
        async with bench(settings(threads=2)) as b:
            rule, go = BatchRule(3), b.beacon.file("go")
            waiting = batched(rule, b.task(0, "wait_for", file=str(go)), b.task(1), b.task(2), sort=sort)
            b.submit(*waiting)
            await b.beacon.next()
            assert b.pool.cancel(waiting[0]) is CancelOutcome.TOLD
            assert b.pool.cancel(waiting[2]) is CancelOutcome.TOLD
            assert b.pool.cancel(waiting[2]) is CancelOutcome.TOO_LATE
            go.touch()
            assert [event.kind for event in await b.outcomes(range(3))] == [
                EventKind.CANCELED, EventKind.DONE, EventKind.CANCELED,
            ]  # fmt: skip
            assert b.events[0][0].data == TOO_LATE
            b.order.clear()
            b.events.clear()
            asleep = batched(rule, b.task(0, "sleep"), b.task(1), b.task(2), sort=sort)
            b.submit(*asleep)
            await b.beacon.next()
            for one in asleep:
                assert b.pool.cancel(one) is CancelOutcome.TOLD
            assert {event.kind for event in await b.outcomes(range(3))} == {EventKind.CANCELED}

    run(test())


@pytest.mark.parametrize("sort", SORTS)
def test_a_call_without_its_first_task_ends_if_all_the_others_are_canceled(sort: tuple[bool, bool]) -> None:
    async def test() -> None:
        async with bench(settings(threads=2)) as b:
            rule = BatchRule(3)
            late = Submission(0, b.task(0, "noop").data, "noop", deadline=1.0, is_async=sort[0])
            late.is_threaded, late.batch = sort[1], rule
            tasks = [late, *batched(rule, b.task(1, "sleep" if not sort[1] else "spin"), b.task(2), sort=sort)]
            b.submit(*tasks)
            await b.beacon.next()
            for one in tasks[1:]:
                assert b.pool.cancel(one) is CancelOutcome.TOLD
            assert [event.kind for event in await b.outcomes(range(3))] == [
                EventKind.TIMEOUT, EventKind.CANCELED, EventKind.CANCELED,
            ]  # fmt: skip

    run(test(), 30)


def test_what_stops_the_pool_ends_the_call() -> None:
    async def test() -> None:
        async with bench() as b:
            b.submit(*batched(BatchRule(3), b.task(0, "sleep"), b.task(1), b.task(2)))
            await b.beacon.next()
            await b.pool.stop()
            assert ends(b, 3) == [EventKind.ABORTED] * 3

    run(test())


def test_a_batch_in_a_ring_goes_elsewhere_without_the_task_that_is_canceled() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            await b.run()
            go = b.beacon.file("go")
            tasks = batched(BatchRule(4), *(b.task(number, "call_size") for number in range(4)))
            b.submit(Submission("first", b.task("", "wait_for", file=str(go)).data, "noop"), *tasks)
            await b.beacon.next()
            assert tasks[1].queue is not None
            assert b.pool.cancel(tasks[1]) is CancelOutcome.WITHDRAWN
            go.touch()
            assert [event.data for event in await b.outcomes((0, 2, 3))] == [b"3"] * 3
            assert b.pool.pending == 0

    run(test())


def test_each_task_of_a_call_writes_results_and_checkpoints() -> None:
    async def test() -> None:
        async with bench() as b:
            b.submit(
                *batched(BatchRule(2), b.task(0, "write", size="5", text="a"), b.task(1, "write", size="5", text="b"))
            )
            await b.outcomes(range(2))
            for key in range(2):
                assert [event.kind for event in b.events[key]][:1] == [EventKind.WRITTEN]

    run(test())


# The dispatcher


def submit(desk: Desk, rule: BatchRule, *keys: object, size: int = 10) -> list[Event]:
    made = []
    for key in keys:
        one = Submission(key, b"x" * size, "batch")
        one.batch = rule
        made.append(one)
    return desk.dispatcher.submit(made)


def test_tasks_wait_for_others_until_the_batch_is_full(desk: Desk) -> None:
    rule = BatchRule(4, wait=600)
    submit(desk, rule, 1, 2, 3)
    assert desk.loads == [0, 0]
    assert desk.dispatcher.pending == 3
    assert desk.dispatcher.due_at > now_ns() + 500 * S
    submit(desk, rule, 4, 5)
    assert sorted(desk.loads) == [0, 4]
    assert desk.dispatcher.pending == 5


def test_tasks_wait_for_others_only_so_long(desk: Desk) -> None:
    submit(desk, BatchRule(4, wait=0.01), 1, 2)
    due_at = desk.dispatcher.due_at
    assert desk.loads == [0, 0]
    spin_until(due_at)
    desk.dispatcher.dispatch()
    assert sorted(desk.loads) == [0, 2]
    assert desk.dispatcher.due_at == 0


def test_a_batch_goes_while_each_of_its_tasks_has_time_left(desk: Desk) -> None:
    rule = BatchRule(4, wait=600)
    submit(desk, rule, 1)
    in_time = Submission(2, b"", "batch", deadline=time.time() + 100)
    in_time.batch = rule
    desk.dispatcher.submit([in_time])
    assert 0 < desk.dispatcher.due_at - now_ns() < 60 * S


def test_batches_that_get_no_more_go_at_once(desk: Desk) -> None:
    rule = BatchRule(4, wait=600)
    submit(desk, rule, 1, 2)
    assert desk.loads == [0, 0]
    desk.dispatcher.let_batches_go()
    assert (sorted(desk.loads), desk.dispatcher.due_at) == ([0, 2], 0)
    submit(desk, rule, 3, 4, 5)  # of a dequeue that was under way
    assert sorted(desk.loads) == [2, 3]


def test_a_batch_that_waits_for_others_is_not_returned(desk: Desk) -> None:
    submit(desk, BatchRule(4, wait=600), 1, 2)
    spin_until(now_ns() + 120 * MS)  # more than twice prefetch_time
    assert desk.dispatcher.relieve() == []
    assert desk.dispatcher.pending == 2


def test_a_batch_is_full_by_its_bytes_too(desk: Desk) -> None:
    submit(desk, BatchRule(100, wait=600, max_bytes=1000), *range(5), size=300)
    assert sorted(desk.loads) == [0, 3]
    assert desk.dispatcher.pending == 5


def test_rules_do_not_mix(desk: Desk) -> None:
    submit(desk, BatchRule(2, wait=600), 1)
    submit(desk, BatchRule(2, wait=600), 2)
    assert desk.loads == [0, 0]


def test_what_waits_for_others_is_withdrawn_by_close(desk: Desk) -> None:
    submit(desk, BatchRule(4, wait=600), 1, 2, 3)
    desk.submit(4)
    assert [one.key for one in desk.dispatcher.close()][:3] == [1, 2, 3]
    assert desk.dispatcher.pending == 0
    assert [event.kind for event in submit(desk, BatchRule(4, wait=600), 5, 6)] == [EventKind.RETURNED] * 2


@pytest.mark.parametrize("canceled", [1, 2, 3])
def test_a_task_that_waits_for_others_can_be_withdrawn(desk: Desk, canceled: int) -> None:
    rule = BatchRule(4, wait=600)
    submit(desk, rule, 1, 2, 3)
    (one,) = [one for one in desk.dispatcher.list_waiting() if one.key == canceled]
    assert desk.dispatcher.withdraw(one)
    assert not desk.dispatcher.withdraw(one)
    assert desk.dispatcher.pending == 2
    submit(desk, rule, 4)
    assert desk.loads == [0, 0]
    submit(desk, rule, 5)
    assert sorted(desk.loads) == [0, 4]
    assert desk.dispatcher.pending == 4


@pytest.mark.parametrize("desk", [(1,)], indirect=True)
def test_a_batch_that_is_not_full_grows_while_one_of_its_rule_runs(desk: Desk) -> None:
    rule = BatchRule(4)
    submit(desk, rule, 1)
    seq = desk.children[0].begin()
    submit(desk, rule, 2)
    submit(desk, rule, 3)
    assert desk.loads == [1]
    desk.children[0].end(seq)
    desk.dispatcher.collect([])
    desk.dispatcher.dispatch()
    assert desk.loads == [2]


def test_idle_children_are_asked_for_whole_batches_however_long_calls_take(desk: Desk) -> None:
    desk.learn(100 * MS)
    assert desk.dispatcher.free(False) == 2
    rule = BatchRule(64)
    for _ in range(4):
        submit(desk, rule, *range(8))
        for child in desk.children:
            child.work_off(100 * MS)
        desk.dispatcher.collect([])
    assert 100 < desk.dispatcher.free(False) <= 128


@pytest.mark.parametrize("desk", [(1,)], indirect=True)
def test_tasks_that_wait_for_others_take_no_room_of_those(desk: Desk) -> None:
    rules = [BatchRule(64, wait=600) for _ in range(80)]
    for number, rule in enumerate(rules):
        submit(desk, rule, number)
    assert desk.loads == [0]
    assert desk.dispatcher.free(False) == 64
    submit(desk, rules[0], *range(62))
    assert desk.dispatcher.free(False) == 64
    submit(desk, rules[0], 1)
    assert desk.loads == [64]


@pytest.mark.parametrize("desk", [(1,)], indirect=True)
def test_large_tasks_make_a_batch_as_large_as_its_rule_allows(desk: Desk) -> None:
    rule = BatchRule(64, wait=600, max_bytes=10_000_000)
    for _ in range(3):  # of the first no size is known
        while desk.loads == [0]:
            count = desk.dispatcher.free(False)
            assert count
            submit(desk, rule, *range(count), size=150_000)
        assert desk.loads == [64]
        desk.children[0].work_off(MS)
        desk.dispatcher.collect([])


def test_a_call_counts_as_one_task_of_what_a_child_is_given(desk: Desk) -> None:
    rule = BatchRule(64)
    for _ in range(20):
        submit(desk, rule, *range(64))
        for child in desk.children:
            child.work_off(5 * MS)
        desk.dispatcher.collect([])
    assert 64 * 15 < desk.dispatcher.free(False) < 64 * 25, "ten of 5 ms for each of two children"


@pytest.mark.parametrize("desk", [(1, 0.05, 6)], indirect=True)
def test_a_child_that_must_leave_soon_gets_whole_batches_until_then(desk: Desk) -> None:
    rule = BatchRule(64)
    for _ in range(4):
        submit(desk, rule, *range(64))
        desk.children[0].work_off()
        desk.dispatcher.collect([])
    assert 100 < desk.dispatcher.free(False) <= 128, "two calls are left"

import struct

import pytest

from fastq.pool.main.child_queue import ChildQueue, Submission
from fastq.pool.main.dispatcher import free_coroutines
from fastq.pool.shared.control import Channel
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.layout import (
    RECORD_ALIGN,
    RECORD_HEADER,
    REPORT_AT,
    REPORT_OVER_MEMORY,
    SLEEPING_AT,
    SPACE_WANTED_AT,
    TASK_AWAITED,
    TASK_HEAD_AT,
    TASK_TAIL_AT,
)
from fastq.pool.shared.ring import Memory, now_ns
from tests.pool.desk import MS, SHAPE, Desk, S, desk_fixture, spin_until
from tests.pool.harness import bench, run, settings
from tests.waiting import wait_until

__all__ = ["desk_fixture"]


def test_an_unknown_type_is_given_out_one_a_child(desk: Desk) -> None:
    assert desk.dispatcher.free(only_async=False) == 2
    assert desk.submit(*range(5)) == []
    assert desk.loads == [1, 1]
    assert desk.dispatcher.pending == 5
    assert desk.dispatcher.free(only_async=False) == 0


def test_short_tasks_are_given_out_up_to_the_limit_of_records(desk: Desk) -> None:
    desk.learn(1000)
    assert desk.dispatcher.free(only_async=False) == 512
    desk.submit(*range(1000))
    assert desk.loads == [256, 256]


def test_coroutines_would_start_at_once_in_children_that_run_no_plain_task(desk: Desk) -> None:
    assert free_coroutines(desk.dispatcher) == 2 * SHAPE.rows
    desk.submit("plain")
    assert free_coroutines(desk.dispatcher) == SHAPE.rows
    desk.submit_async(*range(SHAPE.rows - 1), size=1)
    assert free_coroutines(desk.dispatcher) == 1
    desk.submit_async("last", "waits", size=1)
    assert free_coroutines(desk.dispatcher) == 0
    desk.dispatcher.close()
    assert free_coroutines(desk.dispatcher) == 0


def test_a_child_gets_about_prefetch_time_of_work(desk: Desk) -> None:
    desk.learn(5 * MS)
    assert desk.dispatcher.free(only_async=False) == 20
    desk.submit(*range(100))
    assert desk.loads == [10, 10]


def test_nothing_is_asked_for_while_every_child_has_enough_before_it(desk: Desk) -> None:
    """Else each task that ends would be followed by a fetch of one."""
    desk.learn(5 * MS)
    desk.submit(*range(16))
    assert desk.loads == [8, 8]
    assert desk.dispatcher.free(only_async=False) == 0
    first, _ = desk.children
    first.end(first.begin(), 5 * MS)
    desk.dispatcher.collect([])
    assert desk.dispatcher.free(only_async=False) == 3 + 2, "for the other one, too"


@pytest.mark.parametrize("desk", [(2, 600.0)], indirect=True)
def test_what_a_child_has_ended_is_known_before_it_is_collected(desk: Desk) -> None:
    desk.learn(100 * S)
    first, _ = desk.children
    desk.submit(*range(8))
    assert desk.loads == [4, 4]
    for _ in range(3):
        first.end(first.begin(), 100 * S)
    first.begin(ago_ns=50 * S)
    desk.submit(8, 9, 10)
    assert desk.loads == [7, 4]


def test_short_tasks_are_given_in_runs_as_to_wake_a_child_costs_more(desk: Desk) -> None:
    desk.learn(1000)
    desk.submit(*range(50))
    assert desk.loads == [50, 0]
    desk.submit(*range(100))
    assert desk.loads == [50, 100]
    desk.submit(*range(100))
    assert desk.loads == [150, 100]


def test_a_child_is_told_that_somebody_waits_for_a_task(desk: Desk) -> None:
    tasks = [Submission(number, b"", "type") for number in range(2)]
    tasks[1].is_awaited = True
    desk.dispatcher.submit(tasks)
    taken = [child.tasks.take() for child in desk.children]
    assert [one and one[1] for one in taken] == [0, TASK_AWAITED]


def test_children_that_leave_are_seen(desk: Desk) -> None:
    first, second = desk.children
    assert not desk.dispatcher.any_leaves()
    desk.submit(1, 2)
    first.queue.set_open(False)
    assert not desk.dispatcher.any_leaves(), "it has work to do"
    first.work_off()
    desk.dispatcher.collect([])
    assert desk.dispatcher.any_leaves()
    first.queue.set_open(True)
    second.memory[REPORT_AT] = REPORT_OVER_MEMORY
    assert desk.dispatcher.any_leaves()


def test_big_payloads_are_bounded_by_bytes(desk: Desk) -> None:
    desk.learn(1000)
    desk.submit(*range(30), size=100_000)
    assert desk.loads == [10, 10]


def test_no_more_is_asked_for_than_there_are_bytes_left_for_tasks_of_the_usual_size(desk: Desk) -> None:
    desk.learn(1000)
    assert desk.dispatcher.free(only_async=False) == 512
    for _ in range(100):
        desk.submit(*range(8), size=100_000)
        for child in desk.children:
            child.work_off(1000)
        desk.dispatcher.collect([])
    assert desk.dispatcher.free(only_async=False) == 20
    desk.submit(*range(12), size=100_000)
    assert desk.dispatcher.free(only_async=False) == 8


@pytest.mark.parametrize("desk", [(2, 10.0)], indirect=True)  # on a slow machine the turns before take long
def test_coroutines_that_run_leave_all_of_the_ring_to_others_however_big_they_are(desk: Desk) -> None:
    def begin_one_each() -> list[int]:
        desk.submit_async(1, 2, size=260_000)
        return [taken[0] for child in desk.children if (taken := child.tasks.take()) is not None]

    for _ in range(200):  # their size is known by then
        for child, seq in zip(desk.children, begin_one_each(), strict=True):
            child.results.put(seq, b"", kind=EventKind.DONE, a=1000)
        desk.dispatcher.collect([])
    for running in range(1, 5):
        assert len(begin_one_each()) == 2
        assert desk.loads == [running, running]
        assert desk.dispatcher.free(only_async=True) == 2 * 1_000_000 // 260_000


def test_no_more_coroutines_are_asked_for_than_there_is_place_for_before_they_begin(desk: Desk) -> None:
    for _ in range(200):
        desk.submit_async(1, 2, size=260_000)
        for child in desk.children:
            child.work_off()
        desk.dispatcher.collect([])
    desk.submit_async(*range(6), size=260_000)
    assert desk.loads == [3, 3]
    assert desk.dispatcher.free(only_async=True) < 2, "each has a free slot, and hardly a place in its ring"


@pytest.mark.parametrize("desk", [(1, 600.0)], indirect=True)
def test_coroutines_wait_for_a_row_only_as_many_as_would_start_within_prefetch_time(desk: Desk) -> None:
    desk.submit_async(*range(300), size=10)
    assert desk.loads == [4], "how long they take is not known"
    desk.children[0].work_off(240 * S)
    desk.dispatcher.collect([])
    desk.dispatcher.dispatch()
    assert desk.loads == [10]
    for _ in range(10):
        desk.children[0].work_off(1000)
        desk.dispatcher.collect([])
        desk.dispatcher.dispatch()
    desk.submit_async(*range(600), size=10)
    assert desk.loads == [4 + 255]
    assert desk.dispatcher.free(only_async=True) == 0


@pytest.mark.parametrize("desk", [(1, 1e9)], indirect=True)
def test_no_coroutine_waits_for_a_row_before_one_has_ended_on_a_machine_just_started(desk: Desk) -> None:
    assert now_ns() < 1e9 * S, "it has not been up for as long as prefetch_time"
    desk.submit_async(*range(300), size=10)
    assert desk.loads == [4]


def test_coroutines_that_wait_for_a_row_too_long_are_returned_and_no_more_are_given() -> None:
    for prefetch_s in (0.05, 0.5, 5.0):
        desk, began_ns = Desk(1, prefetch_s), now_ns()
        desk.submit_async(1, size=10)
        desk.children[0].work_off(1000)
        desk.dispatcher.collect([])
        desk.submit_async(*range(6), size=10)
        if now_ns() - began_ns < prefetch_s * S:
            break
        desk.children[0].close()  # this machine stood still meanwhile: on a larger scale that does not matter
    for _ in range(4):
        assert desk.children[0].tasks.take() is not None
    assert desk.loads == [6]
    spin_until(now_ns() + int(2 * prefetch_s * S))
    assert [event.submission.key for event in desk.dispatcher.relieve()] == [4, 5]
    assert desk.loads == [4]
    assert desk.dispatcher.free(only_async=True) == 0
    desk.submit_async(6, size=10)
    assert desk.loads == [4]
    desk.children[0].close()


@pytest.mark.parametrize(("ran_s", "load"), [(720, 5), (1201, 4)])
@pytest.mark.parametrize("desk", [(1, 600.0)], indirect=True)
def test_as_many_wait_behind_long_coroutines_as_end_in_half_of_prefetch_time(desk: Desk, ran_s: int, load: int) -> None:
    for _ in range(10):
        desk.submit_async(*range(4), size=10)
        desk.children[0].work_off(ran_s * S)
        desk.dispatcher.collect([])
    desk.submit_async(*range(4), size=10)
    assert desk.dispatcher.free(only_async=True) == load - 4
    desk.submit_async(4, 5, size=10)
    assert desk.loads == [load]
    assert desk.dispatcher.free(only_async=True) == 0


@pytest.mark.parametrize("desk", [(1, 0.05)], indirect=True)
def test_nothing_waits_behind_coroutines_of_which_none_has_ended_for_prefetch_time(desk: Desk) -> None:
    """However short they were before."""
    desk.submit_async(1, size=10)
    desk.children[0].work_off(1000)
    desk.dispatcher.collect([])
    desk.submit_async(*range(4), size=10)
    spin_until(now_ns() + 60 * MS)
    assert desk.dispatcher.free(only_async=True) == 0
    desk.submit_async(4, size=10)
    assert desk.loads == [4]


def test_a_child_in_a_long_task_gets_nothing_to_wait_behind_it(desk: Desk) -> None:
    desk.learn(10_000 * MS)
    desk.submit(1, 2, 3)
    assert desk.loads == [1, 1]
    desk.children[0].begin(ago_ns=60_000 * MS)
    desk.dispatcher.dispatch()
    assert desk.loads == [1, 1]
    assert desk.dispatcher.free(only_async=False) == 0


@pytest.mark.parametrize("desk", [(2, 50.0)], indirect=True)
def test_a_child_near_the_end_of_its_task_gets_the_next(desk: Desk) -> None:
    desk.learn(1000 * S)
    desk.submit(1, 2, 3)
    desk.children[0].begin(ago_ns=970 * S)
    desk.children[1].begin(ago_ns=10 * S)
    desk.dispatcher.dispatch()
    assert desk.loads == [2, 1]


def test_a_few_quick_tasks_in_a_row_do_not_make_it_fetch_as_if_all_were_quick(desk: Desk) -> None:
    """Of a mix it would take hundreds, most of which go back; a kill would cost them all an attempt."""
    desk.learn(10 * MS)
    desk.submit(*range(10))
    while desk.dispatcher.pending:
        for child in desk.children:
            child.work_off(1000)
        desk.dispatcher.collect([])
        desk.dispatcher.dispatch()
    assert 2 <= desk.dispatcher.free(only_async=False) < 20


def test_what_waited_too_long_moves_to_a_free_child_else_goes_back_in_order() -> None:
    for prefetch_s in (0.001, 0.05, 1.0, 10.0):
        desk, prefetch_ns = Desk(2, prefetch_s), int(prefetch_s * S)
        desk.learn(1000)
        busy, free = desk.children
        free.queue.set_open(False)
        began_ns = now_ns()
        desk.submit(*range(100))
        assert desk.loads == [100, 0]
        busy.begin()
        at_once = desk.dispatcher.relieve()
        if now_ns() - began_ns < prefetch_ns / 2:  # its task is not overdue, and nothing waited for long
            break
        for child in desk.children:  # this machine stood still meanwhile: on a larger scale that does not matter
            child.close()
    assert at_once == []
    spin_until(now_ns() + 3 * prefetch_ns)
    free.queue.set_open(True)
    assert desk.dispatcher.relieve() == []
    assert desk.loads == [1, 99]
    free.begin()
    spin_until(now_ns() + 3 * prefetch_ns)
    events = desk.dispatcher.relieve()
    assert [event.submission.key for event in events] == list(range(2, 100))
    assert {event.kind for event in events} == {EventKind.RETURNED}
    assert desk.loads == [1, 1]
    for child in desk.children:
        child.close()


@pytest.mark.parametrize("desk", [(2, 600.0)], indirect=True)
def test_a_child_whose_task_is_well_past_its_estimate_is_not_asked_to_do_more(desk: Desk) -> None:
    desk.learn(MS)
    late, quick = desk.children
    desk.submit("late", "quick")
    late.begin(ago_ns=100 * S)
    quick.begin()
    assert desk.dispatcher.free(only_async=False) > 256, "both may take more"
    late.slots.start(0, late.queue.remaining()[0].seq, now_ns() - 160 * S, 0)
    assert desk.dispatcher.free(only_async=False) <= 255
    desk.submit(*range(20))
    assert desk.loads == [1, 21]


@pytest.mark.parametrize("desk", [(2, 600.0)], indirect=True)
def test_what_waits_behind_an_overdue_task_moves_to_a_free_child(desk: Desk) -> None:
    desk.learn(1000)
    overdue, free = desk.children
    free.queue.set_open(False)
    desk.submit(*range(10))
    assert desk.loads == [10, 0]
    overdue.begin(ago_ns=310 * S)
    free.queue.set_open(True)
    assert desk.dispatcher.relieve() == []
    assert desk.loads == [1, 9]


@pytest.mark.parametrize("desk", [(2, 600.0)], indirect=True)
def test_what_waits_behind_an_overdue_task_goes_back_in_order_and_is_not_asked_for_again(desk: Desk) -> None:
    """Another server may have a free child; to fetch it again here would be to give it back again."""
    desk.learn(MS)
    overdue, late = desk.children
    desk.submit(*range(10))
    assert desk.loads == [5, 5]
    late.begin(ago_ns=200 * S)
    overdue.begin(ago_ns=310 * S)
    events = desk.dispatcher.relieve()
    assert {event.kind for event in events} == {EventKind.RETURNED}
    assert [event.submission.key for event in events] == [2, 4, 6, 8]
    assert desk.loads == [1, 5]
    assert desk.dispatcher.free(only_async=False) == 0
    assert desk.dispatcher.relieve() == []


@pytest.mark.parametrize("desk", [(1, 600.0)], indirect=True)
def test_tasks_of_almost_prefetch_time_have_the_next_one_waiting_while_they_are_on_time(desk: Desk) -> None:
    desk.learn(480 * S)
    (child,) = desk.children
    desk.submit(1, 2, 3, 4)
    assert desk.loads == [2]
    seq = child.begin()
    for ago_s, load in ((10, 2), (470, 3), (490, 3), (700, 3)):
        child.slots.start(0, seq, now_ns() - ago_s * S, 0)
        assert desk.dispatcher.relieve() == []
        assert desk.loads == [load]
    child.end(seq, 480 * S)
    desk.dispatcher.collect([])
    assert desk.dispatcher.dispatch() == []
    assert desk.loads == [2]
    child.begin(ago_ns=790 * S)
    assert [event.submission.key for event in desk.dispatcher.relieve()] == [3, 4]


@pytest.mark.parametrize("desk", [(1, 600.0)], indirect=True)
def test_whether_a_task_is_overdue_does_not_depend_on_what_waits_behind_it(desk: Desk) -> None:
    desk.learn(1000)
    desk.submit("quick")
    desk.dispatcher.submit([Submission("slow", b"", "unknown")])
    assert desk.loads == [2]
    desk.children[0].begin(ago_ns=310 * S)
    assert [event.submission.key for event in desk.dispatcher.relieve()] == ["slow"]


@pytest.mark.parametrize("desk", [(1, 600.0)], indirect=True)
def test_what_waits_behind_coroutines_stays_however_long_they_run(desk: Desk) -> None:
    desk.submit_async(1, 2, size=10)
    (child,) = desk.children
    child.begin(ago_ns=5000 * S)
    given = [one.seq for one in child.queue.remaining()]
    assert desk.dispatcher.relieve() == []
    assert [one.seq for one in child.queue.remaining()] == given, "nothing was taken back and given again"


@pytest.mark.parametrize("desk", [(1, 600.0, 5)], indirect=True)
def test_a_child_that_may_run_few_more_is_given_those_that_were_taken_back_from_it_once_it_goes_on(desk: Desk) -> None:
    (child,) = desk.children
    for number in (0, 1):
        desk.submit(number)
        child.work_off()
        desk.dispatcher.collect([])
    desk.submit(2, 3, 4)
    assert child.queue.left == 0
    seq = child.begin(ago_ns=310 * S)
    assert [event.submission.key for event in desk.dispatcher.relieve()] == [3, 4]
    assert child.queue.left == 2
    child.end(seq)
    desk.dispatcher.collect([])
    desk.submit(3, 4)
    assert desk.loads == [2]


def test_what_runs_does_not_count_as_waiting(desk: Desk) -> None:
    queue = desk.children[0].queue
    desk.submit(1, 2)
    assert queue.oldest_waiting() > 0
    desk.children[0].begin()
    assert queue.pending == 1
    assert queue.oldest_waiting() == 0


def test_order_survives_being_put_back(desk: Desk) -> None:
    desk.learn(1000)
    desk.submit(*range(600))
    desk.children[0].begin()
    assert [one.key for one in desk.dispatcher.close()] == list(range(1, 600))


@pytest.mark.parametrize("desk", [(1, 0.05, 3)], indirect=True)
def test_a_child_is_given_no_more_than_it_may_run(desk: Desk) -> None:
    desk.submit(1)
    desk.children[0].work_off()
    desk.dispatcher.collect([])
    assert desk.dispatcher.free(only_async=False) == 2
    desk.submit(2, 3, 4)
    assert desk.loads == [2]
    assert desk.children[0].queue.left == 0
    assert desk.dispatcher.free(only_async=False) == 0


def test_withdrawing_gives_the_right_to_run_one_more_back() -> None:
    desk = Desk(1, 0.05, 1)
    task = Submission("task", b"")
    desk.dispatcher.submit([task])
    assert desk.dispatcher.withdraw(task)
    assert not desk.dispatcher.withdraw(task)
    assert desk.children[0].queue.left == 1
    desk.children[0].close()


def test_only_a_sleeper_is_woken_and_once(desk: Desk) -> None:
    child, other = desk.children
    other.queue.set_open(False)
    desk.submit(1)
    assert not child.was_woken()
    child.work_off()
    desk.dispatcher.collect([])
    child.memory[SLEEPING_AT] = 1
    desk.submit(2)
    assert child.was_woken()
    assert child.memory[SLEEPING_AT] == 0
    desk.submit(3)
    assert not child.was_woken()


def test_it_does_not_sleep_over_a_result(desk: Desk) -> None:
    desk.submit(1)
    child = desk.children[0]
    child.end(child.begin())
    assert not desk.dispatcher.fall_asleep()
    desk.dispatcher.collect([])
    assert desk.dispatcher.fall_asleep()


def test_a_child_that_waits_for_room_is_woken_once_its_results_are_read(desk: Desk) -> None:
    desk.submit(1)
    child = desk.children[0]
    child.end(child.begin())
    child.memory[SPACE_WANTED_AT] = 1
    desk.dispatcher.collect([])
    assert child.was_woken()


def test_a_segment_is_sent_only_if_its_record_has_room(desk: Desk) -> None:
    """A pad takes what is left before the end of the ring; a segment without its record would be taken for the next."""
    memory = bytearray(SHAPE.size)
    struct.pack_into("<Q", memory, TASK_HEAD_AT, RECORD_HEADER)
    struct.pack_into("<Q", memory, TASK_TAIL_AT, SHAPE.ring_bytes - 2 * RECORD_ALIGN)
    channel, far = Channel.pair()
    far.set_blocking(False)
    queue = ChildQueue(Memory(memory), SHAPE, channel, 0)
    queue.set_open(True)
    for child in desk.children:
        desk.dispatcher.remove(child.queue)
    desk.dispatcher.add(queue)
    desk.submit("big", size=SHAPE.ring_bytes // 2)
    assert queue.pending == 0
    assert far.poll() is None
    channel.close()
    far.close()


def test_types_without_end_do_not_grow_the_estimates_without_end(desk: Desk) -> None:
    for number in range(3000):
        desk.dispatcher.submit([Submission(number, b"", f"type {number}")])
        for child in desk.children:
            child.work_off()
        desk.dispatcher.collect([])
    assert desk.dispatcher.pending == 0


# With real children ---------------------------------------------------------------------------------------------


def test_tasks_behind_a_hang_are_handed_back_in_order() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=0.02)) as b:
            for _ in range(20):
                await b.run("noop")
            hang = Submission("hang", b.task("", "sleep").data, "noop")  # estimated as the short ones were
            b.submit(hang, *(b.task(number) for number in range(50)))
            # The loop stands still until it runs: what has not begun is taken back in time, and others might begin.
            wait_until(lambda: b.beacon.told().startswith("started"))
            await b.outcomes(range(50))
            returned = [event for event in b.order if event.kind is EventKind.RETURNED]
            assert [event.submission.key for event in returned] == list(range(50))
            assert b.pool.pending == 1

    run(test())


def test_tasks_behind_a_hang_move_to_a_free_child() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=600, processes=2)) as b:
            for _ in range(40):
                await b.run("noop")
            go = b.beacon.file("go")
            b.submit(*(Submission(number, b.task("", "wait_for", file=str(go)).data, "noop") for number in (1, 2)))
            # Both go to one child, by their estimate; the second has moved to the other one when it starts.
            assert await b.beacon.pids() != await b.beacon.pids()
            go.touch()
            assert {event.kind for event in await b.outcomes([1, 2])} == {EventKind.DONE}

    run(test())

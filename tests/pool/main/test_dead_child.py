from collections.abc import Iterator

import pytest

from fastq.pool.main.child import Child, ChildState
from fastq.pool.main.child_queue import Event, Submission
from fastq.pool.main.config import PoolConfig
from fastq.pool.main.dead_child import resolve_dead_child
from fastq.pool.main.dispatcher import Dispatcher
from fastq.pool.shared.event_kind import ANOTHER_TASK, EventKind
from fastq.pool.shared.layout import (
    PAGE,
    RESULT_HEAD_AT,
    RESULT_TAIL_AT,
    ROW_ABORTED,
    ROW_CANCELED,
    ROW_TIMED_OUT,
    TASK_HEAD_AT,
    TASK_TAIL_AT,
    Layout,
)
from fastq.pool.shared.ring import Memory, Ring
from fastq.pool.shared.slots import Slots

CONFIG = PoolConfig("a:b", async_concurrency=4, ring_bytes=1 << 16, prefetch_time=10)


class Corpse:
    """A child that was never started, given tasks and brought to some point of them by hand."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher(Memory(bytearray(PAGE)), CONFIG.prefetch_time, CONFIG.prefetch_records)
        self.child = Child.create(1, CONFIG)
        self.child.pid, self.child.status, self.child.peak_rss = 4711, 9, 80_000_000
        self.child.state = ChildState.READY
        self.child.queue.set_open(True)
        self.dispatcher.add(self.child.queue)
        shape = Layout(CONFIG.async_concurrency, CONFIG.ring_bytes)
        memory = Memory(self.child.segment.memory)
        self.tasks = Ring(memory, TASK_TAIL_AT, TASK_HEAD_AT, shape.task_ring_at, shape.ring_bytes)
        self.results = Ring(memory, RESULT_TAIL_AT, RESULT_HEAD_AT, shape.result_ring_at, shape.ring_bytes)
        self.slots = Slots(memory, shape.rows)

    def submit(self, *keys: str, is_async: bool = False) -> list[Submission]:
        tasks = [Submission(key, b"", is_async=is_async) for key in keys]
        self.dispatcher.submit(tasks)
        return tasks

    def begin(self, row: int = 0, *, enters: bool = True) -> int:
        taken = self.tasks.take()
        assert taken is not None
        self.slots.start(row, taken[0], 1, 0, enters=enters)
        return taken[0]

    def answer(self, data: bytes) -> None:
        seq = self.begin()
        self.slots.finish(0, seq)
        self.results.put(seq, data, kind=EventKind.RESULT, a=1000)

    def resolve_dead_child(self) -> dict[object, Event]:
        return {event.submission.key: event for event in resolve_dead_child(self.child, self.dispatcher)}


@pytest.fixture
def corpse() -> Iterator[Corpse]:
    made = Corpse()
    yield made
    made.child.close()


def test_what_a_dead_child_had_answered_counts(corpse: Corpse) -> None:
    corpse.submit("teaches that these are short")
    corpse.answer(b"")
    corpse.dispatcher.collect([])
    corpse.submit("answered", "running", "waiting")
    corpse.answer(b"its result")
    corpse.begin()
    events = corpse.resolve_dead_child()
    assert {key: event.kind for key, event in events.items()} == {
        "answered": EventKind.RESULT,
        "running": EventKind.CRASHED,
    }
    assert events["answered"].data == b"its result"
    assert events["running"].data == b"worker process 4711 died with signal SIGKILL, peak RSS 80 MB"
    assert events["running"].ran_ns > 0
    assert [task.key for task in corpse.dispatcher.close()] == ["waiting"]


def test_a_task_claimed_but_not_yet_in_its_row_is_charged(corpse: Corpse) -> None:
    corpse.submit("claimed")
    corpse.tasks.take()
    claimed = corpse.resolve_dead_child()["claimed"]
    assert (claimed.kind, claimed.ran_ns) == (EventKind.CRASHED, 0)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [(ROW_TIMED_OUT, EventKind.TIMEOUT), (ROW_CANCELED, EventKind.CANCELED), (ROW_ABORTED, EventKind.ABORTED)],
)
def test_a_child_that_dies_of_being_told_to_end_has_ended(corpse: Corpse, reason: int, kind: EventKind) -> None:
    corpse.submit("told")
    corpse.slots.interrupt(corpse.begin(), reason)
    assert corpse.resolve_dead_child()["told"].kind is kind


def test_a_child_killed_for_one_task_charges_that_one_only(corpse: Corpse) -> None:
    blamed, _, _ = corpse.submit("blamed", "deaf", "running", is_async=True)
    seqs = [corpse.begin(row) for row in range(3)]
    corpse.slots.interrupt(seqs[0], ROW_TIMED_OUT)
    corpse.slots.interrupt(seqs[1], ROW_TIMED_OUT)  # never heard of it: the first one held the loop up
    corpse.child.state, corpse.child.blamed = ChildState.KILLED, blamed
    found = {key: (event.kind, event.data) for key, event in corpse.resolve_dead_child().items()}
    again = EventKind.RERUN, ANOTHER_TASK
    assert found == {"blamed": (EventKind.TIMEOUT, b""), "deaf": again, "running": again}


def test_a_child_killed_for_none_of_its_tasks_charges_none(corpse: Corpse) -> None:
    corpse.submit("one", "two", is_async=True)
    corpse.begin(0)
    corpse.begin(1)
    corpse.child.state = ChildState.KILLED
    assert {(event.kind, event.data) for event in corpse.resolve_dead_child().values()} == {(EventKind.RERUN, b"")}


def test_a_child_that_dies_by_itself_charges_all_that_ran(corpse: Corpse) -> None:
    corpse.submit("one", "two", is_async=True)
    corpse.begin(0)
    corpse.begin(1)
    assert {event.kind for event in corpse.resolve_dead_child().values()} == {EventKind.CRASHED}


def test_results_that_cannot_be_read_are_judged_with_the_rest(corpse: Corpse) -> None:
    corpse.submit("running")
    corpse.begin()
    corpse.results.put(999, b"", kind=EventKind.DONE)
    assert corpse.resolve_dead_child()["running"].kind is EventKind.CRASHED


def test_a_result_written_for_a_task_that_has_ended_is_dropped(corpse: Corpse) -> None:
    corpse.submit("running")
    seq = corpse.begin()
    corpse.results.put(999, b"late", kind=EventKind.WRITTEN)
    corpse.results.put(seq, b"its own", kind=EventKind.WRITTEN)
    events: list[Event] = []
    assert corpse.dispatcher.collect(events) == []
    assert [(event.submission.key, event.data) for event in events] == [("running", b"its own")]


def test_the_task_that_blocked_the_loop_is_told_so(corpse: Corpse) -> None:
    (blocker,) = corpse.submit("blocker", is_async=True)
    corpse.begin(0)
    corpse.child.state, corpse.child.blamed = ChildState.KILLED, blocker
    corpse.child.text = ": the task blocked the event loop"
    event = corpse.resolve_dead_child()["blocker"]
    assert (event.kind, event.data.decode().rpartition(": ")[2]) == (
        EventKind.CRASHED,
        "the task blocked the event loop",
    )


@pytest.mark.parametrize("state", [ChildState.READY, ChildState.KILLED])
def test_a_coroutine_without_a_first_step_has_not_begun(corpse: Corpse, state: ChildState) -> None:
    blocker, _ = corpse.submit("blocker", "behind", is_async=True)
    corpse.begin(0)
    corpse.begin(1, enters=False)
    corpse.child.state = state
    corpse.child.blamed = blocker if state is ChildState.KILLED else None
    events = corpse.resolve_dead_child()
    assert {key: event.kind for key, event in events.items()} == {
        "blocker": EventKind.CRASHED,
        "behind": EventKind.RETURNED,
    }


def test_the_row_of_an_earlier_coroutine_says_nothing_of_the_next(corpse: Corpse) -> None:
    corpse.submit("first", "second", is_async=True)
    first = corpse.begin(1)
    corpse.slots.finish(1, first)
    corpse.results.put(first, b"", kind=EventKind.DONE, a=1000)
    corpse.begin(1, enters=False)
    events = corpse.resolve_dead_child()
    assert {key: event.kind for key, event in events.items()} == {"first": EventKind.DONE, "second": EventKind.RETURNED}

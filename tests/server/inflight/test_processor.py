"""The processor: held tasks become submissions, events become results; the pool behind it is real, but not started."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fastq.broker.operations.cancel import CancelAs, Cancellation
from fastq.broker.operations.finish import Archived, Done, Parked, Requeued, Retried
from fastq.broker.operations.lease import Leased, LeasedTask
from fastq.mux import Terms
from fastq.pool.main.pool import PoolConfig, ProcessPool
from fastq.pool.main.protocol import Event, Sort, Submission
from fastq.pool.shared.event_kind import TOO_LATE, EventKind
from fastq.server.base.config import ServerConfig
from fastq.server.base.timing import STANDARD
from fastq.server.inflight.cancellations import EarlyCancellations
from fastq.server.inflight.processor import Processor
from fastq.server.inflight.tasks import InFlightTask, count_ends
from fastq.wire import history
from fastq.wire.codec import decode_task_message
from fastq.worker.shared.description import AppDescription
from fastq.worker.shared.report import FailureReport
from fastq.worker.shared.requests import HANDLER_RUNNER
from tests.broker.harness import NOW_S, message, run
from tests.manual_clock import ManualClock
from tests.server.harness import in_flight_of


def part(**parts: object) -> Any:
    """Be a part that is told something."""
    return SimpleNamespace(**parts)


class Bench:
    """Be a processor, and note what it tells."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_S)
        self.in_flight = in_flight_of(self.clock)
        self.tasks = self.in_flight.tasks
        self.finished: list[InFlightTask] = []
        self.written: list[tuple[str, bytes]] = []
        self.checkpoints: list[tuple[str, bytes, int]] = []
        self.pool = ProcessPool(PoolConfig(runner=HANDLER_RUNNER, argument=""))
        self.early, self.lanes = EarlyCancellations(self.clock), set[str]()
        self.processor = Processor(
            self.pool,
            ServerConfig(),
            self.in_flight,
            delay_rule=lambda retried: 100.0,
            finish=self.finished.extend,
            results=part(write=lambda task, data: self.written.append((task.id, data))),
            checkpoints=part(save=lambda task, data, number: self.checkpoints.append((task.id, data, number))),
            progress=part(write=lambda task, data: None),
            attempts=part(record=lambda task, report, ran_ns: f"{report.error} after {ran_ns} ns".encode()),
            commands=part(lanes=self.lanes),
            early=self.early,
            unknown=part(),
            judge=None,
            make_room=lambda: None,
            failed=lambda error: None,
        )

    def accept(self, *task_ids: str, **fields: Any) -> None:
        self.processor.accept("q", Leased.of([LeasedTask(one, message(one, queue="q", **fields)) for one in task_ids]))
        if self.pool._tick is not None:  # with nobody to take them, tasks would go back before long
            self.pool._tick.cancel()

    def task(self, task_id: str) -> InFlightTask:
        task = self.tasks.get("q", task_id)
        assert task is not None
        return task

    def submission(self, task_id: str) -> Submission:
        submission = self.task(task_id).submission
        assert submission is not None
        return submission

    def tell(self, *events: tuple[str | Submission, EventKind, bytes]) -> None:
        """Report events, as the pool does."""
        told = [Event(kind, self.submission(of) if isinstance(of, str) else of, data) for of, kind, data in events]
        self.processor.on_events(told)

    def take_all(self) -> None:
        """Take what waits, as the children do; else the pool, which has none, returns it in its next turn."""
        self.pool.withdraw_all()
        if self.pool._tick is not None:
            self.pool._tick.cancel()

    def ended(self) -> list[tuple[str, str]]:
        return [(task.id, type(task.disposition).__name__) for task in self.finished]


def on_crew(test: Callable[[Bench], None]) -> None:
    async def running() -> None:
        bench = Bench()
        test(bench)
        await asyncio.sleep(0)
        if bench.pool._tick is not None:
            bench.pool._tick.cancel()

    run(running)


# In ---------------------------------------------------------------------------------------------------------------


def test_tasks_that_come_in_are_held_and_submitted_in_order() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", "b")
        assert bench.pool.pending == 2
        assert bench.processor.taken == 2
        assert [task.id for _, tasks in bench.tasks.by_queue() for task in tasks] == ["a", "b"]
        assert bench.submission("a").data == message("a", queue="q")
        assert bench.submission("a").key is bench.task("a")

    on_crew(test)


def test_what_comes_after_the_rest_was_given_back_goes_back_too() -> None:
    """A dequeue may be answered at the very end, when there is no child left to run what it brings."""

    def test(bench: Bench) -> None:
        bench.accept("a")
        assert [task.id for task in bench.processor.withdraw()] == ["a"]
        bench.accept("b", "c")
        assert bench.ended() == [("b", "Requeued"), ("c", "Requeued")]
        assert bench.pool.pending == 0

    on_crew(test)


def test_what_goes_back_replaces_an_end_in_doubt_of_the_same_id() -> None:
    # Else that end would be written for the task that has just come back.
    def test(bench: Bench) -> None:
        for task_id in ("a", "b"):
            bench.accept(task_id)
            bench.take_all()
            bench.tell((task_id, EventKind.DONE, b""))
        stale, other = bench.finished
        bench.finished.clear()
        bad = LeasedTask("b", b"\xff")
        bench.processor.accept("q", Leased.of([bad]))
        assert not other.in_flight
        bench.processor.withdraw()
        bench.accept("a", "a")
        assert not stale.in_flight
        assert bench.ended() == [("b", "Archived"), ("a", "Requeued")]
        assert bench.finished[1] is bench.task("a")

    on_crew(test)


def test_a_lease_counts_from_when_it_was_asked_for() -> None:
    def test(bench: Bench) -> None:
        bench.clock.advance(1)
        asked_s = bench.clock.monotonic_s()
        bench.accept("b")
        bench.clock.advance(7)
        batch = [LeasedTask(one, message(one, queue="q")) for one in ("a", "b")] + [LeasedTask("bad", b"\xff")]
        bench.processor.accept("q", Leased.of(batch), asked_s)
        bench.processor.withdraw()
        bench.processor.accept("q", Leased.of([LeasedTask("c", message("c", queue="q"))]), asked_s)
        until_s = asked_s + STANDARD.lease_s
        assert [bench.task(one).leased_until_s for one in ("a", "b", "bad", "c")] == [until_s] * 4

    on_crew(test)


def test_it_is_known_how_long_a_task_waited_that_came_back_before_its_return_was_answered() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a")
        since_ns = bench.clock.unix_ns() - 3 * 10**9
        again = Leased([b"a"], [message("a", queue="q")], 0, (since_ns, since_ns))
        bench.processor.accept("q", again)
        bench.take_all()
        assert bench.task("a").wait_s == pytest.approx(3)

    on_crew(test)


def test_an_id_that_comes_twice_in_a_batch_runs_once(caplog: pytest.LogCaptureFixture) -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", "b", "a", "c", "b")
        assert bench.pool.pending == 3
        assert [submission.key.id for submission in bench.pool.withdraw_all()] == ["a", "b", "c"]  # type: ignore[attr-defined]  # the processor's key

    on_crew(test)
    assert [record.getMessage() for record in caplog.records] == [
        "queue q: 2 ids were leased twice; each task runs once"
    ]


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("timeout", "deadline", "timeout_ns", "deadline_ns"),
    [
        (30, 0, 30 * SECOND, 0),
        (0, NOW_S, 0, NOW_S * SECOND),
        (30, NOW_S, 30 * SECOND, NOW_S * SECOND),
        (0, 0, 1800 * SECOND, 0),
        # What has passed: not run, as with asynq.
        (-1, 0, 0, SECOND),
        (-1, NOW_S, 0, SECOND),
        (0, -5, 0, SECOND),
        (30, -5, 30 * SECOND, SECOND),
        # Years that nanoseconds in 64 bits do not reach.
        (10**10, 0, 9 * 10**9 * SECOND, 0),
        (0, 10**10, 0, 9 * 10**9 * SECOND),
        (2**63 - 1, 2**63 - 1, 9 * 10**9 * SECOND, 9 * 10**9 * SECOND),
        (-(2**63), 0, 0, SECOND),
    ],
)
def test_time_limits_are_asynqs(timeout: int, deadline: int, timeout_ns: int, deadline_ns: int) -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", timeout=timeout, deadline=deadline)
        assert (bench.submission("a").timeout_ns, bench.submission("a").deadline_unix_ns) == (timeout_ns, deadline_ns)

    on_crew(test)


@pytest.mark.parametrize("data", [b"\xff", b"", message("other", queue="q")])
def test_a_message_that_cannot_be_read_is_archived_and_stops_no_other(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def test(bench: Bench) -> None:
        bench.processor.accept(
            "q", Leased.of([LeasedTask("bad", data), LeasedTask("good", message("good", queue="q"))])
        )
        (task,) = bench.finished
        assert isinstance(task.disposition, Archived)
        assert task.disposition.id == "bad"
        archived = decode_task_message(task.disposition.message)
        assert (archived.type, archived.id, archived.payload) == ("fastq:undecodable", "bad", data)
        assert bench.task("bad").ended, "its lease is kept until it is written"
        assert bench.pool.pending == 1

    on_crew(test)
    assert "task bad of queue q cannot be read" in caplog.text


def test_a_task_that_was_canceled_a_moment_ago_is_not_begun() -> None:
    def test(bench: Bench) -> None:
        bench.early.keep(Cancellation("a", "q", CancelAs.RETRY))
        bench.accept("a", "b")
        (task,) = bench.finished
        assert isinstance(task.disposition, Retried)
        assert decode_task_message(task.disposition.message).error_msg.startswith("TaskCanceled: the task was canceled")
        assert bench.pool.pending == 1

    on_crew(test)


def test_a_task_that_is_leased_to_us_anew_replaces_its_run_before() -> None:
    # Its lease was lost and we have not noticed yet: what comes of the first run is not ours to say.
    def test(bench: Bench) -> None:
        bench.accept("a")
        old = bench.submission("a")
        bench.accept("a")
        new = bench.submission("a")
        assert new is not old
        assert bench.pool.pending == 1, "the first one had not begun, and was withdrawn"
        bench.tell((old, EventKind.FAILED, FailureReport("boom").encode()))
        assert bench.finished == []
        bench.tell((new, EventKind.DONE, b""))
        assert bench.ended() == [("a", "Done")]
        assert bench.finished[0] is bench.task("a")

    on_crew(test)


# Out --------------------------------------------------------------------------------------------------------------


def test_events_become_results_in_one_batch() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", "b", "c", "d")
        bench.tell(
            ("a", EventKind.DONE, b""),
            ("b", EventKind.FAILED, FailureReport("boom").encode()),
            ("c", EventKind.WRITTEN, b"half"),
            ("c", EventKind.RESULT, b"all"),
            ("d", EventKind.RETURNED, b""),
        )
        assert bench.written == [("c", b"half")]
        assert bench.ended() == [("a", "Done"), ("c", "Done"), ("b", "Retried"), ("d", "Requeued")]
        assert all(task.ended for task in bench.finished)
        counts = bench.in_flight.stats.counts
        assert [counts[kind] for kind in (EventKind.DONE, EventKind.FAILED, EventKind.RETURNED)] == [2, 1, 1]

    on_crew(test)


def test_a_defect_that_one_outcome_meets_costs_no_other_task_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", "b", "c", "d")

        def fail(task: InFlightTask, *_: object) -> Archived:
            if task.id == "b":
                raise LookupError("a defect")
            return Archived(task.id, b"")

        monkeypatch.setattr("fastq.server.inflight.processor.disposition_of", fail)
        bench.tell(
            ("d", EventKind.DONE, b""),
            ("a", EventKind.FAILED, b""),
            ("b", EventKind.FAILED, b""),
            ("c", EventKind.FAILED, b""),
        )
        assert bench.ended() == [("d", "Done"), ("a", "Archived"), ("b", "Requeued"), ("c", "Archived")]
        assert "unexpected error: the outcome of task b of queue q is not saved" in caplog.text

    on_crew(test)


def test_what_was_rejected_is_written_though_the_pool_does_not_take_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def test(bench: Bench) -> None:
        def fail(batch: object) -> None:
            raise MemoryError

        monkeypatch.setattr(bench.pool, "submit", fail)
        bad, good = LeasedTask("bad", b"\xff"), LeasedTask("good", message("good", queue="q"))
        with pytest.raises(MemoryError):
            bench.processor.accept("q", Leased.of([bad, good]))
        assert bench.ended() == [("bad", "Archived")]
        assert bench.processor.tasks() == set(), "the other one is the custodian's to find"

    on_crew(test)


def test_a_bad_message_whose_child_died_does_not_take_the_others_along() -> None:
    def test(bench: Bench) -> None:
        bad = message("bad", queue="q", error_msg="boom").replace(b"boom", b"b\xff\xffm")
        bench.processor.accept("q", Leased.of([LeasedTask("bad", bad)]))
        bench.accept("good")
        bench.tell(("bad", EventKind.CRASHED, b"SIGSEGV"), ("good", EventKind.DONE, b""))
        assert sorted(bench.ended()) == [("bad", "Archived"), ("good", "Done")]

    on_crew(test)


def test_what_becomes_of_a_lost_task_is_not_told() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", "b")
        lost = bench.submission("a")
        bench.processor.lose(bench.task("a"))
        assert bench.tasks.get("q", "a") is None
        assert bench.pool.pending == 1
        bench.tell((lost, EventKind.DONE, b""))
        assert bench.finished == []

    on_crew(test)


def test_failures_that_no_child_reported_are_judged_by_the_hooks() -> None:
    async def running() -> None:
        bench = Bench()
        asked: list[tuple[str, EventKind, bytes]] = []

        async def judge(task: InFlightTask, kind: EventKind, data: bytes) -> FailureReport:
            asked.append((task.id, kind, data))
            return FailureReport("judged", False, 7.0)

        bench.processor._ask_hooks = judge
        bench.accept("a", "b", "lost")
        lost = bench.task("lost")
        bench.tell(
            ("a", EventKind.CRASHED, b"SIGSEGV"),
            ("b", EventKind.FAILED, FailureReport("said").encode()),
            ("lost", EventKind.TIMEOUT, b""),
        )
        assert bench.ended() == [("b", "Retried")], "its child has asked the hooks already"
        bench.processor.lose(lost)
        await bench.processor.questions.settle(5.0)
        assert asked == [("a", EventKind.CRASHED, b"SIGSEGV"), ("lost", EventKind.TIMEOUT, b"")]
        assert bench.ended() == [("b", "Retried"), ("a", "Retried")]
        write = bench.finished[1].disposition
        assert isinstance(write, Retried)
        assert (write.is_failure, write.retry_at_s) == (False, NOW_S + 7)
        if bench.pool._tick is not None:
            bench.pool._tick.cancel()

    run(running)


@pytest.mark.parametrize(
    ("kind", "data", "told"),
    [
        (EventKind.FAILED, FailureReport("E: a").encode(), "E: a"),
        (EventKind.SKIP_RETRY, FailureReport("E: b").encode(), "E: b"),
        (EventKind.TIMEOUT, b"", "TaskTimeout: the handler did not end in time and its process was killed"),
        (EventKind.CRASHED, b"SIGSEGV", "WorkerCrashedError: SIGSEGV"),
        (EventKind.FAILED, FailureReport("snoozed (not failed)", False, 1.0, is_snoozed=True).encode(), ""),
        (EventKind.INVALID, b"no message", ""),
    ],
)
def test_the_record_of_a_failed_attempt_goes_with_its_end(kind: EventKind, data: bytes, told: str) -> None:
    def test(bench: Bench) -> None:
        bench.accept("a")
        bench.processor.on_events([Event(kind, bench.submission("a"), data, 7000)])
        (task,) = bench.finished
        assert isinstance(task.disposition, Retried | Archived)
        assert task.disposition.attempt == (f"{told} after 7000 ns".encode() if told else b"")
        counted = EventKind.RETURNED if data and b"snoozed" in data else kind
        assert +bench.in_flight.stats.counts == {counted: 1}

    on_crew(test)


SNOOZED = FailureReport("snoozed (not failed)", False, 1.0, is_snoozed=True).encode()
EXCUSED = FailureReport("E: not a failure", False).encode()


@pytest.mark.parametrize(
    ("lane", "has_lanes", "expected"),
    [("acme", True, "Parked"), ("acme", False, "Retried"), ("", True, "Retried")],
)
def test_a_lane_rests_where_there_are_lanes(lane: str, has_lanes: bool, expected: str) -> None:
    def test(bench: Bench) -> None:
        if has_lanes:
            bench.lanes.add("q")
        bench.accept("a", retried=25, group_key=lane)
        report = FailureReport("snoozed (not failed)", False, 1.5, is_snoozed=True, rests_lane=True)
        bench.processor.on_events([Event(EventKind.FAILED, bench.submission("a"), report.encode(), 7000)])
        assert bench.ended() == [("a", expected)]
        (task,) = bench.finished
        if isinstance(task.disposition, Parked):
            assert task.disposition == Parked("a", 1_500_000)
        assert (task.failure, +bench.in_flight.stats.counts) == (0, {EventKind.RETURNED: 1})

    on_crew(test)


@pytest.mark.parametrize("kind", EventKind)
@pytest.mark.parametrize("data", [b"", SNOOZED, EXCUSED], ids=["plain", "snoozed", "excused"])
@pytest.mark.parametrize("canceled", [None, CancelAs.DELETE, CancelAs.ARCHIVE])
def test_a_task_is_done_or_failed_as_often_as_a_run_of_it_is_counted(
    kind: EventKind, data: bytes, canceled: CancelAs | None
) -> None:
    """Whatever came first: a checkpoint, whose number is no time, a child that died, a run that is not counted."""

    def test(bench: Bench) -> None:
        bench.accept("a", retry=5)
        task = bench.task("a")
        task.canceled = canceled
        for event_kind in (kind, EventKind.DONE):
            if not bench.finished:
                bench.take_all()
                bench.processor.on_events([Event(event_kind, bench.submission("a"), data, 7_000_000)])
        count_ends(bench.finished)
        assert task.tally is not None
        counts = task.tally.take() or [0] * history.COUNTERS
        done, failed, *_ = counts
        assert sum(counts[len(history.OUTCOMES) :][: history.BUCKETS]) == done + failed
        assert sum(task.tally.run_s.counts) == done + failed

    on_crew(test)


# Control ----------------------------------------------------------------------------------------------------------


def test_a_waiting_task_that_is_canceled_is_withdrawn_and_fails() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", "b")
        assert bench.processor.cancel(Cancellation("a"))
        assert bench.ended() == [("a", "Retried")]
        assert bench.pool.pending == 1
        assert bench.processor.cancel(Cancellation("a")), "it is held until that is written"
        assert bench.ended() == [("a", "Retried")]
        assert not bench.processor.cancel(Cancellation("nosuch"))

    on_crew(test)


def test_a_cancellation_of_a_task_on_its_way_back_to_its_queue_is_not_swallowed() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", "b")
        bench.tell(("a", EventKind.RETURNED, b""))
        assert bench.ended() == [("a", "Requeued")]
        assert not bench.processor.cancel(Cancellation("a")), "it is remembered for when the task comes again"
        submission = bench.submission("b")
        bench.task("b").canceled = CancelAs.RETRY  # told between the pool's answer and its delivery
        bench.tell((submission, EventKind.RETURNED, b""))
        assert bench.ended() == [("a", "Requeued"), ("b", "Retried")]

    on_crew(test)


def test_tasks_of_one_id_in_two_queues_are_canceled_both() -> None:
    def test(bench: Bench) -> None:
        for queue in ("q", "other"):
            bench.processor.accept(queue, Leased.of([LeasedTask("a", message("a", queue=queue))]))
        assert bench.processor.cancel(Cancellation("a"))
        assert [task.queue for task in bench.finished] == ["q", "other"]

    on_crew(test)


def test_a_cancellation_that_names_its_queue_leaves_the_namesakes_of_other_queues_alone() -> None:
    def test(bench: Bench) -> None:
        for queue in ("q", "other"):
            bench.processor.accept(queue, Leased.of([LeasedTask("a", message("a", queue=queue))]))
        assert bench.processor.cancel(Cancellation("a", "other", CancelAs.DELETE))
        assert not bench.processor.cancel(Cancellation("a", "third", CancelAs.DELETE))
        assert [(task.queue, type(task.disposition)) for task in bench.finished] == [("other", Done)]

    on_crew(test)


@pytest.mark.parametrize(("outcome", "write"), [("retry", "Retried"), ("archive", "Archived"), ("delete", "Done")])
def test_a_waiting_task_ends_as_its_cancellation_says(outcome: str, write: str) -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", retry=3)
        assert bench.processor.cancel(Cancellation("a", "q", CancelAs(outcome)))
        bench.early.keep(Cancellation("to-come", "q", CancelAs(outcome)))
        bench.accept("to-come", retry=3)
        assert bench.ended() == [("a", write), ("to-come", write)]

    on_crew(test)


@pytest.mark.parametrize(
    ("heard", "write"),
    [
        ([None], "Retried"),
        ([CancelAs.ARCHIVE], "Archived"),
        ([CancelAs.DELETE], "Done"),
        ([CancelAs.DELETE, None], "Done"),
        ([None, CancelAs.DELETE], "Done"),
        ([CancelAs.DELETE, CancelAs.ARCHIVE], "Archived"),
        ([CancelAs.ARCHIVE, CancelAs.RETRY], "Retried"),
    ],
)
def test_the_last_outcome_that_was_named_counts_and_a_bare_id_names_none(
    heard: list[CancelAs | None], write: str
) -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", retry=3)
        running = Submission(bench.task("a"), b"", "t")
        for outcome in heard:
            bench.task("a").submission = running  # not known to the pool: nothing to withdraw
            assert bench.processor.cancel(Cancellation("a", None, outcome))
        bench.tell((running, EventKind.CANCELED, FailureReport("told").encode()))
        assert bench.ended() == [("a", write)]

    on_crew(test)


def test_a_canceled_coroutine_whose_child_was_killed_for_another_is_not_run_again() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", "b")
        told, other = bench.submission("a"), bench.submission("b")
        bench.task("a").canceled = CancelAs.RETRY
        bench.tell((told, EventKind.RERUN, b""), (other, EventKind.RERUN, b""))
        assert bench.ended() == [("a", "Retried")]
        (task,) = bench.finished
        assert isinstance(task.disposition, Retried)
        assert decode_task_message(task.disposition.message).error_msg.startswith(
            "TaskCanceled: the handler did not end"
        )

    on_crew(test)


def test_what_has_not_begun_is_given_back_in_order_and_what_was_lost_is_not() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", "b", "c")
        bench.tasks.drop(bench.task("b"))
        returned = bench.processor.withdraw()
        assert [(task.id, task.disposition) for task in returned] == [("a", Requeued("a")), ("c", Requeued("c"))]
        assert all(task.ended for task in returned)
        assert bench.pool.pending == 0

    on_crew(test)


def test_only_rows_for_coroutines_count_for_tasks_that_are_coroutines() -> None:
    def test(bench: Bench) -> None:
        bench.processor.on_description(AppDescription({"wait": Sort.ASYNC, "task": Sort.PLAIN}).encode())
        waiting, plain = message("a", type="wait"), message("b", type="task")
        assert bench.processor.are_coroutines([waiting, waiting])
        assert not bench.processor.are_coroutines([waiting, plain])
        assert not bench.processor.are_coroutines([message("c", type="unknown")])
        assert not bench.processor.are_coroutines([b"unreadable"])
        assert bench.processor.idle(only_async=True) == 0, "there is no child"

    on_crew(test)


def test_a_done_task_takes_its_lock_along() -> None:
    def test(bench: Bench) -> None:
        bench.accept("a", unique_key="lock")
        bench.tell(("a", EventKind.DONE, b""))
        assert bench.finished[0].disposition == Done("a", "lock")

    on_crew(test)


DEATHS = [(EventKind.CRASHED, b"died"), (EventKind.BROKEN, b"trace"), (EventKind.TIMEOUT, b"")]


@pytest.mark.parametrize(("kind", "data"), [*DEATHS, (EventKind.MEMORY_LIMIT, b"")])
@pytest.mark.parametrize(("ends", "written"), [(True, "Archived"), (False, "Retried")])
def test_the_terms_of_a_handler_say_whether_a_death_ends_its_task(
    kind: EventKind, data: bytes, ends: bool, written: str
) -> None:
    def test(bench: Bench) -> None:
        terms = {"task": Terms(ends_with_process=ends)}
        bench.processor.on_description(AppDescription({"task": Sort.PLAIN}, terms=terms).encode())
        bench.accept("a", type="task", retry=3)
        bench.take_all()
        bench.tell(("a", kind, data))
        assert bench.ended() == [("a", written)]

    on_crew(test)


@pytest.mark.parametrize(("may_be_late", "written"), [(True, "Done"), (False, "Retried")])
@pytest.mark.parametrize("kind", [EventKind.TIMEOUT, EventKind.MEMORY_LIMIT])
def test_the_terms_of_a_handler_say_whether_a_late_return_is_a_success(
    kind: EventKind, may_be_late: bool, written: str
) -> None:
    def test(bench: Bench) -> None:
        terms = {"task": Terms(may_be_late=may_be_late)}
        bench.processor.on_description(AppDescription({"task": Sort.PLAIN}, terms=terms).encode())
        bench.accept("a", type="task", retry=3)
        bench.take_all()
        bench.tell(("a", kind, TOO_LATE))
        assert bench.ended() == [("a", written)]

    on_crew(test)

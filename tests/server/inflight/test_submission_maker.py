"""The submission maker: usual tasks are taken in flight with submissions, usual ends noted; the rest is handed back."""

import pytest

from fastq.broker.operations.cancel import CancelAs
from fastq.broker.operations.finish import Archived, Completed, Disposition, Done, Parked, Requeued, Retried
from fastq.pool.main.protocol import Event, EventKind, Sort
from fastq.server.inflight._processor import SubmissionMaker, split_done
from fastq.server.inflight.processor import Known
from fastq.server.inflight.tally import Tally
from fastq.server.inflight.tasks import InFlightTask, InFlightTasks, count_ends, count_waits
from fastq.wire.codec import view_task_message
from fastq.wire.history import OUTCOMES
from tests.broker.harness import NOW_S, message


@pytest.fixture
def in_flight() -> InFlightTasks:
    return InFlightTasks()


def looked_up(queue: str, task_type: str, coroutines: tuple[str, ...] = ()) -> Known:
    return Sort.ASYNC if task_type in coroutines else Sort.PLAIN, Tally(queue, task_type), None, None


def maker(in_flight: InFlightTasks, *coroutines: str) -> SubmissionMaker:
    return SubmissionMaker(in_flight, lambda queue, task_type: looked_up(queue, task_type, coroutines))


def take(in_flight: InFlightTasks, *task_ids: str) -> tuple[list[InFlightTask], list[int]]:
    messages = [message(task_id, queue="q") for task_id in task_ids]
    return maker(in_flight).take("q", [task_id.encode() for task_id in task_ids], messages, 1.0)


def one_task(in_flight: InFlightTasks, **fields: object) -> InFlightTask:
    (task,), _ = maker(in_flight).take("q", [b"a"], [message("a", queue="q", **fields)], 1.0)
    return task


def end(task: InFlightTask, kind: EventKind = EventKind.DONE, data: bytes = b"", ran_ns: int = 0) -> Event:
    assert task.submission is not None
    return Event(kind, task.submission, data, ran_ns)


def test_tasks_are_in_flight_in_order_with_their_submissions(in_flight: InFlightTasks) -> None:
    tasks, odd = take(in_flight, "a", "é", "b")
    assert odd == []
    assert in_flight.by_queue() == [("q", tasks)]
    assert [task.id for task in tasks] == ["a", "é", "b"]
    assert [task.leased_until_s for task in tasks] == [31.0] * 3
    assert all(task.submission is not None and task.submission.key is task for task in tasks)


def test_what_needs_a_closer_look_is_named_by_its_place_and_not_taken(in_flight: InFlightTasks) -> None:
    in_flight.add("q", view_task_message(message("here", queue="q")), 0.0)
    ids = [b"good", b"broken", b"other", b"here", b"good", b"\xff"]
    messages = [message(one, queue="q") for one in ("good", "broken", "not-other", "here", "good", "bytes")]
    messages[1] = b"\x08"
    tasks, odd = maker(in_flight).take("q", ids, messages, 0.0)
    assert ([task.id for task in tasks], odd) == (["good"], [1, 2, 3, 4, 5])
    assert len(in_flight) == 2


@pytest.mark.parametrize(("sort", "bits"), [(Sort.PLAIN, "00"), (Sort.ASYNC, "10"), (Sort.THREADED, "11")])
def test_a_submission_says_how_its_task_runs(in_flight: InFlightTasks, sort: Sort, bits: str) -> None:
    making = SubmissionMaker(in_flight, lambda queue, task_type: (sort, Tally(queue, task_type), None, None))
    (task,), _ = making.take("q", [b"a"], [message("a", queue="q")], 1.0)
    assert task.submission is not None
    assert f"{task.submission.is_async:d}{task.submission.is_threaded:d}" == bits


@pytest.mark.parametrize(("said", "limit_s"), [({"timeout": 1800}, 3), ({"timeout": 9}, 9), ({}, 3)])
def test_the_limit_of_a_handler_holds_for_tasks_that_say_nothing_else(
    in_flight: InFlightTasks, said: dict[str, int], limit_s: int
) -> None:
    making = SubmissionMaker(in_flight, lambda queue, task_type: (Sort.PLAIN, Tally(queue, task_type), 3, None))
    fields = {"timeout": 0, "deadline": 0, **said}
    (task,), _ = making.take("q", [b"a"], [message("a", queue="q", **fields)], 1.0)
    assert task.submission is not None
    assert task.submission.timeout_ns == limit_s * 10**9


def test_the_handler_of_a_type_is_looked_up_once_for_each_queue(in_flight: InFlightTasks) -> None:
    asked: list[tuple[str, str]] = []

    def look_up(queue: str, task_type: str) -> Known:
        asked.append((queue, task_type))
        return looked_up(queue, task_type, ("async",))

    taking = SubmissionMaker(in_flight, look_up)
    for queue in ("q", "other", "q"):
        for task_id, task_type in (("a", "async"), ("b", "plain"), ("c", "async")):
            one = f"{task_id}{len(in_flight)}"
            (task,), _ = taking.take(queue, [one.encode()], [message(one, queue=queue, type=task_type)], 0.0)
            assert task.submission is not None
            assert task.tally is not None
            assert task.submission.is_async is (task_type == "async")
            assert (task.tally.queue, task.tally.type) == (queue, task_type)
    assert asked == [("q", "async"), ("q", "plain"), ("other", "async"), ("other", "plain")]


def test_what_the_question_raises_is_raised(in_flight: InFlightTasks) -> None:
    def look_up(queue: str, task_type: str) -> Known:
        raise LookupError(task_type)

    with pytest.raises(LookupError):
        SubmissionMaker(in_flight, look_up).take("q", [b"a"], [message("a", queue="q")], 0.0)


def test_a_handler_that_returned_ends_its_task(in_flight: InFlightTasks) -> None:
    task = one_task(in_flight, unique_key="lock")
    assert split_done([end(task)], NOW_S) == ([task], [])
    assert isinstance(task.disposition, Done)
    assert task.disposition == Done("a", "lock")
    assert task.ended


@pytest.mark.parametrize("kind", [kind for kind in EventKind if kind > EventKind.RESULT])
def test_every_other_event_is_the_processors(kind: EventKind, in_flight: InFlightTasks) -> None:
    task = one_task(in_flight)
    event = end(task, kind)
    assert split_done([event], NOW_S) == ([], [event])
    assert not task.ended


@pytest.mark.parametrize(
    ("kind", "written", "result"),
    [
        (EventKind.DONE, None, None),
        (EventKind.DONE, b"written", b"written"),
        (EventKind.RESULT, b"written", b"returned"),
        (EventKind.RESULT, b"written", b""),
    ],
)
def test_a_task_that_is_kept_is_completed_with_its_last_result(
    kind: EventKind, written: bytes | None, result: bytes | None, in_flight: InFlightTasks
) -> None:
    task = one_task(in_flight, retention=60, unique_key="lock")
    task.written = written
    event = end(task, kind, result if kind is EventKind.RESULT and result else b"")
    assert split_done([event], NOW_S) == ([task], [])
    new = message("a", queue="q", retention=60, unique_key="lock", completed_at=NOW_S)
    assert isinstance(task.disposition, Completed)
    assert task.disposition == Completed("a", new, NOW_S + 60, "lock", result)


def test_what_a_task_wrote_in_the_batch_of_its_end_is_kept(in_flight: InFlightTasks) -> None:
    task = one_task(in_flight, retention=60)
    events = [end(task, EventKind.WRITTEN, b"early"), end(task, EventKind.WRITTEN, b"late"), end(task)]
    assert split_done(events, NOW_S) == ([task], events[:2])
    assert isinstance(task.disposition, Completed)
    assert task.disposition.result == b"late"


def test_a_task_that_was_done_in_spite_of_its_cancellation_is_done(in_flight: InFlightTasks) -> None:
    task = one_task(in_flight)
    task.canceled = CancelAs.DELETE
    assert split_done([end(task)], NOW_S) == ([task], [])


def test_a_task_whose_end_meets_a_defect_costs_no_other_its_own(in_flight: InFlightTasks) -> None:
    odd, (other,) = one_task(in_flight, retention=60), take(in_flight, "b")[0]
    event = end(odd)
    assert split_done([event, end(other)], 2**70) == ([other], [event])
    assert not odd.ended


def test_a_task_that_was_let_go_of_is_in_neither(in_flight: InFlightTasks) -> None:
    task = one_task(in_flight)
    events = [end(task), end(task, EventKind.FAILED)]
    in_flight.drop(task)
    assert task.submission is None, "the two must not keep each other alive"
    assert split_done(events, NOW_S) == ([], [])


def test_run_times_of_what_is_done_are_counted_here_and_of_the_rest_where_it_ends(in_flight: InFlightTasks) -> None:
    tasks, _ = take(in_flight, "a", "b", "c", "d")
    ran = [end(tasks[0], ran_ns=2_000_000), end(tasks[1], EventKind.FAILED, ran_ns=7_000_000_000)]
    split_done([*ran, end(tasks[2], EventKind.RETURNED), end(tasks[3], EventKind.WRITTEN)], NOW_S)
    tallies = {task.tally for task in tasks}
    assert len(tallies) == 1
    (tally,) = tallies
    assert tally is not None
    found = {bound: count for bound, count in zip(tally.run_s.bounds, tally.run_s.counts, strict=False) if count}
    assert found == {0.0025: 1}
    assert tally.run_s.sum == pytest.approx(0.002)


def test_each_written_end_is_counted_with_its_cause(in_flight: InFlightTasks) -> None:
    tasks, _ = take(in_flight, *"abcdefghij")
    ends: list[tuple[Disposition, int]] = [
        (Done("a", ""), 0),
        (Done("b", ""), EventKind.REVOKED),
        (Completed("c", b"", 1, "", None), 0),
        (Retried("d", b"", 1, is_failure=True), EventKind.FAILED),
        (Retried("e", b"", 1, is_failure=False), EventKind.NOT_FOUND),
        (Archived("f", b""), EventKind.TIMEOUT),
        (Requeued("g"), EventKind.RETURNED),
        (Retried("i", b"", 1, is_failure=False), 0),  # snoozed
        (Parked("j", 1), 0),
        (Done("h", ""), 0),
    ]
    for task, (disposition, failure) in zip(tasks, ends, strict=True):
        task.disposition, task.failure = disposition, failure
    in_flight.drop(tasks[-1])  # it was taken again under its id, before the reply to its end was read
    count_ends(tasks)
    tally = tasks[0].tally
    assert tally is not None
    once = dict.fromkeys(("completed", "archived", "requeued", "deleted", "snoozed", "rate_limited"), 1)
    assert tally.outcomes == {"done": 2, "retried": 2, **once}
    assert dict(zip(tally.attempts.bounds, tally.attempts.counts, strict=False))[1.0] == tally.attempts.sum == 5
    assert tally.failures == dict.fromkeys(
        (EventKind.REVOKED, EventKind.FAILED, EventKind.TIMEOUT, EventKind.NOT_FOUND), 1
    )
    counts = tally.take()
    assert counts is not None
    # As Redis counts them: what was retried without being a failure was not processed, either.
    assert dict(zip(OUTCOMES, counts, strict=False)) == {"done": 4, "failed": 2, "retried": 2, "archived": 1, "lost": 0}


def test_waits_are_spread_evenly_between_the_first_and_the_last_of_a_batch(in_flight: InFlightTasks) -> None:
    now_ns = 10_000_000_000
    for first_s, last_s, waits in (
        (1.0, 9.0, {1.0: 1, 5.0: 1, 10.0: 1}),  # 9, 5 and 1 s
        (8.0, 8.0, {2.5: 3}),
        (9.0, 12.0, {0.001: 2, 1.0: 1}),  # the clock of the producer is fast: 1, -0.5 and -2 s
        (0.0, 9.0, {}),  # not known
    ):
        tasks, _ = take(in_flight, "a", "b", "c")
        count_waits(tasks, int(first_s * 1e9), int(last_s * 1e9), now_ns)
        (tally,) = {task.tally for task in tasks}
        assert tally is not None
        found = {bound: count for bound, count in zip(tally.wait_s.bounds, tally.wait_s.counts, strict=False) if count}
        assert found == waits
        in_flight.drop_all(tasks)


def test_a_task_that_never_got_to_the_pool_is_not_counted(in_flight: InFlightTasks) -> None:
    task = in_flight.add("q", view_task_message(message("a", queue="q")), 0.0)
    task.disposition = Requeued("a")
    count_ends([task])
    assert task.tally is None

"""From what the pool says to what Redis sees: the rules of a task's end."""

from typing import Any

import pytest

from fastq.broker.operations.cancel import CancelAs
from fastq.broker.operations.finish import Archived, Completed, Disposition, Done, Requeued, Retried
from fastq.pool.shared.event_kind import NO_FAILURES, NOT_BEGUN, TOO_LATE, EventKind
from fastq.server.inflight.dispositions import (
    _DECIDED,
    canceled_of,
    disposition_of,
    failure_of,
    has_report,
    overrides,
    passed_on,
    report_of,
    undecodable,
)
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire.codec import TaskMessage, decode_task_message, encode_task_message, view_task_message
from fastq.worker.shared.report import FailureReport

NOW_S = 4_000_000_000
FIELDS: dict[str, Any] = {
    "type": "t",
    "payload": b"\x00p",
    "id": "a",
    "queue": "q",
    "retry": 5,
    "retried": 2,
    "error_msg": "before",
    "last_failed_at": 7,
    "timeout": 30,
    "unique_key": "lock",
    "group_key": "g",
    "headers": {"k": "v"},
}
FAILURES = [
    EventKind.FAILED,
    EventKind.NOT_FOUND,
    EventKind.TIMEOUT,
    EventKind.CANCELED,
    EventKind.CRASHED,
    EventKind.BROKEN,
]


def in_flight(data: bytes | None = None, **fields: Any) -> InFlightTask:
    encoded = encode_task_message(TaskMessage(**(FIELDS | fields))) if data is None else data
    return InFlightTask("q", view_task_message(encoded), 30.0, 0)


def outcome(kind: EventKind, data: bytes = b"", task: InFlightTask | None = None, **fields: Any) -> Disposition:
    return disposition_of(task or in_flight(**fields), kind, data, NOW_S, lambda retried: 100.0 + retried)


def rewritten(write: Disposition) -> TaskMessage:
    assert isinstance(write, Completed | Retried | Archived)
    return decode_task_message(write.message)


def changed(**changes: Any) -> TaskMessage:
    return TaskMessage(**(FIELDS | changes))


# Success ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", [0, -3600])
@pytest.mark.parametrize("kind", [EventKind.DONE, EventKind.RESULT])
def test_without_retention_a_task_is_deleted_with_its_lock(kind: EventKind, retention: int) -> None:
    assert outcome(kind, b"result", retention=retention) == Done("a", "lock")


@pytest.mark.parametrize(("kind", "result"), [(EventKind.DONE, None), (EventKind.RESULT, b"r")])
def test_with_retention_it_is_kept_with_its_result(kind: EventKind, result: bytes | None) -> None:
    write = outcome(kind, b"r" if result else b"", retention=60)
    assert isinstance(write, Completed)
    assert (write.id, write.kept_until_s, write.lock, write.result) == ("a", NOW_S + 60, "lock", result)
    assert rewritten(write) == changed(retention=60, completed_at=NOW_S)


def test_an_empty_result_is_a_result() -> None:
    write = outcome(EventKind.RESULT, b"", retention=60)
    assert isinstance(write, Completed)
    assert write.result == b""


def test_each_end_that_a_handler_decides_without_a_failure_has_its_disposition() -> None:
    assert set(_DECIDED) == set(NO_FAILURES.values())


def test_a_revoked_task_is_deleted_even_with_retention() -> None:
    assert outcome(EventKind.REVOKED, FailureReport("RevokeTask").encode(), retention=60) == Done("a", "lock")
    assert outcome(EventKind.REVOKED, retry=0) == Done("a", "lock")


@pytest.mark.parametrize("kind", [EventKind.ABORTED, EventKind.RERUN, EventKind.RETURNED])
def test_what_did_not_run_to_its_end_goes_back_free_of_charge(kind: EventKind) -> None:
    assert outcome(kind) == Requeued("a")
    assert outcome(kind, retry=0, retention=60) == Requeued("a")


# Failure ----------------------------------------------------------------------------------------------------------


def said(kind: EventKind, text: str) -> bytes:
    """Make what comes with an event of a kind that says a text."""
    return text.encode() if kind in (EventKind.CRASHED, EventKind.BROKEN) else FailureReport(text).encode()


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failed_task_with_retries_left_waits_for_the_next(kind: EventKind) -> None:
    write = outcome(kind, said(kind, "boom"))
    assert isinstance(write, Retried)
    assert (write.id, write.retry_at_s, write.is_failure) == ("a", NOW_S + 102, True)
    text = "WorkerCrashedError: boom" if kind in (EventKind.CRASHED, EventKind.BROKEN) else "boom"
    assert rewritten(write) == changed(retried=3, error_msg=text, last_failed_at=NOW_S)


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize(("retry", "retried"), [(5, 5), (5, 9), (0, 0), (-1, 0)])
def test_a_failed_task_without_retries_left_is_archived(kind: EventKind, retry: int, retried: int) -> None:
    write = outcome(kind, said(kind, "boom"), retry=retry, retried=retried)
    assert isinstance(write, Archived)
    assert rewritten(write).retried == retried, "the last attempt is not a retry"
    assert rewritten(write).error_msg.endswith("boom")


def test_a_task_that_skips_its_retries_is_archived() -> None:
    write = outcome(EventKind.SKIP_RETRY, FailureReport("SkipRetry: no use").encode())
    assert isinstance(write, Archived)
    assert rewritten(write) == changed(error_msg="SkipRetry: no use", last_failed_at=NOW_S)


@pytest.mark.parametrize(("max_retry", "kind"), [(None, Archived), (1, Archived), (9, Retried)])
def test_the_retries_of_the_handler_go_before_those_of_the_message(max_retry: int | None, kind: type) -> None:
    report = FailureReport("ValueError: no", max_retry=max_retry)
    write = outcome(EventKind.FAILED, report.encode(), retry=5, retried=5)
    assert isinstance(write, kind)
    assert rewritten(write).retry == (max_retry or 5)


@pytest.mark.parametrize("kind", [EventKind.FAILED, EventKind.TIMEOUT, EventKind.CRASHED])
def test_what_the_report_calls_final_is_not_retried(kind: EventKind) -> None:
    report = FailureReport("TaskTimeout: late", final="the task says so")
    write = failure_of(in_flight(), kind, report, NOW_S, lambda retried: 0.0)
    assert isinstance(write, Archived)


def test_what_is_no_failure_is_not_counted_but_waits_too() -> None:
    write = outcome(EventKind.FAILED, FailureReport("not now", is_failure=False).encode())
    assert isinstance(write, Retried)
    assert not write.is_failure
    assert rewritten(write) == changed(retried=2, error_msg="not now", last_failed_at=NOW_S)


def test_a_task_that_is_exhausted_is_archived_whatever_the_hook_says() -> None:
    assert isinstance(outcome(EventKind.FAILED, FailureReport("e", is_failure=False).encode(), retried=5), Archived)


@pytest.mark.parametrize(("delay", "score"), [(0.0, NOW_S), (0.9, NOW_S), (60.5, NOW_S + 60), (1e9, NOW_S + 10**9)])
def test_the_apps_own_delay_goes_before_the_default(delay: float, score: int) -> None:
    write = outcome(EventKind.FAILED, FailureReport("e", retry_in_s=delay).encode())
    assert isinstance(write, Retried)
    assert write.retry_at_s == score


def test_a_task_that_was_once_completed_fails_like_any_other() -> None:
    # The Inspector's RunTask puts a completed task back with its completed_at.
    assert rewritten(outcome(EventKind.FAILED, said(EventKind.FAILED, "e"), completed_at=9)).completed_at == 9


def test_fields_of_newer_peers_survive() -> None:
    unknown = b"\xa2\x06\x03new"
    data = encode_task_message(TaskMessage(**FIELDS)) + unknown
    for kind in (EventKind.FAILED, EventKind.SKIP_RETRY):
        write = outcome(kind, said(kind, "e"), task=in_flight(data))
        assert isinstance(write, Retried | Archived)
        assert unknown in write.message


# What the child said, or did not ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (EventKind.TIMEOUT, "TaskTimeout: the handler did not end in time and its process was killed"),
        (EventKind.CANCELED, "TaskCanceled: the handler did not end when it was canceled and its process was killed"),
        (EventKind.MEMORY_LIMIT, "TaskCanceled: its process had grown above memory_limit"),
    ],
)
def test_a_child_that_was_killed_said_nothing_so_the_server_does(kind: EventKind, text: str) -> None:
    assert report_of(kind, b"") == FailureReport(text)
    assert not has_report(kind, b"")
    assert has_report(kind, FailureReport("e").encode())


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (EventKind.TIMEOUT, "TaskTimeout: the handler returned after its time was up"),
        (EventKind.CANCELED, "TaskCanceled: the handler returned after it was canceled"),
        (EventKind.MEMORY_LIMIT, "TaskCanceled: the handler returned after its process had grown above memory_limit"),
    ],
)
def test_a_handler_that_returned_too_late_was_not_killed(kind: EventKind, text: str) -> None:
    assert report_of(kind, TOO_LATE).error == text
    assert not has_report(kind, TOO_LATE), "its hooks were not asked"


def test_a_child_that_died_is_described_by_the_pool() -> None:
    text = b"worker process 7 died with signal SIGSEGV, peak RSS 9 MB"
    assert report_of(EventKind.CRASHED, text).error == f"WorkerCrashedError: {text.decode()}"
    assert report_of(EventKind.BROKEN, b"\xff\n").error == "WorkerCrashedError: \N{REPLACEMENT CHARACTER}"
    assert not has_report(EventKind.CRASHED, text)


@pytest.mark.parametrize("data", [b"", b"not json", b"[1]", b"{}", b"5", b"\xff"])
def test_what_is_no_report_is_shown_as_it_is(data: bytes) -> None:
    assert report_of(EventKind.FAILED, data).error == f"FAILED: {data!r}"


def test_text_that_is_not_unicode_is_made_so_before_it_is_written() -> None:
    write = failure_of(in_flight(), EventKind.FAILED, FailureReport("bad \udcff"), NOW_S, lambda _: 1.0)
    assert rewritten(write).error_msg == "bad \N{REPLACEMENT CHARACTER}"


# What cannot be read ----------------------------------------------------------------------------------------------


def test_what_the_child_cannot_read_is_archived_as_a_valid_message_of_ours() -> None:
    task = in_flight()
    write = outcome(EventKind.INVALID, b"headers contains invalid UTF-8", task=task)
    assert isinstance(write, Archived)
    assert rewritten(write) == TaskMessage(
        type="fastq:undecodable",
        payload=task.view.data,
        id="a",
        queue="q",
        error_msg="InvalidMessageError: headers contains invalid UTF-8",
        last_failed_at=NOW_S,
    )


@pytest.mark.parametrize("kind", [*FAILURES, EventKind.SKIP_RETRY])
@pytest.mark.parametrize("retry", [0, 5])
def test_a_task_that_no_child_looked_into_may_turn_out_to_be_no_message(kind: EventKind, retry: int) -> None:
    # The view does not look at error_msg; rewriting does.
    data = encode_task_message(TaskMessage(**(FIELDS | {"retry": retry}))).replace(b"before", b"b\xff\xffore")
    write = outcome(kind, said(kind, "boom"), task=in_flight(data))
    assert isinstance(write, Archived)
    assert rewritten(write).type == "fastq:undecodable"
    assert rewritten(write).payload == data


@pytest.mark.parametrize("data", [b"", b"\x00\xff", bytes(1_000_000)])
def test_anything_can_be_archived_so_that_go_can_read_it(data: bytes) -> None:
    message = decode_task_message(undecodable("id-\udcff", "q", data, "why \udcff", NOW_S))
    assert message.payload == data
    assert message.id == "id-\N{REPLACEMENT CHARACTER}"
    assert message.error_msg == "InvalidMessageError: why \N{REPLACEMENT CHARACTER}"
    assert (message.retry, message.queue, message.timeout) == (0, "q", 0)


def test_a_result_written_mid_run_goes_with_the_completion_unless_the_handler_returned_another() -> None:
    task = in_flight(retention=60)
    task.written = b"written"
    for kind, data, result in ((EventKind.DONE, b"", b"written"), (EventKind.RESULT, b"returned", b"returned")):
        write = outcome(kind, data, task)
        assert isinstance(write, Completed)
        assert write.result == result


# Canceled with an outcome ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EventKind)
def test_an_outcome_that_was_asked_for_stands_unless_the_task_was_done(kind: EventKind) -> None:
    task = in_flight()
    for canceled in (None, CancelAs.RETRY):
        task.canceled = canceled
        assert not overrides(task, kind)
    task.canceled = CancelAs.DELETE
    assert overrides(task, kind) is (kind not in (EventKind.DONE, EventKind.RESULT))
    task.canceled = CancelAs.ARCHIVE
    # What cannot be read is archived anyway, in a form that can.
    assert overrides(task, kind) is (kind not in (EventKind.DONE, EventKind.RESULT, EventKind.INVALID))


def test_a_task_canceled_to_be_deleted_goes_with_its_lock() -> None:
    task = in_flight(retention=60)
    task.canceled = CancelAs.DELETE
    assert canceled_of(task, FailureReport("E: x"), NOW_S) == Done("a", "lock")


def test_a_task_canceled_to_be_archived_is_whatever_the_hooks_say() -> None:
    task = in_flight()
    task.canceled = CancelAs.ARCHIVE
    write = canceled_of(task, FailureReport("E: x", is_failure=False, retry_in_s=7.0), NOW_S)
    assert isinstance(write, Archived)
    assert rewritten(write) == changed(error_msg="E: x", last_failed_at=NOW_S)


def test_a_task_canceled_while_its_server_shuts_down_says_so() -> None:
    assert report_of(EventKind.ABORTED, b"").error == "TaskCanceled: the task was canceled while its server shut down"


def test_a_task_whose_time_was_up_before_it_began_is_not_said_to_have_been_killed() -> None:
    text = "TaskTimeout: the task's time was up before it could begin; its handler was not called"
    assert report_of(EventKind.TIMEOUT, NOT_BEGUN).error == text
    assert not has_report(EventKind.TIMEOUT, NOT_BEGUN)


# Given back -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retried", [2, 5])
def test_what_is_given_back_waits_with_no_attempt_charged(retried: int) -> None:
    """Also where none is left: none was made."""
    write = passed_on(in_flight(retried=retried), FailureReport("no handler").encode(), NOW_S, 7)
    assert isinstance(write, Retried)
    assert (write.id, write.retry_at_s, write.is_failure) == ("a", NOW_S + 7, False)
    assert rewritten(write) == changed(retried=retried, error_msg="no handler", last_failed_at=NOW_S)

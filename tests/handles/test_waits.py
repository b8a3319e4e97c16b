"""What both kinds of clients wait with: what a look and a message know, one before the other, and how waits end."""

import pytest

from fastq.errors import BrokerConnectionError
from fastq.handles.waits import Failures, Waits, closed
from fastq.wire.inbox import EndKind, TaskEnd, encode_ends

A = ("default", "a", "s1")
B = ("default", "b", "s2")
GONE = TaskEnd(EndKind.GONE, is_whole=True)
FAILED = TaskEnd(EndKind.FAILED, "ValueError: no")


def told(task: tuple[str, str, str], end: TaskEnd = FAILED) -> bytes:
    return encode_ends("default", [(task[1], end, task[2])])


def test_a_task_is_gone_unless_a_message_says_soon_that_it_has_failed() -> None:
    waits, heard = Waits(), list[object]()
    waits.add((A, B), heard.extend)
    gone = waits.settle(((A, GONE), (B, GONE)))
    assert (gone, heard) == ([A, B], [])
    waits.take_message(told(A))
    waits.settle_gone(gone)
    assert heard == [(A, FAILED), (B, GONE)]


def test_a_failure_that_was_told_before_counts_for_more_than_what_is_left_of_its_task() -> None:
    waits, heard = Waits(), list[object]()
    waits.take_message(told(A))
    waits.take_message(told(B))
    waits.add((A, B), heard.extend)
    assert waits.settle(((A, GONE), (B, TaskEnd(EndKind.FAILED)))) == []
    assert heard == [(A, FAILED), (B, FAILED)]


def test_a_failure_that_was_told_is_that_of_one_task_alone() -> None:
    waits, heard = Waits(), list[object]()
    whole = FAILED._replace(is_whole=True)
    waits.take_message(told(A))
    waits.add((A,), heard.extend)
    assert waits.settle(((A, whole),)) == []
    waits.add((A,), heard.extend)
    waits.settle_gone(waits.settle(((A, GONE),)))
    waits.take_message(told(A))
    waits.add((A,), heard.extend)
    waits.settle(((A, TaskEnd(EndKind.RESULT)),))
    assert heard == [(A, whole), (A, GONE), (A, TaskEnd(EndKind.RESULT))]


def test_an_end_is_that_of_one_submit_alone() -> None:
    earlier, waits, heard = ("default", "a", "s0"), Waits(), list[object]()
    waits.add((A,), heard.extend)
    waits.take_message(told(earlier))
    waits.take_message(told(earlier, TaskEnd(EndKind.DONE)))
    waits.settle_gone(waits.settle(((A, GONE),)))
    assert heard == [(A, GONE)]


def test_a_message_without_a_nonce_is_only_a_hint() -> None:
    waits, heard = Waits(), list[object]()
    waits.add((A, B), heard.extend)
    waits.take_message(told(("default", "a", ""), TaskEnd(EndKind.DONE)))
    waits.take_message(told(("default", "unknown", "")))
    assert waits.take_hinted() == [A]
    assert (waits.take_hinted(), heard) == ([], [])


def test_the_last_submitted_task_is_new_until_a_message_tells_of_it() -> None:
    waits = Waits()
    waits.submitted(B)
    waits.submitted(A)
    assert [waits.is_new(tasks) for tasks in ((A,), (B,), (A, B), ())] == [True, False, False, False]
    waits.take_message(told(B))
    assert waits.is_new((A,))
    waits.take_message(told(A))
    assert not waits.is_new((A,))


def test_waits_that_have_ended_for_good_take_no_more() -> None:
    waits, heard = Waits(), list[object]()
    waits.add((A,), heard.extend)
    waits.fail(ValueError("once"), (A,))
    waits.add((A,), heard.extend)
    error = closed()
    waits.end(error)
    waits.end(ValueError("later"))
    with pytest.raises(BrokerConnectionError, match="the client was closed while it waited"):
        waits.add((B,), heard.extend)
    assert heard[1:] == [(A, error)]
    assert waits.tasks == []


def test_the_pause_after_any_number_of_failures_is_two_seconds() -> None:
    failures = Failures()
    pauses = []
    for _ in range(5_000):
        failures.add(BrokerConnectionError("away"))
        pauses.append(failures.pause_s)
    assert pauses[:2] == [0.1, 0.2]
    assert set(pauses[5:]) == {2.0}

"""Errors carry their facts, and come out of a copy as they went in."""

import copy

import pytest

from fastq import (
    BadLinesError,
    BrokerTimeoutError,
    CronSpecError,
    FastqError,
    QueueNotEmptyError,
    QueueNotFoundError,
    QueuePausedError,
    QueueStateError,
    SchedulerEntryNotFoundError,
    ServerNotListeningError,
    TaskNotFoundError,
    TaskState,
    TaskStateError,
)
from fastq.inspector import ImportReport

ERRORS = [
    TaskNotFoundError("q", "id-1"),
    QueueNotFoundError("q"),
    TaskStateError("q", "id-1", "archive", "active"),
    QueueNotEmptyError("q", {TaskState.PENDING: 3, TaskState.ACTIVE: 0, TaskState.RETRY: 1}),
    QueueStateError("q", paused=True),
    CronSpecError("* * *", 5, "bad"),
    SchedulerEntryNotFoundError("id-1"),
    QueuePausedError("q", {TaskState.PENDING: 1200, TaskState.ACTIVE: 0}),
    ServerNotListeningError("id-1"),
    BadLinesError(ImportReport(bad=2, bad_lines=[{"line": 3, "error": "not JSON"}]), 1200),
    BrokerTimeoutError("no answer", operation="done", maybe_applied=True),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_copy_has_the_same_text_and_facts(error: FastqError) -> None:
    # The same way as a pickle's, in which multiprocessing sends errors.
    again = copy.copy(error)
    assert (type(again), str(again), again.args, vars(again)) == (type(error), str(error), error.args, vars(error))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ERRORS[2], "cannot archive a task in state 'active'; cancel it instead (queue='q', task_id='id-1')"),
        (TaskStateError("q", "i", "run", "pending"), "cannot run a task in state 'pending' (queue='q', task_id='i')"),
        (ERRORS[3], "queue is not empty: it has 3 pending, 1 retry (queue='q')"),
        (QueueNotEmptyError("q"), "queue is not empty (queue='q')"),
        (ERRORS[4], "queue is already paused (queue='q')"),
        (QueueStateError("q"), "queue is not paused (queue='q')"),
        (ERRORS[7], "queue is paused, with 1,200 pending in it (queue='q')"),
        (ERRORS[8], "server takes no orders: it is Go's, is gone, or may not listen (server_id='id-1')"),
        (ERRORS[9], "2 of 1,200 lines are bad"),
        (BadLinesError(ImportReport(bad=1, bad_lines=[{"line": 3, "error": "no"}])), "line 3: no"),
    ],
)
def test_an_error_names_what_it_is_about(error: FastqError, text: str) -> None:
    assert str(error) == text

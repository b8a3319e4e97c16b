"""Tasks enqueued by key in an inline client, which treats them as Redis' scripts do."""

from collections import deque

from fastq.broker.operations.keyed import Found, KeyTerms
from fastq.common.states import KeyOutcome, TaskState
from fastq.wire.messages import TaskMessage

Key = tuple[str, str]


class InlineKeys:
    """The tasks with keys of one inline client: waiting, in the backlog, or running."""

    def __init__(self, waiting: dict[Key, TaskMessage]) -> None:
        self._waiting = waiting
        self.running: set[Key] = set()
        self.again: dict[Key, tuple[TaskMessage, TaskState]] = {}
        """The tasks that were enqueued while a task with their key ran, and the states in which they will start."""

    def find(
        self, key: Key, new: tuple[TaskMessage, TaskState], terms: KeyTerms, backlog: deque[TaskMessage]
    ) -> Found | None:
        """If another task with the key exists, keep, replace or postpone it, and return the outcome; otherwise return
        None. ``new`` is the task that was enqueued, and the state in which it would start.
        """
        message, _ = new
        state = self._state(key, backlog)
        if state is None:
            return None
        if terms.if_there == "keep" or (terms.if_there == "replace" and state is TaskState.ACTIVE):
            return Found(KeyOutcome.KEPT, state)
        if state is TaskState.ACTIVE:
            self.again[key] = new
            return Found(KeyOutcome.RERUN, state)
        if state is TaskState.PENDING:
            place = next(at for at, one in enumerate(backlog) if (one.queue, one.id) == key)
            backlog[place] = message
        else:
            self._waiting[key] = message
        is_postponed = terms.if_there == "postpone" and state is TaskState.SCHEDULED
        return Found(KeyOutcome.POSTPONED if is_postponed else KeyOutcome.REPLACED, state)

    def _state(self, key: Key, backlog: deque[TaskMessage]) -> TaskState | None:
        if key in self.running:
            return TaskState.ACTIVE
        if (waiting := self._waiting.get(key)) is not None:
            return TaskState.RETRY if waiting.error_msg else TaskState.SCHEDULED
        return TaskState.PENDING if any((one.queue, one.id) == key for one in backlog) else None

"""One call of a batch handler: the tasks in it, and the answer to each task."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fastq.batch import Batch, Batching, as_it_is
from fastq.errors import InvalidMessageError, TaskCanceled, TaskTimeout
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.runner import Answer, TaskContext
from fastq.running import RunningTask
from fastq.wire.codec import TaskMessage, decode_task_message

Failed = Callable[[RunningTask, BaseException, TaskContext], Answer]
Returned = Callable[[RunningTask, int, Any], Answer]


def decode_all(data: Sequence[bytes]) -> tuple[Sequence[TaskMessage | InvalidMessageError], bool]:
    """Return the decoded messages, with an error in place of each bad one, and whether all could be decoded."""
    with suppress(InvalidMessageError):
        return list(map(decode_task_message, data)), True
    messages: list[TaskMessage | InvalidMessageError] = []
    for one in data:
        try:
            messages.append(decode_task_message(one))
        except InvalidMessageError as error:
            messages.append(error)
    return messages, False


class BatchCall:
    """The tasks that a handler gets, and the answers to the tasks that it cannot get.

    ``failed`` and ``returned`` make the answer to one task from its error or its result.
    """

    def __init__(
        self,
        batching: Batching,
        messages: Sequence[TaskMessage | InvalidMessageError],
        contexts: Sequence[TaskContext],
        failed: Failed,
        returned: Returned,
        *,
        is_valid: bool,
    ) -> None:
        self._encode = batching.encode
        self._failed, self._returned = failed, returned
        self._contexts = contexts
        self._answers: list[Answer] = [None] * len(messages)
        self._is_all_done = True
        if batching.unpack is as_it_is and is_valid:
            self._places: Sequence[int] = range(len(messages))
            # The tasks are not looked at one by one: that would cost a third of all that a task of a batch costs here.
            tasks: list[RunningTask] = list(map(RunningTask, messages, contexts))  # type: ignore[arg-type]
            self.batch: Batch[Any, Any] = Batch(tasks, tasks)
        else:
            self._unpack(batching, messages)

    def _unpack(self, batching: Batching, messages: Sequence[TaskMessage | InvalidMessageError]) -> None:
        """Make the batch of the tasks that the handler can get. The other tasks have their answers."""
        tasks, items, places = [], [], []
        for place, message in enumerate(messages):
            if isinstance(message, InvalidMessageError):
                self._answer(place, (EventKind.INVALID, str(message).encode()))
                continue
            context = self._contexts[place]
            try:
                task, item = batching.unpack(message, context)
            except (TaskTimeout, TaskCanceled):
                raise  # raised only once, since it is meant for the whole call
            except BaseException as error:  # noqa: BLE001 - the task fails alone, whatever the error is
                self._answer(place, self._failed(RunningTask(message, context), error, context))
                continue
            tasks.append(task)
            items.append(item)
            places.append(place)
        self._places = places
        self.batch = Batch(items, tasks, getattr(tasks[0], "env", None) if tasks else None)

    def _answer(self, place: int, answer: Answer) -> None:
        self._answers[place] = answer
        self._is_all_done &= answer is None

    @property
    def answers(self) -> list[Answer] | None:
        """Return the present answers, None if all tasks are done and have no result."""
        return None if self._is_all_done else self._answers

    def returned(self, outcome: object) -> list[Answer] | None:
        """Return the answers for the handler's return value."""
        told = self.batch._end()
        if outcome is None:
            for at, error in told.items():
                self._fail(at, error)
            return self.answers
        if not isinstance(outcome, list | tuple):
            return self.raised(
                TypeError(f"a batch handler returns None or a list, a result for each item, not {_kind(outcome)}")
            )
        if len(outcome) != len(self._places):
            return self.raised(
                ValueError(f"a batch handler returned {len(outcome)} results for {len(self._places)} items")
            )
        for at, result in enumerate(outcome):
            said = told.get(at, result)
            if isinstance(said, BaseException):
                self._fail(at, said)
            elif result is not None:
                self._keep(at, result)
        return self.answers

    def raised(self, error: BaseException) -> list[Answer] | None:
        """Return the answers for an exception: every task fails with it, unless the handler has set another error."""
        told = self.batch._end()
        for at in range(len(self._places)):
            self._fail(at, told.get(at, error))
        return self.answers

    def _fail(self, at: int, error: BaseException) -> None:
        place = self._places[at]
        self._answer(place, self._failed(self.batch.contexts[at], error, self._contexts[place]))

    def _keep(self, at: int, result: object) -> None:
        task = self.batch.contexts[at]
        try:
            plain = result if self._encode is None else self._encode(result)
            self._answer(self._places[at], self._returned(task, task._message.retention, plain))
        except Exception as error:  # noqa: BLE001 - a bad result fails only its own task
            self._fail(at, error)


def _kind(value: object) -> str:
    hint = "; it has tolist()" if hasattr(value, "tolist") else ""
    return f"{type(value).__name__}{hint}"

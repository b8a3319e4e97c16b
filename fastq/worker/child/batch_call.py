"""One call of a batch handler: the tasks in it, and the answer to each task."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from fastq.batch import Batch, Batching
from fastq.errors import InvalidMessageError, TaskCanceled, TaskTimeout
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.runner import Answer, TaskContext
from fastq.running import RunningTask
from fastq.wire.codec import TaskMessage, decode_task_message, decode_task_messages

Failed = Callable[[RunningTask, BaseException, TaskContext], Answer]
Returned = Callable[[TaskMessage, Any], Answer]
Decoded = TaskMessage | InvalidMessageError


def decode_all(data: Sequence[bytes]) -> tuple[list[Decoded], Sequence[int], set[str]]:
    """Return the decoded messages, with an error in place of each bad one, and the places and types of the others."""
    with suppress(InvalidMessageError):
        good, types = decode_task_messages(list(data))
        return cast(list[Decoded], good), range(len(good)), types
    messages = [_decoded(one) for one in data]
    places = [place for place, one in enumerate(messages) if isinstance(one, TaskMessage)]
    return messages, places, {one.type for one in messages if isinstance(one, TaskMessage)}


def _tasks(
    batching: Batching, messages: list[Any], contexts: list[TaskContext], places: Sequence[int]
) -> Sequence[RunningTask]:
    """Return the running tasks of the messages that the handler can get."""
    if len(places) < len(messages):
        messages, contexts = [messages[at] for at in places], [contexts[at] for at in places]
    return batching.contexts(messages, contexts)


def _decoded(data: bytes) -> Decoded:
    try:
        return decode_task_message(data)
    except InvalidMessageError as error:
        return error


class BatchCall:
    """The tasks that a handler gets, and the answers to the tasks that it cannot get.

    ``failed`` and ``returned`` make the answer to one task from its error or its result.
    """

    def __init__(
        self,
        batching: Batching,
        messages: list[Decoded],
        contexts: list[TaskContext],
        failed: Failed,
        returned: Returned,
        *,
        places: Sequence[int],
    ) -> None:
        self._encode = batching.encode
        self._failed, self._returned = failed, returned
        self._messages: list[Any] = messages
        self._contexts, self._places = contexts, places
        self._answers: list[Answer] = [None] * len(messages)
        self._is_all_done = True
        if len(places) < len(messages):
            for place, message in enumerate(messages):
                if isinstance(message, InvalidMessageError):
                    self._answer(place, (EventKind.INVALID, str(message).encode()))
        if batching.argument is None:
            tasks = _tasks(batching, messages, contexts, places)
            self.batch: Batch[Any, Any] = Batch(tasks, tasks)
        else:
            items = self._arguments(batching.argument)
            env = self._env(batching.env) if batching.env and items else None
            if not self._places:
                items = []
            # ``make_tasks`` must not refer to this call, which refers to the batch: only the garbage collector would
            # end such a cycle.
            make_tasks = partial(_tasks, batching, messages, contexts, self._places)
            self.batch = Batch(items, make_tasks, env)

    def _arguments(self, argument: Callable[[bytes], Any]) -> list[Any]:
        """Return the items that the handler can get, and keep their places; other tasks get their answers at once."""
        items, places, messages = [], [], self._messages
        for place in self._places:
            try:
                items.append(argument(messages[place].payload))
            except (TaskTimeout, TaskCanceled):
                raise  # raised only once, since it is meant for the whole call
            except BaseException as error:  # noqa: BLE001 - the task fails alone, whatever the error is
                self._refuse(place, error)
                continue
            places.append(place)
        self._places = places
        return items

    def _env(self, env: Callable[[], Any]) -> Any:
        """Return the app's ``env``; without it, all tasks get their answers at once."""
        try:
            return env()
        except (TaskTimeout, TaskCanceled):
            raise
        except BaseException as error:  # noqa: BLE001 - as if each task had met it alone
            for place in self._places:
                self._refuse(place, error)
            self._places = []

    def _refuse(self, place: int, error: BaseException) -> None:
        context = self._contexts[place]
        self._answer(place, self._failed(RunningTask(self._messages[place], context), error, context))

    def _answer(self, place: int, answer: Answer) -> None:
        self._answers[place] = answer
        self._is_all_done &= answer is None

    @property
    def answers(self) -> list[Answer] | None:
        """Return the answers so far, or None if all tasks are done without a result."""
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
        """Return the answers for an exception: every task fails with it, unless the handler set another for it."""
        told = self.batch._end()
        for at in range(len(self._places)):
            self._fail(at, told.get(at, error))
        return self.answers

    def _fail(self, at: int, error: BaseException) -> None:
        place = self._places[at]
        self._answer(place, self._failed(self.batch.contexts[at], error, self._contexts[place]))

    def _keep(self, at: int, result: object) -> None:
        place = self._places[at]
        try:
            plain = result if self._encode is None else self._encode(result)
            self._answer(place, self._returned(self._messages[place], plain))
        except Exception as error:  # noqa: BLE001 - a bad result fails only its own task
            self._fail(at, error)


def _kind(value: object) -> str:
    hint = "; it has tolist()" if hasattr(value, "tolist") else ""
    return f"{type(value).__name__}{hint}"

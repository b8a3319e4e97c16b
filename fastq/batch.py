"""``Batch``: the items that a batch handler gets in one call, and the errors that it sets for some of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from operator import index as as_index
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from fastq.common.durations import nanoseconds_of
from fastq.errors import Retry, TaskEndedError, no_attribute
from fastq.running import RUNNING_TASKS, RunningTask
from fastq.wire.messages import TaskMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from typing_extensions import TypeVar as TypeVarWithDefault

    T = TypeVarWithDefault("T", default=RunningTask)
    Env = TypeVarWithDefault("Env", default=None)
else:
    T = TypeVar("T")
    Env = TypeVar("Env")

MAX_BATCH: Final = 1000
MAX_WAIT_S: Final = 3600.0
MAX_BATCH_BYTES: Final = 1_000_000
"""The most bytes of all messages of a batch together, unless the handler's ``max_bytes`` says otherwise."""
_ELSEWHERE: Final = dict.fromkeys(
    ("id", "queue", "payload", "headers", "retried"),
    ".contexts, the running task of each item; mux.around enters each of them, mux.use gets the batch",
)


class Batch(list[T], Generic[T, Env]):
    """The items of one call, as a list.

    ``contexts`` has the running task of each item; ``env`` is the value that the app's ``lifespan`` has yielded, or
    None.

    In a ``ServeMux.handler`` the items are the running tasks themselves, in an ``App.task`` their arguments. What
    ``fail`` and ``retry`` set for an item takes precedence over what the handler returns or raises.
    """

    if not TYPE_CHECKING:  # type parameters have defaults only from Python 3.13 on

        def __class_getitem__(cls, parameters: Any) -> Any:
            found = parameters if isinstance(parameters, tuple) else (parameters,)
            return super().__class_getitem__(found if len(found) > 1 else (*found, None))

    contexts: tuple[RunningTask, ...]

    def __init__(
        self,
        items: Iterable[T] = (),
        contexts: Sequence[RunningTask] | Callable[[], Sequence[RunningTask]] = (),
        env: Any = None,
    ) -> None:
        super().__init__(items)
        if callable(contexts):
            self._make_contexts = contexts  # called when they are asked for: few handlers do, and they cost much
        else:
            self.contexts = tuple(contexts)
        self.env: Env = env
        self._size = len(self)
        self._told: dict[int, BaseException] = {}
        self._has_ended = False

    @property
    def type(self) -> str:
        """Return the type of the first task."""
        return self.contexts[0].type if self.contexts else ""

    @property
    def ids(self) -> list[str]:
        """Return the ids of the tasks."""
        return [context.id for context in self.contexts]

    def fail(self, index: int, error: BaseException) -> None:
        """Make one item fail, as if its own handler had raised the error; signals such as ``SkipRetry`` work, too."""
        if not isinstance(error, BaseException):
            raise TypeError(f"an item fails with an exception, not with {error!r}")
        place = as_index(index)
        if not -self._size <= place < self._size:
            raise IndexError(f"the batch has {self._size} items, none at {index}")
        if self._has_ended:
            raise TaskEndedError("the call of its batch has ended")
        self._told[place % self._size] = error

    def _end(self) -> dict[int, BaseException]:
        """Return the errors set by ``fail`` and ``retry``, by the index of the item; refuse later calls of both."""
        self._has_ended = True
        return self._told.copy()

    def retry(self, index: int, after: float | timedelta | None = None) -> None:
        """Make one item fail, and retry its task after ``after`` (seconds or a ``timedelta``); see ``Retry``."""
        self.fail(index, Retry(after=after))

    if not TYPE_CHECKING:  # a type checker that saw this would accept any attribute

        def __getattr__(self, name: str) -> Any:
            if name == "contexts":
                made = tuple(self._make_contexts())
                return self.__dict__.setdefault(name, made)  # the same for all threads
            raise no_attribute(self, "a Batch", name, _ELSEWHERE)


class Batching(NamedTuple):
    """How the tasks of a pattern are put into batches, and which item each task becomes.

    ``argument`` makes an item of a payload; if it raises, only this task fails. Without it, running tasks are the
    items. ``contexts`` makes the running tasks, ``env`` returns the app's, and ``encode`` encodes each result.
    """

    size: int
    max_wait_s: float
    max_bytes: int
    argument: Callable[[bytes], Any] | None = None
    contexts: Callable[[list[TaskMessage], list[Any]], Sequence[RunningTask]] = RUNNING_TASKS.make_all
    env: Callable[[], Any] | None = None
    encode: Callable[[Any], Any] | None = None

    @property
    def limits(self) -> tuple[int, float, int]:
        """Return the most tasks, the seconds of waiting and the most bytes of a batch, for the main process."""
        return self.size, self.max_wait_s, self.max_bytes


def batching_of(
    batch: int | None, max_wait: float | timedelta | None = None, max_bytes: int | None = None
) -> Batching | None:
    """Check the settings of a batch handler, and return them; None if ``batch`` is None."""
    if batch is None:
        if max_wait is not None or max_bytes is not None:
            raise TypeError("max_wait and max_bytes are for a batch handler: say batch=, the number of its tasks")
        return None
    _check_number("batch", batch, MAX_BATCH)
    if max_bytes is not None:
        _check_number("max_bytes", max_bytes, 64 * MAX_BATCH_BYTES)
    wait_s = 0.0 if max_wait is None else nanoseconds_of(max_wait, name="max_wait") / 1e9
    if not 0 <= wait_s <= MAX_WAIT_S:
        raise ValueError(f"max_wait must be from 0 to {MAX_WAIT_S:g} s, not {max_wait!r}")
    return Batching(batch, wait_s, MAX_BATCH_BYTES if max_bytes is None else max_bytes)


def _check_number(name: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if not 1 <= value <= most:
        raise ValueError(f"{name} must be from 1 to {most}, not {value}")


@contextmanager
def each_entered(enter: Callable[[Any], Any], batch: Batch[Any]) -> Iterator[None]:
    """Enter the context manager of each task of a batch."""
    with ExitStack() as stack:
        for context in batch.contexts:
            stack.enter_context(enter(context))
        yield


@asynccontextmanager
async def each_entered_async(enter: Callable[[Any], Any], batch: Batch[Any]) -> "AsyncIterator[None]":
    """Enter the context manager of each task of a batch, by its async form if it has one."""
    async with AsyncExitStack() as stack:
        for context in batch.contexts:
            manager = enter(context)
            if isinstance(manager, AbstractAsyncContextManager):
                await stack.enter_async_context(manager)
            else:
                stack.enter_context(manager)
        yield

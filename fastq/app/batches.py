"""Batch handlers of typed tasks: each task has one argument, and the function gets a ``Batch`` of many arguments."""

import inspect
from collections.abc import Callable, Coroutine, Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Generic, Protocol, TypeVar, Union, get_args, get_origin, overload

from fastq.app.annotations import result_encoder
from fastq.app.context import CONTEXTS
from fastq.app.function import TaskFunction
from fastq.app.payload import Payload, hints_of
from fastq.batch import Batch, Batching
from fastq.hooks import FailureRule
from fastq.running import Context as RunContext
from fastq.running import RunningTask
from fastq.wire.messages import TaskMessage

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C", covariant=True)


class BatchTask(TaskFunction[[T], R], Generic[T, R, C]):
    """A task function that gets the arguments of many tasks as a ``Batch``. Each task is enqueued by itself."""

    def __call__(self, items: Sequence[T], /) -> C:
        """Call the function itself; a list is converted to a ``Batch``."""
        function: Any = self._function
        called: C = function(items if isinstance(items, Batch) else Batch(items))
        return called


class BatchDecorator(Protocol):
    """The decorator that ``App.task`` returns for a batch handler; ``R`` is the result of one item."""

    @overload
    def __call__(
        self, function: Callable[[Batch[T, Any]], Coroutine[Any, Any, list[R]]], /
    ) -> BatchTask[T, R, Coroutine[Any, Any, list[R]]]: ...
    @overload
    def __call__(self, function: Callable[[Batch[T, Any]], list[R]], /) -> BatchTask[T, R, list[R]]: ...
    @overload
    def __call__(
        self, function: Callable[[Batch[T, Any]], Coroutine[Any, Any, None]], /
    ) -> BatchTask[T, None, Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, function: Callable[[Batch[T, Any]], None], /) -> BatchTask[T, None, None]: ...


def of_one_item(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the signature of a single task: it takes one item of a batch, and returns one result."""
    hints = hints_of(f"task {name!r}", function)
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 1:
        raise TypeError(
            f"task {name!r} has batch=..., so its function takes the batch alone, not {inspect.signature(function)}; "
            "contexts and env are attributes of the batch"
        )
    hint = hints.get(parameters[0].name, Batch)
    if not {hint, get_origin(hint)} & {Batch, list, Sequence}:
        raise TypeError(
            f"task {name!r} has batch=..., so its parameter {parameters[0].name!r} is a Batch or list, not {hint!r}"
        )
    item, result = next(iter(get_args(hint)), Any), _item_of(hints.get("return", Any))

    def one(item: Any) -> Any:
        return item

    stand_in: Any = one
    parameter = inspect.Parameter(parameters[0].name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=item)
    stand_in.__signature__ = inspect.Signature([parameter], return_annotation=result)
    stand_in.__annotations__ = {parameter.name: item, "return": result}
    stand_in.env = next(iter(get_args(hint)[1:]), None)
    made: Callable[..., Any] = stand_in
    return made


def _item_of(hint: Any) -> Any:
    """Return the annotation of one item's result: that of the list's items, without exceptions."""
    if hint is type(None):
        return hint
    if get_origin(hint) is not list:
        return Any
    (item,) = get_args(hint)
    if get_origin(item) not in (Union, UnionType):
        return item
    kept = [each for each in get_args(item) if not (isinstance(each, type) and issubclass(each, BaseException))]
    return reduce(or_, kept) if kept else Any


def typed_batching(limits: Batching, payload: Payload, env: Callable[[], Any], rule: FailureRule | None) -> Batching:
    """Return how batches of typed tasks are made: each task becomes its argument, and a context with ``env``."""

    def contexts(messages: list[TaskMessage], runs: list[RunContext]) -> Sequence[RunningTask]:
        made, its = CONTEXTS.make_all(messages, runs), env()
        for each in made:
            each.env = its
            if rule is not None:
                each._rule = rule
        return made

    encode = result_encoder(payload.result)
    return limits._replace(argument=payload.only_argument(), contexts=contexts, env=env, encode=encode)

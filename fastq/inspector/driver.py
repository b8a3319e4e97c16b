"""The definitions of an inspector's methods, and the two drivers that turn them into methods: blocking and asyncio.

A method is written once, as a flow of broker operations. ``operation`` marks a method that returns a value, ``stream``
marks a method that yields items. A class that inherits such definitions and a driver gets a function for each
definition. The overloads of ``__get__`` give type checkers the types of these functions.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar, get_args, overload

from fastq.broker.operation import Flow, Step
from fastq.broker.transport.open import AsyncRedis, BlockingRedis, open_async_broker, open_broker
from fastq.common.clock import SystemClock
from fastq.errors import BrokerError
from fastq.inspector.audit import audited

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Given(Generic[T]):
    """A step of a stream: the items for its reader."""

    items: Sequence[T]


Stream: TypeAlias = Generator[Step | Given[T], Any, None]


# Definitions


class operation(Generic[P, T]):  # noqa: N801 - used as a decorator
    """A method that returns what its flow returns."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self.flow = flow
        self.__doc__ = flow.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        _set_name(self.flow, owner, name)

    @overload
    def __get__(self, driver: None, owner: type) -> Callable[Concatenate[Any, P], Any]: ...
    @overload
    def __get__(self, driver: "BlockingDriver", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, driver: "AsyncDriver", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, driver: Any, owner: type) -> Any:
        """Return the definition itself. The class of a driver does not call this: it has a function in place of it."""
        return self


class action(operation[P, T]):  # noqa: N801 - used as a decorator
    """An operation that changes something, and so leaves a line in the audit."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        super().__init__(audited(flow))


class stream(Generic[P, T]):  # noqa: N801 - used as a decorator
    """A method that returns an iterator over the items of its flow; its arguments are checked when it is called."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Stream[T]]) -> None:
        self.flow = flow
        self.__doc__ = flow.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        _set_name(self.flow, owner, name)

    @overload
    def __get__(self, driver: None, owner: type) -> Callable[Concatenate[Any, P], Any]: ...
    @overload
    def __get__(self, driver: "BlockingDriver", owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, driver: "AsyncDriver", owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, driver: Any, owner: type) -> Any:
        """Return the definition itself. The class of a driver does not call this: it has a function in place of it."""
        return self


def alias(flow: Callable[Concatenate[Any, S, P], Flow[T]], first: S, doc: str) -> operation[P, T]:
    """Define a method as a flow with its first argument filled in."""

    def method(self: Driver, /, *args: P.args, **named: P.kwargs) -> Flow[T]:
        return flow(self, first, *args, **named)

    its = signature(flow)
    driver, _, *others = its.parameters.values()
    method.__signature__ = its.replace(parameters=[driver, *others])  # type: ignore[attr-defined]  # inspect reads it
    method.__doc__ = doc
    return operation(method)


def _set_name(flow: Callable[..., Any], owner: type, name: str) -> None:
    flow.__name__, flow.__qualname__, flow.__module__ = name, f"{owner.__qualname__}.{name}", owner.__module__


# Drivers


class Driver:
    """The attributes of a driver that the classes with the inspector's methods use; these classes inherit from it."""

    where: str
    """The address of Redis, without secrets."""

    def _now_ns(self) -> int:
        return SystemClock().unix_ns()


class _Driving(Driver):
    """A driver, which makes a function from each definition that its subclass inherits."""

    _iterator: Any
    """The type of the iterators of streams."""

    @staticmethod
    def _value_of(flow: Callable[..., Flow[Any]]) -> Callable[..., Any]:
        raise NotImplementedError

    @staticmethod
    def _items_of(flow: Callable[..., Stream[Any]]) -> Callable[..., Any]:
        raise NotImplementedError

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in dir(cls):
            match getattr(cls, name):
                case operation(flow=flow):
                    setattr(cls, name, _shown(cls._value_of(flow), flow, _value_type))
                case stream(flow=flow):
                    setattr(cls, name, _shown(cls._items_of(flow), flow, lambda of: cls._iterator[_item_type(of)]))


class BlockingDriver(_Driving):
    """A driver with blocking sockets; safe to share among threads."""

    _iterator = Iterator

    def __init__(self, redis: str | BlockingRedis | None = None) -> None:
        self._broker = open_broker(redis)
        self.where = self._broker.transport.where

    @staticmethod
    def _value_of(flow: Callable[..., Flow[T]]) -> Callable[..., T]:
        @wraps(flow)
        def method(self: "BlockingDriver", *args: Any, **named: Any) -> T:
            return self._broker.drive(flow(self, *args, **named))

        return method

    @staticmethod
    def _items_of(flow: Callable[..., Stream[T]]) -> Callable[..., Iterator[T]]:
        @wraps(flow)
        def method(self: "BlockingDriver", *args: Any, **named: Any) -> Iterator[T]:
            return self._items(flow(self, *args, **named))

        return method

    def _items(self, given: Stream[T]) -> Iterator[T]:
        with closing(given):
            while (items := self._broker.drive(_until_given(given))) is not None:
                yield from items

    def close(self) -> None:
        """Close the connections, unless they were given; may be called twice."""
        self._broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncDriver(_Driving):
    """A driver for asyncio; each loop has its own connections."""

    _iterator = AsyncIterator

    def __init__(self, redis: str | AsyncRedis | None = None) -> None:
        self._broker = open_async_broker(redis)
        self.where = self._broker.transport.where

    @staticmethod
    def _value_of(flow: Callable[..., Flow[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        @wraps(flow)
        async def method(self: "AsyncDriver", *args: Any, **named: Any) -> T:
            return await self._broker.drive(flow(self, *args, **named))

        return method

    @staticmethod
    def _items_of(flow: Callable[..., Stream[T]]) -> Callable[..., AsyncIterator[T]]:
        @wraps(flow)
        def method(self: "AsyncDriver", *args: Any, **named: Any) -> AsyncIterator[T]:
            return self._items(flow(self, *args, **named))

        return method

    async def _items(self, given: Stream[T]) -> AsyncIterator[T]:
        with closing(given):
            while (items := await self._broker.drive(_until_given(given))) is not None:
                for item in items:
                    yield item

    async def close(self) -> None:
        """Close the connections of the running loop, unless they were given; may be called twice."""
        await self._broker.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _shown(method: Callable[..., T], flow: Callable[..., Any], returned: Callable[[Any], Any]) -> Callable[..., T]:
    """Let ``inspect.signature`` and ``help`` show the return type of the method, not of its flow."""
    its = signature(flow)
    method.__signature__ = its.replace(return_annotation=returned(its.return_annotation))  # type: ignore[attr-defined]
    return method


def _value_type(flow: Any) -> Any:
    _, _, value = get_args(flow)
    return value


def _item_type(given: Any) -> Any:
    *_, last = get_args(get_args(given)[0])
    return get_args(last)[0]


def _until_given(given: Stream[T]) -> Flow[Sequence[T] | None]:
    """Continue a stream until it yields items; None is its end."""
    try:
        step = next(given)
        while not isinstance(step, Given):
            try:
                result = yield step
            except BrokerError as error:
                step = given.throw(error)
            else:
                step = given.send(result)
    except StopIteration:
        return None
    return step.items

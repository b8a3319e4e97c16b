"""Checks that a call of a function runs its code; functions whose calls run nothing are refused at registration."""

import functools
import inspect
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

UNRUN: Final = (GeneratorType, AsyncGeneratorType, CoroutineType)


def is_async(handler: Callable[..., object]) -> bool:
    """Return whether a call makes a coroutine: ``async def``, an async ``__call__``, or a partial of one of these.

    A plain function that returns an awaitable cannot be recognized beforehand, so the code that calls handlers checks
    their results.
    """
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def refuse_generator(function: Callable[..., Any], what: str) -> None:
    """Raise ``TypeError`` if a call only makes a generator, or only an object of a class without ``__init__``.

    A plain function around a generator may run it, so it is accepted; ``refuse_unrun`` checks what it returns.
    """
    body = _body_of(function)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise TypeError(f"{what} is a generator, which would not run: {function!r}")
    if isinstance(function, type) and body is type.__call__ and function.__init__ is object.__init__:  # type: ignore[misc]  # of the class itself
        raise TypeError(f"{what} is a class, of which no method would run: {function!r}")


def refuse_idle(function: Callable[..., Any], what: str) -> None:
    """Raise ``TypeError`` as ``refuse_generator`` does, and also for ``async def``, since nobody would await it."""
    refuse_generator(function, what)
    if inspect.iscoroutinefunction(_body_of(function)):
        raise TypeError(f"{what} is a coroutine, which would not run: write it with def, not {function!r}")


def refuse_unrun(value: object, what: str) -> None:
    """Raise ``TypeError`` if a function has returned a generator or a coroutine, whose code has not run."""
    if isinstance(value, UNRUN):
        if isinstance(value, CoroutineType):
            value.close()  # otherwise Python warns that the coroutine was never awaited
        raise TypeError(f"{what} returned a {type(value).__name__}, whose code has not run: {value!r}")


def _body_of(function: Any) -> Any:
    """Return the function or method whose code runs when ``function`` is called."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, staticmethod | functools._lru_cache_wrapper):
            function = function.__wrapped__
        else:
            return function if inspect.isroutine(function) else type(function).__call__

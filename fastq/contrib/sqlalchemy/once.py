"""``once``: a function whose effects in the database happen once, however often its task runs."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from sqlalchemy import Insert, Select, Update, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from fastq.common.callables import refuse_generator
from fastq.contrib.notes import note_key
from fastq.contrib.sqlalchemy.tables import CommittedTask

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Session)
A = TypeVar("A", bound=AsyncSession)


class _Taken(Exception):  # noqa: N818 - it never leaves this module
    """Raised when the same function of the same task has already been committed."""


@overload
def once(sessions: sessionmaker[S]) -> Callable[[Callable[Concatenate[S, P], R]], Callable[P, R]]: ...
@overload
def once(
    sessions: async_sessionmaker[A],
) -> Callable[[Callable[Concatenate[A, P], Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]: ...
def once(sessions: Any) -> Any:
    """Decorate the function of a task: its effects in the database happen once, however often it runs.

    The function gets a session of ``sessions`` as its first argument, which callers leave out. It runs in a transaction
    that also inserts a row with the id of the task, the name of the function and the result, which must be JSON. A
    later run of the same task finds the row, and returns that result without a call of the function. A failed run is
    rolled back. Outside a task, the function just runs in a transaction. A coroutine function needs an
    ``async_sessionmaker``, and a plain function needs a ``sessionmaker``; otherwise ``TypeError``.
    """
    is_async = isinstance(sessions, async_sessionmaker)
    if not is_async and not isinstance(sessions, sessionmaker):
        raise TypeError(f"once takes a sessionmaker or an async_sessionmaker, not {sessions!r}")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        refuse_generator(function, "the function of @once")
        if inspect.iscoroutinefunction(function) is not is_async:
            raise TypeError(f"@once needs an async_sessionmaker for a coroutine, and only for one: {function!r}")
        made = _async_once(sessions, function) if is_async else _plain_once(sessions, function)
        return _without_session(made, function)

    return decorate


def _plain_once(sessions: sessionmaker[Session], function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        key = note_key(function)
        try:
            with sessions.begin() as session:
                if key is None:
                    return function(session, *args, **kwargs)
                if (kept := session.execute(_find(key)).one_or_none()) is not None:
                    return kept.result
                try:
                    # Another process that runs the same task waits here until this one has been committed or rolled
                    # back.
                    session.execute(_claim(key))
                except IntegrityError:
                    raise _Taken from None
                result = function(session, *args, **kwargs)
                session.execute(_keep(key, result))
                return result
        except _Taken:
            with sessions.begin() as session:
                return session.execute(_find(str(key))).scalar_one()

    return run


def _async_once(sessions: async_sessionmaker[AsyncSession], function: Callable[..., Any]) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        key = note_key(function)
        try:
            async with sessions.begin() as session:
                if key is None:
                    return await function(session, *args, **kwargs)
                if (kept := (await session.execute(_find(key))).one_or_none()) is not None:
                    return kept.result
                try:
                    await session.execute(_claim(key))  # another process waits here, as above
                except IntegrityError:
                    raise _Taken from None
                result = await function(session, *args, **kwargs)
                await session.execute(_keep(key, result))
                return result
        except _Taken:
            async with sessions.begin() as session:
                return (await session.execute(_find(str(key)))).scalar_one()

    return run


def _find(key: str) -> Select[Any]:
    return select(CommittedTask.result).where(CommittedTask.key == key)


def _claim(key: str) -> Insert:
    return insert(CommittedTask).values(key=key)


def _keep(key: str, result: Any) -> Update:
    return update(CommittedTask).where(CommittedTask.key == key).values(result=result)


def _without_session(made: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a wrapper the name of a function and its parameters without the first one, as ``App.task`` reads them."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if not parameters:
        raise TypeError(f"@once needs a function whose first parameter is the session: {function!r}")
    functools.update_wrapper(made, function)
    first = parameters.pop(0).name
    made.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # of any callable
    made.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if name != first}
    return made

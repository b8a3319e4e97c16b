"""One definition, two inspectors: what the drivers make of a flow, a stream and an alias."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest

from fastq import AsyncInspector, Inspector, TaskInfo
from fastq.broker.operation import Flow, Operation
from fastq.errors import BrokerError
from fastq.inspector.driver import AsyncDriver, BlockingDriver, Driver, Given, Stream, alias, operation, stream

PING: Operation[bytes] = Operation("PING", (), ())
WRONG: Operation[bytes] = Operation("PING", (), ("one", "two"))


def _named(self: Driver, first: str, second: str, *, third: str = "") -> Flow[str]:
    yield PING
    return f"{first} {second}{third}"


class Words(Driver):
    @operation
    def one(self, word: str) -> Flow[str]:
        """Return a word."""
        return _named(self, "one", word)

    named = alias(_named, "named", "Return a name.")

    @stream
    def many(self, count: int) -> Stream[int]:
        """Give numbers."""
        if count < 0:
            raise ValueError(f"count: {count}")
        return self._many(count)

    def _many(self, count: int) -> Stream[int]:
        for number in range(count):
            yield PING
            yield Given([number])
            yield Given([])
        try:
            yield WRONG
        except BrokerError:
            yield Given([-1])


class Blocking(Words, BlockingDriver):
    """Words, with blocking sockets."""


class Asynchronous(Words, AsyncDriver):
    """Words, for asyncio."""


def test_a_blocking_class_returns_values_and_iterators(url: str) -> None:
    with Blocking(url) as words:
        assert words.one("word") == "one word"
        assert words.named("it", third="!") == "named it!"
        assert list(words.many(2)) == [0, 1, -1]
        with pytest.raises(ValueError, match="count: -1"):
            words.many(-1)


def test_an_async_class_returns_coroutines_and_asynchronous_iterators(url: str) -> None:
    async def ask() -> None:
        async with Asynchronous(url) as words:
            assert await words.one("word") == "one word"
            assert await words.named("it", third="!") == "named it!"
            assert [number async for number in words.many(2)] == [0, 1, -1]
            with pytest.raises(ValueError, match="count: -1"):
                words.many(-1)

    asyncio.run(ask())


def test_a_stream_that_is_left_is_closed(url: str) -> None:
    with Blocking(url) as words:
        given = words._many(3)
        items: Any = words._items(given)
        assert next(items) == 0
        items.close()
        assert inspect.getgeneratorstate(given) == inspect.GEN_CLOSED


def test_a_class_of_the_users_own_may_override_a_method(url: str) -> None:
    class Mine(Blocking):
        def one(self, word: str) -> str:
            return f"mine: {word}"

    with Mine(url) as words:
        assert words.one("x") == "mine: x"
        assert words.named("y") == "named y"


def test_methods_look_like_methods_that_were_written_by_hand() -> None:
    assert str(inspect.signature(Inspector.queues)) == "(self) -> list[str]"
    assert inspect.signature(Inspector.iter_tasks).return_annotation == Iterator[TaskInfo]
    assert inspect.signature(AsyncInspector.iter_tasks).return_annotation == AsyncIterator[TaskInfo]
    assert list(inspect.signature(Inspector.list_aggregating_tasks).parameters) == [
        "self",
        "queue",
        "group",
        "page",
        "page_size",
    ]
    assert Inspector.list_pending_tasks.__doc__ == "List pending tasks, the next one to run first."
    assert inspect.iscoroutinefunction(AsyncInspector.queues)
    assert not inspect.iscoroutinefunction(Inspector.queues)
    assert Inspector.queues.__qualname__.endswith(".queues")


def test_both_inspectors_have_the_same_methods_and_can_be_stood_in_for() -> None:
    def public(of: type) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")} - {"where"}

    assert public(Inspector) == public(AsyncInspector)
    assert len(public(Inspector)) > 60
    double = create_autospec(AsyncInspector, instance=True)
    assert isinstance(double.get_queue_info, AsyncMock)
    with pytest.raises(TypeError):
        create_autospec(Inspector, instance=True).list_pending_tasks("q", 2)

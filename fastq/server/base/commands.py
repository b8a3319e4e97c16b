"""The command connection: the operations of all actors, gathered into pipelines to each node.

Two pipelines to a node may be under way, so that the node has the next one when it has finished the first, while this
process works. Operations that two actors request at the same time go out in separate pipelines. In one, both actors
would get their replies and send their next requests at the same time, and Redis would be idle meanwhile. Further
requests go out together in the next pipeline, so that actors share round trips without knowing of each other. The order
of two pipelines is not defined.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from fastq.broker.operation import Operation
from fastq.broker.transport.aio import AsyncBroker
from fastq.errors import BrokerError, BrokerTimeoutError

__all__ = ["Commands"]

T = TypeVar("T")
_Asked: TypeAlias = tuple[Sequence[Operation[Any]], asyncio.Future[list[Any]]]

LIMIT_S: Final = 30.0
"""Each reply has its own time limit; this one is for replies that trickle in, or hang in an unforeseen way."""
MOST_UNDER_WAY: Final = 2

_log = logging.getLogger("fastq.commands")


class Commands:
    """The command connection of many callers, with up to two pipelines at a time to each node.

    ``node_name_of`` returns the node of a key, as a transport's does; it is None if one server has all keys.
    """

    def __init__(self, broker: AsyncBroker, node_name_of: Callable[[str], str] | None = None) -> None:
        self.node_name_of = node_name_of
        self._nodes: defaultdict[str, _Node] = defaultdict(partial(_Node, broker))
        self._only = self._nodes[""]

    async def run(self, operation: Operation[T]) -> T:
        """Carry out one operation; raise its ``BrokerError``."""
        (result,) = await self.run_many((operation,))
        if isinstance(result, BrokerError):
            raise result
        return cast("T", result)

    async def run_many(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Carry out operations in one pipeline per node; the result of a failed one is its ``BrokerError``.

        It never raises, so that a caller keeps the data that it has to write.
        """
        return await self.begin(operations)

    def begin(self, operations: Sequence[Operation[Any]], *, joins: bool = False) -> asyncio.Future[list[Any]]:
        """Do as ``run_many``, but return at once; the caller cancels the future if it does not wait for it.

        With ``joins``, the operations go into the pipeline of the request just before, if there is any.
        """
        if self.node_name_of is None:
            return self._only.begin(operations, joins=joins)
        places = defaultdict(list)
        for place, operation in enumerate(operations):
            places[self.node_name_of(operation.keys[0]) if operation.keys else ""].append(place)
        if len(places) == 1:
            return self._nodes[next(iter(places))].begin(operations, joins=joins)
        parts = [
            (at, self._nodes[node].begin([operations[place] for place in at], joins=joins))
            for node, at in places.items()
        ]
        return asyncio.create_task(_all_of(parts, len(operations)), name="fastq commands of several nodes")


async def _all_of(parts: Sequence[tuple[list[int], asyncio.Future[list[Any]]]], count: int) -> list[Any]:
    """Return the results of all parts in the order of the operations."""
    results: list[Any] = [None] * count
    try:
        for places, answer in parts:
            for place, result in zip(places, await answer, strict=True):
                results[place] = result
    finally:
        for _, answer in parts:
            answer.cancel()
    return results


class _Node:
    """The pipelines to one node."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self._waiting: list[_Asked] = []
        self._senders: set[asyncio.Task[None]] = set()
        self._starting = 0

    def begin(self, operations: Sequence[Operation[Any]], *, joins: bool) -> asyncio.Future[list[Any]]:
        """Queue operations for the next pipeline."""
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((operations, answer))
        if len(self._senders) < MOST_UNDER_WAY and not (joins and self._starting):
            sender = asyncio.create_task(self._send(), name="fastq commands")
            self._senders.add(sender)
            self._starting += 1
        return answer

    async def _send(self) -> None:
        batch: Sequence[_Asked] = ()
        self._starting -= 1
        try:
            while self._waiting:
                # Requests that a starting sender can take are left to it.
                most = max(1, len(self._waiting) - self._starting)
                taken, self._waiting = self._waiting[:most], self._waiting[most:]
                # A caller that was canceled before its operations were sent needs no results.
                batch = [asked for asked in taken if not asked[1].done()]
                if not batch:
                    continue
                results = iter(await self._carry_out([op for operations, _ in batch for op in operations]))
                for operations, answer in batch:
                    _give(answer, [next(results) for _ in operations])
                batch = ()
        finally:
            # Removed here rather than in a done callback: a caller that arrives in between would wait for a sender that
            # has exited.
            self._senders = {sender for sender in self._senders if sender is not asyncio.current_task()}
            # Only a closing loop cancels this.
            for operations, answer in (*batch, *self._waiting):
                _give(answer, [_unknown("the command connection was closed")] * len(operations))
            self._waiting = []

    async def _carry_out(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        try:
            async with asyncio.timeout(LIMIT_S):
                return await self._broker.run_many(operations)
        except TimeoutError:
            text = f"no answer within {LIMIT_S:g} s; the outcome is not known"
            return [BrokerTimeoutError(text, maybe_applied=True)] * len(operations)
        except Exception as error:  # noqa: BLE001 - a defect here must not lose what the callers hold
            _log.exception("unexpected error in a pipeline of %d operations", len(operations))
            return [_unknown(f"internal error: {error!r}")] * len(operations)


def _give(answer: asyncio.Future[list[Any]], results: list[Any]) -> None:
    if not answer.done():  # its caller may have been canceled
        answer.set_result(results)


def _unknown(why: str) -> BrokerError:
    return BrokerError(f"{why}; the outcome is not known", maybe_applied=True)

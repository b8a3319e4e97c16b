"""The command connection: the operations of all actors, gathered into pipelines to each node.

Two pipelines to a node may be under way, so that the node works on the second while this process handles the replies to
the first. Operations that two actors request at the same time go out in separate pipelines. If they shared one, both
actors would get their replies and send their next requests at the same time, and Redis would be idle meanwhile. Further
requests go out together in the next pipeline, so that actors share round trips without knowing of each other. The order
of two pipelines is not defined.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from fastq.broker.operation import Operation
from fastq.broker.transport.aio import AsyncBroker
from fastq.broker.transport.exchange import Exchange
from fastq.errors import BrokerError, BrokerTimeoutError
from fastq.server.base.lane_queues import LaneQueues

T = TypeVar("T")
_Asked: TypeAlias = tuple[Sequence[Operation[Any]], asyncio.Future[list[Any]]]

LIMIT_S: Final = 30.0
"""The time limit of a pipeline.

Each reply also has a limit; this one stops replies that trickle in or hang unforeseen.
"""
MOST_UNDER_WAY: Final = 2

_log = logging.getLogger("fastq.commands")


class Commands:
    """The command connection of many callers, with up to two pipelines at a time to each node.

    ``node_name_of`` returns the node of a key, as the transport's method does; it is None if one server has all keys.
    For queues in ``lanes``, a script's twin is sent in place of the script.
    """

    def __init__(self, broker: AsyncBroker, node_name_of: Callable[[str], str] | None = None) -> None:
        self.node_name_of = node_name_of
        self.lanes = LaneQueues()
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
        """Begin what ``run_many`` does, and return at once; a caller that does not wait for the future must cancel it.

        With ``joins``, the operations go into the pipeline of the request just before, if there is any.
        """
        if self.lanes or self.lanes.unknown:
            operations = self.lanes.twins(operations)
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
        self._under_way = 0
        self._starting = 0

    def begin(self, operations: Sequence[Operation[Any]], *, joins: bool) -> asyncio.Future[list[Any]]:
        """Queue operations for the next pipeline."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Any]] = loop.create_future()
        self._waiting.append((operations, answer))
        if joins and not self._starting and not self._under_way:
            self._send()  # there is no request to join
        elif self._under_way + self._starting < MOST_UNDER_WAY and not (joins and self._starting):
            self._starting += 1
            loop.call_soon(self._start)
        return answer

    def _start(self) -> None:
        self._starting -= 1
        self._send()

    def _send(self) -> None:
        """Send the waiting requests in one pipeline, but leave one request for each pipeline that is about to start."""
        while self._waiting:
            most = max(1, len(self._waiting) - self._starting)
            taken, self._waiting = self._waiting[:most], self._waiting[most:]
            # A caller that was canceled before its operations were sent needs no results.
            batch = [asked for asked in taken if not asked[1].done()]
            if batch:
                break
        else:
            return
        operations = batch[0][0] if len(batch) == 1 else [op for operations, _ in batch for op in operations]
        self._under_way += 1
        if not self._broker.begin(operations, partial(self._received, batch, operations), LIMIT_S):
            self._carry_out(batch, operations, self._broker.run_many(operations))

    def _received(
        self,
        batch: Sequence[_Asked],
        operations: Sequence[Operation[Any]],
        exchange: Exchange,
        defect: Exception | None,
    ) -> None:
        if defect is None and not exchange.is_over:
            self._carry_out(batch, operations, self._broker.carry_on(exchange))
        else:
            self._end(batch, exchange.results if defect is None else _defect(operations, defect))

    def _carry_out(
        self,
        batch: Sequence[_Asked],
        operations: Sequence[Operation[Any]],
        running: Coroutine[Any, Any, list[Any]],
    ) -> None:
        """Wait for the results of a pipeline that needs a connection first, or several round trips."""
        sender = asyncio.create_task(self._run(batch, operations, running), name="fastq commands")
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)

    async def _run(
        self,
        batch: Sequence[_Asked],
        operations: Sequence[Operation[Any]],
        running: Coroutine[Any, Any, list[Any]],
    ) -> None:
        results: Sequence[Any] = ()
        try:
            async with asyncio.timeout(LIMIT_S):
                results = await running
        except TimeoutError:
            text = f"no answer within {LIMIT_S:g} s; the outcome is not known"
            results = [BrokerTimeoutError(text, maybe_applied=True)] * len(operations)
        except Exception as error:  # noqa: BLE001 - a defect here must not lose what the callers hold
            results = _defect(operations, error)
        except asyncio.CancelledError:  # only a closing loop cancels this
            batch, self._waiting = [*batch, *self._waiting], []
            results = [_unknown("the command connection was closed")] * sum(len(asked) for asked, _ in batch)
            raise
        finally:
            self._end(batch, results)

    def _end(self, batch: Sequence[_Asked], results: Sequence[Any]) -> None:
        """Pass on the results of a pipeline, and send the next one."""
        self._under_way -= 1
        at = 0
        for operations, answer in batch:
            _give(answer, list(results[at : at + len(operations)]))
            at += len(operations)
        self._send()


def _defect(operations: Sequence[Operation[Any]], error: Exception) -> list[BrokerError]:
    _log.error("unexpected error in a pipeline of %d operations", len(operations), exc_info=error)
    return [_unknown(f"internal error: {error!r}")] * len(operations)


def _give(answer: asyncio.Future[list[Any]], results: list[Any]) -> None:
    if not answer.done():  # its caller may have been canceled
        answer.set_result(results)


def _unknown(why: str) -> BrokerError:
    return BrokerError(f"{why}; the outcome is not known", maybe_applied=True)

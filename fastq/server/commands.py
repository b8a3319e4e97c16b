"""The command connection: the operations of all actors, gathered into pipelines.

What actors ask for while a pipeline is under way goes out together in the next one, so that acks and the next fetch
share a round trip without knowing of each other.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from fastq.broker.aio import AsyncBroker
from fastq.broker.operation import Operation
from fastq.errors import BrokerError

__all__ = ["Commands"]

T = TypeVar("T")


class Commands:
    """Carry out operations for many callers, one pipeline at a time."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self._waiting: list[tuple[Sequence[Operation[Any]], asyncio.Future[list[Any]]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def run(self, operation: Operation[T]) -> T:
        """Carry out one operation; raise its ``BrokerError``."""
        (result,) = await self.run_many((operation,))
        if isinstance(result, BrokerError):
            raise result
        return cast("T", result)

    async def run_many(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Carry out operations in one pipeline; a failed one stands as its ``BrokerError`` in the list."""
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((operations, answer))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send(), name="fastq commands")
        return await answer

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                results = iter(await self._broker.run_many([op for operations, _ in batch for op in operations]))
                for operations, answer in batch:
                    mine = [next(results) for _ in operations]
                    if not answer.done():  # its caller may have been cancelled
                        answer.set_result(mine)
        except BaseException as error:
            for _, answer in [*batch, *self._waiting]:
                if not answer.done():
                    answer.set_exception(BrokerError(f"the command connection ended: {error!r}", maybe_applied=True))
            self._waiting = []
            raise
        finally:
            self._sender = None

"""A private connection to the node of a key, kept until it breaks.

Redis knows the connection by its client id, so other processes may ask Redis whether it still exists. While it does,
the process that made it is alive, even if that process is frozen.
"""

from collections.abc import Sequence
from typing import Any, cast

from fastq.broker.operation import Operation
from fastq.broker.transport.aio import AsyncBroker, AsyncPool, AsyncTransport, exchange_on
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import CONNECT_FAULTS, Unsent
from fastq.broker.transport.sentinel import is_replaced


class OwnLine:
    """The connection. The first request opens it, and the first request after a break opens another."""

    def __init__(self, transport: AsyncTransport, key: str) -> None:
        self._transport = transport
        self._key = key
        self._pool: AsyncPool | None = None
        self._connection: Any = None
        self._broker = AsyncBroker(cast("AsyncTransport", self))
        self.opened = 0
        """How many connections there have been."""

    @property
    def where(self) -> str:
        """Return the address of the transport."""
        return self._transport.where

    node_name_of = None

    async def run(self, operation: Operation[Any]) -> Any:
        """Carry out one operation; raise its ``BrokerError``."""
        return await self._broker.run(operation)

    async def run_many(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Carry out operations; the result of a failed one is its ``BrokerError``."""
        return await self._broker.run_many(operations)

    async def transfer(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and read their replies."""
        try:
            await self._open()
        except CONNECT_FAULTS as error:
            return [Unsent(error, self.where)] * len(commands)
        return await exchange_on(self._connection, commands)

    @property
    def is_open(self) -> bool:
        """Return whether the next request goes out on the connection of the last one."""
        kept = self._connection
        return kept is not None and (
            kept.is_connected and not kept._reader.at_eof() and not is_replaced(self._pool, kept)
        )

    async def _open(self) -> None:
        if self.is_open:
            return
        await self.drop()
        await self._transport.place_of(self._key)
        pool = self._transport.lender(self._key)
        self._connection = await pool.get_connection()
        self._pool = pool
        self.opened += 1

    async def drop(self) -> None:
        """Close the connection; the next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pool is not None:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)

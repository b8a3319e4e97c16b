"""One node of a Redis Cluster on an asyncio loop: its connections, and whether it answers.

A node that did not answer in time gets no more commands until it has answered a PING. Commands for it fail at once, so
that one silent node does not delay the work on other nodes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from fastq.broker.transport.aio import AsyncNodeTransport
from fastq.broker.transport.confirm import Terms
from fastq.broker.transport.end_task import end_task
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import CONNECT_FAULTS, NoReply, Silent, Unsent, is_timeout

LOOK_EVERY_S: Final = 0.5
"""How often another node is asked for the slots of a silent one."""
_PING: Final = (Command(("PING",), None),)


class ProbingTransport(AsyncNodeTransport):
    """A transport to one node; while the node is silent, ``look`` checks whether it still has slots.

    ``answers`` is called once the node answers again.
    """

    def __init__(
        self,
        node: Any,
        look: Callable[[], Awaitable[bool]],
        answers: Callable[[], None],
        terms: Terms,
    ) -> None:
        super().__init__(_NodePool(node), terms)
        self._look = look
        self._answers = answers
        self._silence: Exception | None = None
        self._probe: asyncio.Task[None] | None = None

    @property
    def is_silent(self) -> bool:
        """Return whether the node has stopped answering."""
        return self._silence is not None

    async def transfer(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands and read their replies, unless the node is silent."""
        if self._silence is not None:
            return [Silent(self._silence, self.where)] * len(commands)
        replies = await super().transfer(commands)
        fault = replies[-1]  # after a fault, all replies are that fault
        if isinstance(fault, (NoReply, Unsent)) and is_timeout(fault.error) and self._silence is None:
            self._silence = fault.error
            self._probe = asyncio.create_task(self._wait_for_sign(), name="fastq probe")
        return replies

    async def close(self) -> None:
        """Stop probing a silent node; calls under way end soon."""
        await super().close()
        if self._probe is not None:
            await end_task(self._probe)

    async def _wait_for_sign(self) -> None:
        """Send PINGs until the node reacts, or has no slots any more. A refused connection is a reaction, too."""
        asking: asyncio.Task[list[Any]] | None = None
        try:
            while await self._look():
                asking = asking or asyncio.create_task(super().transfer(_PING))
                await asyncio.wait({asking}, timeout=LOOK_EVERY_S)
                if asking.done():
                    (reply,) = asking.result()
                    if not (isinstance(reply, (NoReply, Unsent)) and is_timeout(reply.error)):
                        self._silence = None
                        return self._answers()
                    asking = None
        finally:
            self._silence = None
            if asking is not None:
                await end_task(asking)


class _NodePool:
    """The connections of one node, with the interface of a redis-py pool."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.connection_kwargs: dict[str, Any] = node.connection_kwargs
        self.max_connections: int = node.max_connections

    async def get_connection(self) -> Any:
        """Lend a connected connection."""
        return await lend(self._node)

    async def release(self, connection: Any) -> None:
        """Take a connection back."""
        self._node.release(connection)


async def lend(node: Any) -> Any:
    """Return a connection of a node, connected and in step; the caller must release it."""
    connection = node.acquire_connection()
    try:
        await connection.connect()
        if await _is_stale(connection):
            await connection.disconnect(nowait=True)
            await connection.connect()
    except BaseException:
        node.release(connection)
        raise
    return connection


async def _is_stale(connection: Any) -> bool:
    """Return whether there is something to read.

    Nothing was requested, so it is the end: the node has closed the idle connection.
    """
    try:
        return bool(await connection.can_read())
    except CONNECT_FAULTS:
        return True

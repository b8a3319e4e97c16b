"""One asynchronous client in several event loops, in several threads or one after the other.

A connection belongs to the loop that made it. In another loop redis-py would write the command and then fail to wait
for the reply. A caller that tries again would then have the command carried out twice. So each loop has connections of
its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fastq.broker.transport.aio import AsyncPool, AsyncTransport
from fastq.broker.transport.exchange import Command


class Opened(NamedTuple):
    """A transport for one loop, and the function that closes its connections."""

    transport: AsyncTransport
    close: Callable[[], Awaitable[None]]


class LoopTransport:
    """The transports of a client, one for each event loop that uses it.

    ``first`` is for the first loop; ``another`` opens one for each later loop. Connections that a loop leaves open are
    closed when it ends, by ``loop.shutdown_asyncgens``, which ``asyncio.run`` and all runners call.
    """

    def __init__(self, first: Opened, another: Callable[[], Opened]) -> None:
        self._unused = [first]
        self._another = another
        self._by_loop: dict[asyncio.AbstractEventLoop, tuple[AsyncTransport, AsyncGenerator[None]]] = {}
        self.where = first.transport.where
        self.node_name_of: Callable[[str], str] | None = (
            None if first.transport.node_name_of is None else self._node_name_of
        )

    def transfer(self, commands: Sequence[Command]) -> Coroutine[Any, Any, list[Any]]:
        """Send commands on connections of the running loop and return their replies."""
        return self._transport().transfer(commands)

    def begin(self, commands: Sequence[Command], done: Callable[[list[Any]], None], most_s: float) -> bool:
        """Send commands on a free connection of the running loop; return false if there is none."""
        return self._transport().begin(commands, done, most_s)

    def lender(self, key: str | None = None) -> AsyncPool:
        """Return a pool that lends connections of the running loop for exclusive use."""
        return self._transport().lender(key)

    async def place_of(self, key: str) -> str:
        """Return the address of a key's node."""
        return await self._transport().place_of(key)

    def on_change(self, call: Callable[[], None]) -> None:
        """Register a function to call in the running loop whenever keys get another master."""
        self._transport().on_change(call)

    def _node_name_of(self, key: str) -> str:
        node_name_of = self._transport().node_name_of
        return "" if node_name_of is None else node_name_of(key)

    async def close(self) -> None:
        """Close the connections of the running loop; those of other loops are closed with their loops."""
        if opened := self._by_loop.pop(asyncio.get_running_loop(), None):
            await opened[1].aclose()

    def _transport(self) -> AsyncTransport:
        loop = asyncio.get_running_loop()
        opened = self._by_loop.get(loop) or self._open_in(loop)
        return opened[0]

    def _open_in(self, loop: asyncio.AbstractEventLoop) -> tuple[AsyncTransport, AsyncGenerator[None]]:
        for other in list(self._by_loop):
            if other.is_closed():  # closed without a shutdown; its sockets are closed with their transports
                self._by_loop.pop(other, None)  # another thread may have removed it already
        try:
            transport, close = self._unused.pop()
        except IndexError:
            transport, close = self._another()
        at_the_end = _close_at_the_end(close)
        with suppress(StopIteration):
            at_the_end.__anext__().send(None)  # registers the generator with the loop
        self._by_loop[loop] = transport, at_the_end
        return self._by_loop[loop]


async def _close_at_the_end(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await close()

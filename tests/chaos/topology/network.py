"""The network of a site: a TCP proxy before each port of a node, with walls and delays between two ends.

An end is known by the address it connects from: each node and sentinel has one of its own on the loopback network, all
others are clients. (Linux has all of 127.0.0.0/8 for that.) What passes from clients to nodes is searched for the ids
of tasks: this is how the bench knows which node a task was given to.
"""

import asyncio
import contextlib
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from tests.chaos.topology.books import Passage
from tests.ports import free_port

T = TypeVar("T")
Link = frozenset[str]

CLIENT: Final = "client"
_CHUNK: Final = 1 << 18
_LOOK_S: Final = 0.02
_ID: Final = re.compile(rb"chaos-[a-z]\d{7}")
_ID_LENGTH: Final = 14


class Network:
    """Proxies on a loop in a thread of its own; calls come from other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos network")
        self._thread.start()
        self._listeners: dict[int, asyncio.Server] = {}
        self._open: defaultdict[int, set[asyncio.StreamWriter]] = defaultdict(set)
        self._sources: dict[str, str] = {}
        self._walls: frozenset[Link] = frozenset()
        self._delays: dict[Link, float] = {}
        self._delay_s = 0.0
        self.passages: defaultdict[str, list[Passage]] = defaultdict(list)

    def name(self, end: str, address: str) -> None:
        """Let who connects from an address be known as an end."""
        self._sources[address] = end

    def open(self, target: Callable[[], tuple[str, int]]) -> int:
        """Listen on a new port; ``target`` says for each connection which end it is to, and at which port."""
        port = free_port()

        async def listen() -> None:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                self._open[port].add(writer)
                # Raised further when the bench ends, Python 3.11's streams would print it.
                with contextlib.suppress(asyncio.CancelledError):
                    await self._serve(reader, writer, *target())
                self._open[port].discard(writer)

            self._listeners[port] = await asyncio.start_server(serve, "127.0.0.1", port, limit=_CHUNK)

        self._call(listen())
        return port

    def shut(self, port: int) -> None:
        """Refuse connections to a port from now on, and end those that there are."""

        async def close() -> None:
            self._listeners.pop(port).close()

        self._call(close())
        self.cut(port)

    def cut(self, port: int) -> None:
        """End the connections to a port; new ones are taken."""

        async def end() -> None:
            for writer in list(self._open[port]):
                writer.transport.abort()

        self._call(end())

    # What goes wrong ----------------------------------------------------------------------------------------------

    def cut_off(self, end: str, others: Iterable[str]) -> None:
        """Let nothing pass between an end and others until ``heal``; what was sent then passes late."""
        self._walls = frozenset(frozenset((end, other)) for other in others)

    def slow(self, one: str, other: str, seconds: float) -> None:
        """Delay what passes between two ends."""
        self._delays = {frozenset((one, other)): seconds}

    def slow_all(self, seconds: float) -> None:
        """Delay everything."""
        self._delay_s = seconds

    def heal(self) -> None:
        """End all walls and delays."""
        self._walls, self._delays, self._delay_s = frozenset(), {}, 0.0

    # What passes --------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: str, port: int) -> None:
        source = self._sources.get(writer.get_extra_info("peername")[0], CLIENT)
        link = frozenset((source, node))
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port, limit=_CHUNK)
        except OSError:
            writer.transport.abort()
            return
        pumps = [
            asyncio.ensure_future(self._pump(reader, up_writer, link, node if source == CLIENT else "")),
            asyncio.ensure_future(self._pump(up_reader, writer, link, "")),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            writer.transport.abort()
            up_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link, node: str) -> None:
        tail = b""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if delay_s := self._delays.get(link, self._delay_s):
                    await asyncio.sleep(delay_s)
                while link in self._walls:
                    await asyncio.sleep(_LOOK_S)
                if node:
                    self._note(tail + data, node)
                    tail = data[1 - _ID_LENGTH :]
                writer.write(data)
                await writer.drain()

    def _note(self, data: bytes, node: str) -> None:
        now = time.time()
        for found in set(_ID.findall(data)):
            passed = self.passages[found.decode()]
            if not passed or passed[-1].node != node:
                passed.append(Passage(now, node))

    def _call(self, doing: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(10)

    def close(self) -> None:
        """End all connections and the thread."""

        async def end() -> None:
            for listener in self._listeners.values():
                listener.close()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        # Connections that were not served yet are canceled, too, which Python 3.11's streams would print.
        self._loop.set_exception_handler(lambda _loop, _context: None)
        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def network() -> Iterator[Network]:
    """Give a network without a port."""
    made = Network()
    try:
        yield made
    finally:
        made.close()

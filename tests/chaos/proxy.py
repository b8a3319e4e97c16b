"""A TCP proxy before Redis that can be broken: refuse, reset, fall silent, delay, cut after n bytes.

Each server has one of its own, so that the bench knows whom a fault has struck. They run on one event loop in a thread.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CHUNK: Final = 1 << 18
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: close() sends a reset."""


class Proxy:
    """Pass bytes between a port and a Unix socket; what it does wrong is switched on and off, on its loop."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._pairs: set[_Pair] = set()
        self._listener: asyncio.Server | None = None
        self.port = 0
        self.delay_s = 0.0
        self.cut_after = 0
        self.passing = asyncio.Event()
        self.passing.set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def listen(self) -> None:
        """Take connections; on the same port as before, if there was one."""
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=_CHUNK)
            self.port = int(self._listener.sockets[0].getsockname()[1])

    async def refuse(self) -> None:
        """Take no more connections, and reset those there are."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self.drop()

    async def drop(self) -> None:
        """Reset all connections."""
        for pair in list(self._pairs):
            pair.reset()

    async def silence(self) -> None:
        """Pass nothing on any more."""
        self.passing.clear()

    async def delay(self, seconds: float) -> None:
        """Delay every packet by so much."""
        self.delay_s = seconds

    async def cut(self, after: int) -> None:
        """Reset each connection once it has passed so many more bytes, in whichever direction."""
        self.cut_after = after
        for pair in self._pairs:
            pair.left = after

    async def repair(self) -> None:
        """Do everything right again; connections that had fallen silent stay so, and are dead."""
        self.delay_s = 0.0
        self.cut_after = 0
        for pair in self._pairs:
            pair.left = 0
            pair.is_dead |= not self.passing.is_set()
        self.passing.set()
        await self.listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_unix_connection(self._socket_path, limit=_CHUNK)
        except OSError:
            writer.close()
            return
        pair = _Pair(self, writer, upstream[1])
        self._pairs.add(pair)
        pumps = [
            asyncio.ensure_future(pair.pump(reader, upstream[1])),
            asyncio.ensure_future(pair.pump(upstream[0], writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            return  # the bench ends; raised further, Python 3.11's streams would print it
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._pairs.discard(pair)
            pair.reset()


class _Pair:
    """One connection through a proxy: both its ends; ``left`` bytes may pass, 0 for any number."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, redis: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._ends = (client, redis)
        self.left = proxy.cut_after
        self.is_dead = False

    def reset(self) -> None:
        for end in self._ends:
            sock: socket.socket | None = end.get_extra_info("socket")
            if sock is not None and sock.family == socket.AF_INET:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.transport.abort()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if self._proxy.delay_s:
                    await asyncio.sleep(self._proxy.delay_s)
                await self._proxy.passing.wait()
                if self.is_dead:
                    continue
                if self.left and len(data) >= self.left:
                    writer.write(data[: self.left])
                    await writer.drain()
                    return
                self.left -= min(self.left, len(data))
                writer.write(data)
                await writer.drain()


class Proxies:
    """Run proxies on a loop in a thread of its own; calls come from other threads."""

    def __init__(self, socket_path: str, count: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos proxies")
        self._thread.start()
        self.all = self.call(self._make(socket_path, count))

    async def _make(self, socket_path: str, count: int) -> list[Proxy]:
        made = [Proxy(socket_path) for _ in range(count)]
        for proxy in made:
            await proxy.listen()
        return made

    def call(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop, and wait until it is done."""
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(10)

    def close(self) -> None:
        """End all connections and the thread."""

        async def end() -> None:
            for proxy in self.all:
                await proxy.refuse()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        self.call(end())
        stop: Callable[[], None] = self._loop.stop
        self._loop.call_soon_threadsafe(stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def proxies(socket_path: str, count: int) -> Iterator[Proxies]:
    """Give so many proxies to the Redis at a Unix socket."""
    made = Proxies(socket_path, count)
    try:
        yield made
    finally:
        made.close()

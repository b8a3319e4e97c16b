"""A TCP proxy that passes bytes on after a while: ``python delay_proxy.py PORT MILLISECONDS`` of a round trip.

Prints the port on which it listens. Chunks of bytes keep their order, and are delayed each by itself, so that pipelines
are as fast as on a long line. Only the standard library is needed.
"""

import asyncio
import selectors
import sys

CHUNK = 1 << 18
HIGH = 64


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Pass the bytes of one direction on."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HIGH)

    async def read() -> None:
        while data := await reader.read(CHUNK):
            await chunks.put((loop.time() + delay_s, data))
        await chunks.put((0.0, b""))

    reading = asyncio.create_task(read())
    try:
        while True:
            due_s, data = await chunks.get()
            if not data:
                break
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            writer.write(data)
            await writer.drain()
    finally:
        reading.cancel()
        writer.close()


async def main(target: int, away_ms: float) -> None:
    """Listen for ever."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target)
        delay_s = away_ms / 2000
        await asyncio.gather(
            _carry(reader, there_writer, delay_s), _carry(there_reader, writer, delay_s), return_exceptions=True
        )

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    # Select, since epoll's timeouts are whole milliseconds, to which asyncio rounds them up.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(main(int(sys.argv[1]), float(sys.argv[2])))

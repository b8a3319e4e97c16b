"""Drives a contender's producer from the harness: one JSON request a line on stdin, one answer a line on stdout.

The clock runs here, round the library's own calls; the harness has no part in it. Only the standard library is needed.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

__all__ = ["AsyncSend", "Send", "serve", "serve_async"]

Send = Callable[[str, int], object]
"""Enqueues so many tasks of a kind and returns when Redis has them all."""

AsyncSend = Callable[[str, int], Awaitable[object]]


def serve(each: Send, many: Send) -> None:
    """Answer requests until stdin ends: ``each`` calls the library once a task, ``many`` is its best way in bulk."""
    _say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        send = each if request["op"] == "each" else many
        began_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        send(request["kind"], request["count"])
        ended_ns = time.monotonic_ns()
        _say({"began_ns": began_ns, "ended_ns": ended_ns, "cpu_ns": time.process_time_ns() - cpu_ns})


def serve_async(start: Callable[[], Awaitable[object]], each: AsyncSend, many: AsyncSend) -> None:
    """Do the same for a library of coroutines, all on one event loop; ``start`` runs first."""
    loop = asyncio.new_event_loop()

    def driven(send: AsyncSend) -> Send:
        async def sent(kind: str, count: int) -> None:
            await send(kind, count)

        return lambda kind, count: loop.run_until_complete(sent(kind, count))

    async def started() -> None:
        await start()

    loop.run_until_complete(started())
    serve(driven(each), driven(many))


def _say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)

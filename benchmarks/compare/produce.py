"""Drives a contender's producer from the harness: one JSON request a line on stdin, one answer a line on stdout.

The clock runs here, round the library's own calls; the harness has no part in it. Only the standard library is needed.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable

Send = Callable[[str, int], object]
"""Enqueues so many tasks of a kind and returns when Redis has them all."""

AsyncSend = Callable[[str, int], Awaitable[object]]


def serve(each: Send, many: Send) -> None:
    """Answer requests until stdin ends.

    ``each`` calls the library once a task, ``many`` is its best way in bulk. ``paced`` calls ``each`` at random times,
    so many a second in the mean, with the time that was due as part of the kind.
    """
    _say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        began_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        late_ns: list[int] = []
        if request["op"] == "paced":
            late_ns = _pace(each, request["kind"], request["count"], request["rate"])
        else:
            send = each if request["op"] == "each" else many
            send(request["kind"], request["count"])
        ended_ns = time.monotonic_ns()
        used_ns = time.process_time_ns() - cpu_ns
        _say({"began_ns": began_ns, "ended_ns": ended_ns, "cpu_ns": used_ns, "late_ns": late_ns})


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


def _pace(each: Send, kind: str, count: int, rate: float) -> list[int]:
    drawn = random.Random(7)
    due_ns, late_ns = time.monotonic_ns(), []
    for _ in range(count):
        due_ns += round(1e9 * drawn.expovariate(rate))
        time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
        each(f"{kind}:{due_ns}", 1)
        late_ns.append(time.monotonic_ns() - due_ns)
    return late_ns


def _say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)

"""``fastq-worker`` that counts what its event loop does; a line of JSON each half second.

``COUNTS=FILE python -m benchmarks.counted_worker ARGUMENT...``.
"""

import asyncio
import json
import os
import sys
from asyncio import base_events, events
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fastq.cli.worker import main
from fastq.server.inflight.ack_writer import AckWriter

EVERY_S: Final = 0.5


def install(file: Path) -> None:
    """Count passes of the loop, the callbacks that it runs, tasks, futures, timers, and turns: writes of ends."""
    counts: Counter[str] = Counter()

    def counted(owner: Any, name: str, what: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def count(*args: Any, **kwargs: Any) -> Any:
            counts[what] += 1
            return function(*args, **kwargs)

        setattr(owner, name, count)

    counted(base_events.BaseEventLoop, "_run_once", "passes")
    counted(events.Handle, "_run", "callbacks")
    counted(base_events.BaseEventLoop, "create_future", "futures")
    counted(base_events.BaseEventLoop, "create_task", "tasks")
    counted(base_events.BaseEventLoop, "call_at", "timers")
    counted(AckWriter, "write", "turns")

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            counts["calls"] += 1
        elif event == "c_call":
            counts["calls of C"] += 1

    def tell() -> None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{json.dumps(counts)}\n")
        asyncio.get_running_loop().call_later(EVERY_S, tell)

    run = AckWriter.write

    async def write(self: AckWriter, *args: Any, **kwargs: Any) -> Any:
        if not counts["told"]:
            counts["told"] += 1
            tell()
            sys.setprofile(profile)
        return await run(self, *args, **kwargs)

    AckWriter.write = write  # type: ignore[method-assign]  # the clock of the counts begins with the first turn


if __name__ == "__main__":
    install(Path(os.environ.pop("COUNTS")))
    main()

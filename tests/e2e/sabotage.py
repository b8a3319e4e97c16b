"""Run a server whose fetcher's task ends at a signal, as by a cancellation that went astray in a library."""

import asyncio
import json
import signal
import sys
from typing import Final

from fastq.server.launch import options_from
from fastq.server.run import run_server

SIGNAL: Final = signal.SIGRTMIN
"""One that neither the server nor its children have a meaning for."""


def cancel_fetcher(signum: int, frame: object) -> None:
    loop = asyncio.get_running_loop()
    for task in asyncio.all_tasks(loop):
        if task.get_name() == "fastq fetcher":
            loop.call_soon_threadsafe(task.cancel)


if __name__ == "__main__":
    signal.signal(SIGNAL, cancel_fetcher)
    sys.exit(run_server(options_from(json.loads(sys.argv[1]))))

"""A main process for tests that kill one: ``main_program ARGUMENT PROCESSES START_METHOD ORDER...``.

Prints the process ids of its preloader and children, then one line an event, until it is killed.
"""

import asyncio
import os
import sys

from fastq.pool.main.child_queue import Event, Submission
from fastq.pool.main.pool import ProcessPool
from fastq.pool.main.protocol import PoolListener
from tests.pool.harness import settings


class Report(PoolListener):
    def on_events(self, events: list[Event]) -> None:
        for event in events:
            print(event.submission.key, event.kind.name, flush=True)  # noqa: T201 - what the test reads


async def main() -> None:
    argument, processes, start_method, *orders = sys.argv[1:]
    config = settings(argument, processes=int(processes), start_method=start_method)
    pool = ProcessPool(config)
    start = asyncio.create_task(pool.start(Report()))
    while not pool.preloader_pid:
        await asyncio.sleep(0.001)
    print(pool.preloader_pid, flush=True)  # noqa: T201
    await start
    print(*pool.child_states, flush=True)  # noqa: T201
    pool.submit([Submission(number, order.encode()) for number, order in enumerate(orders)])
    await asyncio.Event().wait()


if __name__ == "__main__":
    assert os.environ.get("PYTHONPATH")
    asyncio.run(main())

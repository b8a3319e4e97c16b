"""The handler of the bench's workers: it writes down each run, in a file that no fault reaches."""

import os
import time
import uuid

from fastq import RunningTask, ServeMux

LEDGER = "CHAOS_LEDGER"

mux = ServeMux()


@mux.handler("job")
def job(task: RunningTask) -> None:
    """Do what the Go peer's scripted handler does with the same payload."""
    run = uuid.uuid4().hex
    _write(f"began {task.id} {run} {time.time():.6f}\n")
    time.sleep(task.json()["for_ns"] / 1e9)
    _write(f"ended {task.id} {run} {time.time():.6f}\n")


def _write(line: str) -> None:
    """Append a line at once: one write of so few bytes is never mixed with another's."""
    file = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)

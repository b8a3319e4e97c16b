"""A handler of 0.2 s that writes down its begin and its end, and in which server it runs."""

import os
import time
from typing import Final

from fastq import RunningTask, ServeMux

WORK_S: Final = 0.2

mux = ServeMux()
_ledger = os.open(os.environ["BENCH_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def tell(what: str, task_id: str) -> None:
    """Append one line, which no other writer can divide."""
    os.write(_ledger, f"{what} {task_id} {os.environ['BENCH_SERVER']} {time.monotonic_ns()}\n".encode())


@mux.handler("bench:told")
def told(task: RunningTask) -> None:
    """Wait, and write down when this began and ended."""
    tell("began", task.id)
    time.sleep(WORK_S)
    tell("ended", task.id)

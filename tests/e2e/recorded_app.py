"""An app that keeps a ledger of its attempts: a line each with the task, the attempt, and how long it ran."""

import os
import time

from fastq import Retry, RunningTask, ServeMux

mux = ServeMux()


def note(task: RunningTask, ran_s: float) -> None:
    line = f"{task.id} {task.retried + 1} {ran_s}\n".encode()
    fd = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, line)
    os.close(fd)


@mux.handler("work")
def work(task: RunningTask) -> None:
    began_s = time.perf_counter()
    try:
        if task.payload == b"slow":
            time.sleep(0.03)
        if task.payload == b"steps":
            task.checkpoint(1)
            task.progress(1, 2)
            task.write_result(b"half")
            task.checkpoint(2)
            time.sleep(0.03)
        if task.payload == b"fail":
            raise KeyError("no such thing")
        if task.payload == b"again" and not task.retried:
            raise Retry(after=0)
    finally:
        note(task, time.perf_counter() - began_s)

"""The demo's app, as ``fastq-worker fastq.demo.app:mux`` runs it: handlers that work, fail, hang and crash.

Your own app looks the same, with ``from fastq import ServeMux, SkipRetry, Task``.
"""

import os
import time

from fastq.demo.ledger import LEDGER_VARIABLE, LedgerWriter
from fastq.demo.work import Facts, features, fingerprint, squeeze
from fastq.errors import RevokeTask, SkipRetry
from fastq.mux import ServeMux
from fastq.running import RunningTask as Task

mux = ServeMux()

if path := os.environ.get(LEDGER_VARIABLE):
    mux.use(LedgerWriter(path).middleware)


def retry_soon(retried: int, error: BaseException, task: Task) -> float:
    """Return the seconds until the next attempt, less than by default, which would make the demo long."""
    return 1.0 + retried


@mux.handler("text:fingerprint")
def text_fingerprint(task: Task) -> Facts:
    """Hash a text in two ways."""
    return fingerprint(task.payload)


@mux.handler("text:squeeze")
def text_squeeze(task: Task) -> Facts:
    """Compress a text."""
    return squeeze(task.payload)


@mux.handler("text:features")
def text_features(task: Task) -> Facts:
    """Count words."""
    return features(task.payload)


@mux.handler("flaky:fingerprint")
def flaky(task: Task) -> Facts:
    """Fail the first time, as if a service were down, and succeed the second time."""
    if task.retried == 0:
        raise ConnectionError("the storage did not answer")
    return fingerprint(task.payload)


@mux.handler("fail:always")
def fail(task: Task) -> None:
    """Fail until no retry is left."""
    raise ValueError("this text is in no language that I know")


@mux.handler("fail:skip")
def fail_at_once(task: Task) -> None:
    """Fail in a way that no retry will fix."""
    raise SkipRetry("this text will never be readable")


@mux.handler("fail:revoke")
def revoke(task: Task) -> None:
    """End the task because it is no longer wanted."""
    raise RevokeTask("this text has been withdrawn")


@mux.handler("hang:loop")
def loop(task: Task) -> None:
    """Compute forever; the exception of the timeout is raised inside this loop."""
    while True:
        pass


@mux.handler("hang:sleep")
def sleep(task: Task) -> None:
    """Sleep forever, until a timeout or a cancellation."""
    time.sleep(10**6)


@mux.handler("hang:stubborn")
def refuse_to_end(task: Task) -> None:
    """Hang, and swallow the exception of the timeout: after the grace time the whole process is killed."""
    while True:
        try:
            time.sleep(10**6)
        except BaseException:  # noqa: BLE001 - this handler has this defect on purpose
            continue


@mux.handler("crash:exit")
def crash(task: Task) -> None:
    """Kill the process, as a segmentation fault would."""
    os._exit(70)

"""The files that a task passes on its way; whoever follows it reads these."""

import sys
from pathlib import Path
from types import FrameType

from redis import Redis

import fastq
from fastq import Client

ROOT = Path(fastq.__file__).parent
ENQUEUE = {
    "client.py",
    "producer.py",
    "task.py",
    "encoding.py",
    "options.py",
    "info.py",
    "clock.py",
    "wire/keys.py",
    "broker/operation.py",
    "broker/operations/enqueue.py",
    "broker/operations/queue_register.py",
    "broker/transport/blocking.py",
    "broker/transport/exchange.py",
    "broker/transport/sentinel.py",
}
"""Beside these there are ``_ids.pyx``, ``_codec.pyx`` and ``enqueue.lua``."""


def test_a_task_that_is_enqueued_passes_these_files(db: Redis, url: str) -> None:
    passed = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            passed.add(str(path.relative_to(ROOT)))

    with Client(url) as client:
        client.enqueue("t")  # connects, and registers the queue
        sys.setprofile(note)
        try:
            client.enqueue("t", {"id": 7})
        finally:
            sys.setprofile(None)
    assert passed == ENQUEUE

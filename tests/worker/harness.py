"""A task that runs, without the pool: its message, and a context that notes what the handler writes."""

from typing import Any

from fastq.checkpoint import Unserved
from fastq.pool.shared.event_kind import EventKind
from fastq.running import RunningTask
from fastq.wire.codec import TaskMessage, encode_task_message


class FakeContext(Unserved):
    """A fake pool."""

    is_forked = False

    def __init__(self, *, started_ns: int = 0, deadline_ns: int = 0, interruption: EventKind | None = None) -> None:
        self.started_ns = started_ns
        self.deadline_ns = deadline_ns
        self.interruption = interruption
        self.written: list[bytes] = []
        self.told: list[bytes] = []
        self.told_late: list[bytes] = []

    def write_result(self, data: bytes) -> None:
        self.written.append(data)

    def write_progress(self, data: bytes, is_soon: bool) -> None:
        (self.told_late if is_soon else self.told).append(data)


def encoded(**fields: Any) -> bytes:
    """Encode a message."""
    return encode_task_message(TaskMessage(**{"type": "t", "id": "id-1", "queue": "q", "retry": 25, **fields}))


def running(context: FakeContext | None = None, /, **fields: Any) -> RunningTask:
    """Make a task as its handler sees it."""
    message = TaskMessage(**{"type": "t", "id": "id-1", "queue": "q", "retry": 25, **fields})
    return RunningTask(message, context or FakeContext())

"""A walk through a list or set of tasks from its oldest on, a page per call, while others change it; and running some.

A place in it is not a number, because tasks that leave shift the others. So each call names the last ids passed, and
continues after the last one that is still there.
"""

from collections import deque
from collections.abc import Sequence
from hashlib import sha1
from typing import Any, Final, NamedTuple

from fastq.broker.inspect.bulk import BulkResult, Source
from fastq.broker.operation import Flow, Operation, Word, scripted
from fastq.wire import keys

__all__ = ["Chosen", "Walk", "WalkPage", "WalkedTask", "run_chosen", "run_some"]

TASKS_A_CALL: Final = 200
MAX_PAGE_BYTES: Final = 256_000
REMEMBERED: Final = 50
"""The number of passed ids of which one must remain, so that the walk finds its place; otherwise tasks come twice."""


class WalkedTask(NamedTuple):
    """A task in a list or set: all fields of its hash, or none if there is no hash.

    ``lock_ms`` is the time for which the task still holds the lock that its hash names: -1 forever, -2 if it does not
    hold it or this was not checked.
    """

    id: bytes
    score: bytes
    fields: dict[bytes, bytes]
    lock_ms: int = -2

    @property
    def message(self) -> bytes | None:
        """Return the encoded message."""
        return self.fields.get(b"msg")


class WalkPage(NamedTuple):
    """Some consecutive tasks, and the number of tasks before them."""

    place: int
    tasks: list[WalkedTask]


class Walk:
    """A walk through the tasks of a source: ``page``, then ``passed`` with those that stay, until a page is empty."""

    def __init__(self, source: Source, *, with_locks: bool = False) -> None:
        self.source = source
        self._with_locks = with_locks
        self._place = 0
        self._passed: deque[WalkedTask] = deque(maxlen=REMEMBERED)

    def page(self, count: int = TASKS_A_CALL) -> Operation[WalkPage]:
        """Read the next tasks, fewer than ``count`` if they are big."""
        words: list[Word] = [word for task in reversed(self._passed) for word in (task.id, task.score)]
        args = (
            keys.task_prefix(self.source.queue),
            count,
            MAX_PAGE_BYTES,
            self._place,
            "1" if self._with_locks else "",
            *words,
        )
        return scripted("read_page", (self.source.key,), args, _parse_page, idempotent=True)

    def passed(self, page: WalkPage, staying: Sequence[WalkedTask]) -> None:
        """Note that a page was seen, and which of its tasks were left where they are."""
        self._place = page.place + len(staying)
        self._passed.extend(staying)


def _parse_page(reply: list[Any]) -> WalkPage:
    place, *words = reply
    return WalkPage(
        place,
        [
            WalkedTask(task_id, score, dict(zip(fields[::2], fields[1::2], strict=True)), lock_ms)
            for task_id, score, lock_ms, fields in zip(words[::4], words[1::4], words[2::4], words[3::4], strict=True)
        ],
    )


class Chosen(NamedTuple):
    """A task as it was read; ``digest`` is of its message, empty to match any."""

    id: bytes
    digest: bytes = b""

    @classmethod
    def of(cls, task: WalkedTask) -> "Chosen":
        """Return the reference to a task that was read."""
        return cls(task.id, sha1(task.message or b"", usedforsecurity=False).digest())


def run_some(source: Source, chosen: Sequence[Chosen], now_ns: int) -> Operation[BulkResult]:
    """Move some tasks of a sorted set to pending, if they are still there and unchanged."""
    words = [word for task in chosen for word in (task.id, task.digest.hex())]
    args = (keys.task_prefix(source.queue), source.state.value, now_ns, *words)
    script_keys = (source.key, keys.pending(source.queue))
    return scripted("run_chosen", script_keys, args, _parse_taken)


def _parse_taken(reply: list[int]) -> BulkResult:
    asked, moved = reply
    return BulkResult(asked, moved, [])


def run_chosen(source: Source, chosen: Sequence[Chosen], now_ns: int) -> Flow[int]:
    """Move any number of tasks to pending, as ``run_some`` does; returns how many were moved."""
    moved = 0
    for start in range(0, len(chosen), TASKS_A_CALL):
        taken: BulkResult = yield run_some(source, chosen[start : start + TASKS_A_CALL], now_ns)
        moved += taken.tasks
    return moved

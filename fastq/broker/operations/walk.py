"""A walk through a list or set of tasks from its oldest on, a page per call, while others change it.

Tasks that leave shift the others, so a position is no number: each call names the last ids passed, and continues after
the last of them that is still there.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from fastq.broker.operation import Operation, Word, scripted
from fastq.broker.transport.replies import scored
from fastq.common.states import TaskState
from fastq.wire import keys

LISTS: Final = frozenset({TaskState.PENDING, TaskState.ACTIVE})
"""The states whose ids are in a list; the ids of other states are in sorted sets."""

TASKS_A_CALL: Final = 200
MAX_PAGE_BYTES: Final = 256_000
REMEMBERED: Final = 50
"""The number of passed ids that are remembered.

If all of them have left, the walk loses its place and repeats tasks.
"""


class Source(NamedTuple):
    """A list or sorted set of a queue's ids, and the state of its tasks; ``group`` is its name if it is a group.

    ``last`` is the newest id or the greatest score that is still included; empty includes all.
    """

    queue: str
    key: str
    state: TaskState
    group: str = ""
    last: bytes = b""

    def size(self) -> Operation[int]:
        """Count the ids."""
        return Operation("LLEN" if self._is_list else "ZCARD", (self.key,), (), idempotent=True)

    def find_last(self) -> Operation[bytes]:
        """Read the value of ``last`` for the present ids."""
        if self._is_list:
            return Operation("LINDEX", (self.key,), (0,), lambda reply: reply or b"", idempotent=True)
        return Operation("ZRANGE", (self.key,), (-1, -1, "WITHSCORES"), _greatest, idempotent=True)

    @property
    def _is_list(self) -> bool:
        return self.state in LISTS


def _greatest(reply: list[Any]) -> bytes:
    return b"%r" % scored(reply)[0][1] if reply else b""


class WalkedTask(NamedTuple):
    """A task in a list or set: all fields of its hash, or none if there is no hash.

    ``lock_ms`` is how long the task still holds the lock that its hash names: -1 forever, -2 if it does not hold it, or
    if that was not checked.
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
    """A walk through the tasks of a source: ``page``, then ``passed`` with the tasks that stay, until the end."""

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

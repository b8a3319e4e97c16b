"""Finish: the dispositions of tasks, and the operations that write them, for many tasks of a queue at once.

Every operation takes the tasks off active and releases their leases. A task that is not active, or not the caller's any
more, is reported and does not affect the others. ``Guard`` says whose tasks may be touched.

Each disposition is a class over one script: the parts of the task that it needs, their size, and its operation. An
entry of ``FATES`` says how metrics, logs, history and waiting clients are told of the disposition.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, Self

from fastq.broker.operation import Operation, Word, scripted
from fastq.broker.operations.lanes import in_lanes, lane_keys
from fastq.broker.operations.lease import Owner, id_word
from fastq.wire import keys
from fastq.wire.inbox import EndKind, TaskEnd, error_in

ARCHIVE_MAX_SIZE: Final = 10_000
ARCHIVE_EXPIRY: Final = timedelta(days=90)
STATS_TTL: Final = timedelta(days=90)
OLDEST_FIRST: Final = -1
NEWEST_FIRST: Final = 1
"""One of the two ends of active at which a search may begin."""


class FinishOutcome(IntEnum):
    """The outcome for one task of a batch; the numbers are the scripts'."""

    OK = 1
    NOT_ACTIVE = 0
    NOT_OURS = -1


@dataclass(frozen=True, slots=True)
class Guard:
    """The tasks that may be written: those leased by ``owner``, those whose lease ends by ``expired_at``, or any.

    With ``expired_at`` the tasks count as lost.
    """

    owner: Owner | None = None
    expired_at: int | None = None

    def words(self) -> tuple[str, str]:
        """Return the two script arguments, owner and expired_at."""
        expired_at = "" if self.expired_at is None else str(self.expired_at)
        return ("" if self.owner is None else str(self.owner)), expired_at


ANY_OWNER: Final = Guard()
"""For work that was done: the end of the task is written even if another server has the lease by now."""


class Terms(NamedTuple):
    """The terms of one call: queue, time and owner, and the end of active at which the search begins."""

    queue: str
    now_ns: int
    now: datetime
    owner: Owner
    done_owner: Owner | None
    """The owner that done tasks must have, None for any. Tasks with another disposition must always be ``owner``'s."""
    side: int = OLDEST_FIRST
    lanes: Sequence[str] | None = None
    """In a queue with lanes, the lane of each done task, "" for none."""


class Disposition(Protocol):
    """The disposition of a task whose attempt has ended."""

    @property
    def id(self) -> str:
        """Return the task's id."""

    def size(self) -> int:
        """Return about how many bytes this end takes in a call."""

    @classmethod
    def operation(cls, ends: Sequence[Self], terms: Terms) -> Operation[list[FinishOutcome]]:
        """Return the operation that writes many ends of this disposition."""


class Done(NamedTuple):
    """A task that is done: it is deleted, with its unique lock."""

    id: str
    lock: str = ""

    def size(self) -> int:
        """Return about how many bytes this end takes in a call."""
        return _ID_SIZE

    @classmethod
    def operation(cls, ends: Sequence[Self], terms: Terms) -> Operation[list[FinishOutcome]]:
        """Return the operation that deletes the tasks."""
        return done(terms.queue, ends, terms.now, terms.done_owner, terms.side, lanes=terms.lanes)


class Completed(NamedTuple):
    """A task that is done and kept with its result; the message has the time of completion."""

    id: str
    message: bytes
    kept_until_s: int
    lock: str = ""
    result: bytes | None = None

    def size(self) -> int:
        """Return about how many bytes this end takes in a call."""
        return _TASK_SIZE + len(self.message) + len(self.result or b"")

    @classmethod
    def operation(cls, ends: Sequence[Self], terms: Terms) -> Operation[list[FinishOutcome]]:
        """Return the operation that moves the tasks to completed."""
        return complete(terms.queue, ends, terms.now, terms.done_owner, terms.side)


class Retried(NamedTuple):
    """A task to retry: its new message, the Unix second of the retry, and whether this attempt counts as a failure.

    ``attempt`` is the record of the failed attempt (``wire/attempts.py``), if there is one to keep.
    """

    id: str
    message: bytes
    retry_at_s: int
    is_failure: bool = True
    attempt: bytes = b""

    def size(self) -> int:
        """Return about how many bytes this end takes in a call."""
        return _TASK_SIZE + len(self.message) + len(self.attempt)

    @classmethod
    def operation(cls, ends: Sequence[Self], terms: Terms) -> Operation[list[FinishOutcome]]:
        """Return the operation that moves the tasks to retry."""
        return retry(terms.queue, ends, terms.now, Guard(terms.owner), terms.side)


class Archived(NamedTuple):
    """A task that failed for good, with its new message, and the record of the attempt as in ``Retried``."""

    id: str
    message: bytes
    attempt: bytes = b""

    def size(self) -> int:
        """Return about how many bytes this end takes in a call."""
        return _TASK_SIZE + len(self.message) + len(self.attempt)

    @classmethod
    def operation(cls, ends: Sequence[Self], terms: Terms) -> Operation[list[FinishOutcome]]:
        """Return the operation that archives the tasks."""
        return archive(terms.queue, ends, terms.now, Guard(terms.owner), terms.side)


class PutBack(NamedTuple):
    """A task that was lost with its server, and is to run again: its new message, and the record of the attempt."""

    id: str
    message: bytes
    attempt: bytes = b""


class Requeued(NamedTuple):
    """A task that has not run, or not to its end: it returns to the head of its queue, and no attempt is charged."""

    id: str

    def size(self) -> int:
        """Return about how many bytes this end takes in a call."""
        return _ID_SIZE

    @classmethod
    def operation(cls, ends: Sequence[Self], terms: Terms) -> Operation[list[FinishOutcome]]:
        """Return the operation that requeues the tasks."""
        return requeue(terms.queue, [end.id for end in ends], terms.now_ns, Guard(terms.owner))


class Parked(NamedTuple):
    """A task whose lane must slow down: it returns to the front of the lane, the lane rests, no attempt is charged."""

    id: str
    rest_us: int

    def size(self) -> int:
        """Return about how many bytes this end takes in a call."""
        return _ID_SIZE

    @classmethod
    def operation(cls, ends: Sequence[Self], terms: Terms) -> Operation[list[FinishOutcome]]:
        """Return the operation that parks the tasks."""
        return park(terms.queue, ends, terms.now_ns, Guard(terms.owner))


class RunOutcome(StrEnum):
    """What becomes of a task after a run."""

    DONE = "done"
    """Deleted, or kept as completed for its retention."""
    RETRY = "retry"
    """Retried later."""
    ARCHIVE = "archive"
    """Kept in the archive: it is out of retries, or raised SkipRetry."""
    REVOKE = "revoke"
    """Deleted, by RevokeTask."""


class Fate(NamedTuple):
    """The report of a disposition.

    ``outcome`` is its name in metrics and in the task log. ``word`` and ``level`` are for the log line about a task
    that failed. ``history`` names the counters of the history that count it. ``told`` returns the end to send to
    waiting clients; it is None if the task comes back. If the task ``stays`` in Redis, it keeps the last progress of
    its handler. ``run`` is what tests of an app are told.
    """

    outcome: str
    word: str
    level: int
    history: tuple[str, ...] = ()
    told: Callable[[Any], TaskEnd] | None = None
    stays: bool = False
    run: RunOutcome = RunOutcome.RETRY


def completed_end(end: Completed) -> TaskEnd:
    """Return the end of a completed task to send to waiting clients."""
    return TaskEnd(EndKind.DONE if end.result is None else EndKind.RESULT, result=end.result)


FATES: Final[Mapping[type[Disposition], Fate]] = {
    Done: Fate("done", "deleted", logging.INFO, ("done",), lambda end: TaskEnd(EndKind.GONE), run=RunOutcome.DONE),
    Completed: Fate("completed", "completed", logging.INFO, ("done",), completed_end, stays=True, run=RunOutcome.DONE),
    Retried: Fate("retried", "retried", logging.WARNING, ("failed", "retried")),
    Archived: Fate(
        "archived",
        "archived",
        logging.ERROR,
        ("failed", "archived"),
        lambda end: TaskEnd(EndKind.FAILED, error_in(end.message)),
        stays=True,
        run=RunOutcome.ARCHIVE,
    ),
    Requeued: Fate("requeued", "given back", logging.DEBUG),
    Parked: Fate("rate_limited", "rate limited", logging.DEBUG),
}
_ID_SIZE: Final = 100
_TASK_SIZE: Final = 200
"""The size in bytes that a task takes in a call, without its message and result."""


def done(
    queue: str,
    tasks: Sequence[Done],
    now: datetime,
    owner: Owner | None = None,
    side: int = OLDEST_FIRST,
    *,
    lanes: Sequence[str] | None = None,
) -> Operation[list[FinishOutcome]]:
    """Delete done tasks, release their locks, count them; ``side`` is the end of active at which the search begins.

    In a queue with lanes, ``lanes`` has the lane of each task, "" for none.
    """
    ids, locks = zip(*tasks, strict=True) if tasks else ((), ())  # by zip, in C, since most tasks end this way
    locked = [word for task in tasks if task.lock for word in task] if any(locks) else []
    operation = scripted(
        "done",
        (keys.active(queue), keys.lease(queue), keys.processed(queue, now), keys.processed_total(queue)),
        (keys.task_prefix(queue), stats_expiry(now), side, Guard(owner).words()[0], len(ids), *ids, *locked),
        partial(_outcomes, len(ids)),
    )
    return operation if lanes is None else in_lanes(operation, queue, lanes)


def complete(
    queue: str, tasks: Sequence[Completed], now: datetime, owner: Owner | None = None, side: int = OLDEST_FIRST
) -> Operation[list[FinishOutcome]]:
    """Keep done tasks with their results until their retention ends; release their locks, count them."""
    words: list[Any] = list(chain.from_iterable(tasks))  # in C, for each task its fields
    words[4::5] = [b"0" if result is None else b"1" + result for result in words[4::5]]
    script_keys = (
        keys.active(queue),
        keys.lease(queue),
        keys.completed(queue),
        keys.processed(queue, now),
        keys.processed_total(queue),
    )
    args: tuple[Word, ...] = (keys.task_prefix(queue), stats_expiry(now), side, Guard(owner).words()[0], *words)
    return scripted("complete", script_keys, args, partial(_outcomes, len(tasks)))


def retry(
    queue: str, tasks: Sequence[Retried], now: datetime, guard: Guard, side: int = OLDEST_FIRST
) -> Operation[list[FinishOutcome]]:
    """Move failed tasks to retry, where they wait for their next attempt; count those that are failures."""
    words: list[Any] = list(chain.from_iterable(tasks))
    words[3::5] = map(int, words[3::5])
    script_keys = (keys.active(queue), keys.lease(queue), keys.retry(queue), *_counters(queue, now))
    args: tuple[Word, ...] = (
        keys.task_prefix(queue),
        stats_expiry(now),
        side,
        *guard.words(),
        keys.due_channel(queue),
        *words,
    )
    return scripted("retry", script_keys, args, partial(_outcomes, len(tasks)))


def archive(
    queue: str, tasks: Sequence[Archived], now: datetime, guard: Guard, side: int = OLDEST_FIRST
) -> Operation[list[FinishOutcome]]:
    """Move tasks that failed for good to the archive, count them, and trim the archive."""
    words: list[Any] = list(chain.from_iterable(tasks))
    words[::3] = map(id_word, words[::3])
    script_keys = (
        keys.active(queue),
        keys.lease(queue),
        keys.archived(queue),
        *_counters(queue, now),
        *archive_keys(queue),
    )
    args: tuple[Word, ...] = (
        keys.task_prefix(queue),
        stats_expiry(now),
        side,
        *guard.words(),
        *archive_bounds(now),
        *words,
    )
    return scripted("archive", script_keys, args, partial(_outcomes, len(tasks)))


def archive_keys(queue: str) -> tuple[str, str]:
    """Return the keys that scripts need to keep the archive within its bounds."""
    return keys.archive_rule(queue), keys.paused(queue)


def archive_bounds(now: datetime) -> tuple[int, int, int]:
    """Return the archive's bounds as arguments: now, the time before which a failure is too old, the most tasks."""
    return int(now.timestamp()), int((now - ARCHIVE_EXPIRY).timestamp()), ARCHIVE_MAX_SIZE


def requeue(queue: str, task_ids: Sequence[str], now_ns: int, guard: Guard) -> Operation[list[FinishOutcome]]:
    """Put tasks back at the head of their queue in the given order, without charging an attempt."""
    script_keys = (keys.active(queue), keys.lease(queue), keys.pending(queue))
    args: tuple[Word, ...] = (keys.task_prefix(queue), now_ns, *guard.words(), *task_ids)
    return scripted("requeue", script_keys, args, partial(_outcomes, len(task_ids)))


def park(queue: str, ends: Sequence[Parked], now_ns: int, guard: Guard) -> Operation[list[FinishOutcome]]:
    """Put tasks back at the front of their lanes, without charging an attempt, and let these lanes rest.

    The script is a twin of requeue.lua, made by ``broker/twins.py``.
    """
    script_keys = (keys.active(queue), keys.lease(queue), keys.pending(queue), *lane_keys(queue))
    words: list[Word] = [word for end in ends for word in (id_word(end.id), end.rest_us)]
    args: tuple[Word, ...] = (keys.task_prefix(queue), now_ns, *guard.words(), *words)
    return scripted("park_lanes", script_keys, args, partial(_outcomes, len(ends)))


def put_back(queue: str, tasks: Sequence[PutBack], now_ns: int, guard: Guard) -> Operation[list[FinishOutcome]]:
    """Put lost tasks back at the head of their queue in the given order, without charging an attempt; count the loss.

    The guard needs ``expired_at``.
    """
    words: list[Word] = [word for task in tasks for word in (id_word(task.id), task.message, task.attempt)]
    script_keys = (keys.active(queue), keys.lease(queue), keys.pending(queue))
    args: tuple[Word, ...] = (keys.task_prefix(queue), now_ns, OLDEST_FIRST, *guard.words(), *words)
    return scripted("put_back", script_keys, args, partial(_outcomes, len(tasks)))


def release_lock(lock: str, task_id: str | bytes) -> Operation[int]:
    """Delete the unique lock of a task that no longer needs it, if the lock is still the task's."""
    return scripted("release_lock", (lock,), (task_id,), int, idempotent=True)


def _counters(queue: str, now: datetime) -> tuple[str, ...]:
    return (
        keys.processed(queue, now),
        keys.processed_total(queue),
        keys.failed(queue, now),
        keys.failed_total(queue),
    )


def stats_expiry(now: datetime) -> int:
    """Return the time until which the counters of a day are kept (Unix s)."""
    return int((now.astimezone(UTC) + STATS_TTL).timestamp())


def _outcomes(count: int, reply: Any) -> list[FinishOutcome]:
    if isinstance(reply, int):
        return [FinishOutcome.OK] * count
    return [FinishOutcome(code) for code in reply]

"""Leases: the owner of an active task, and the end of its lease.

A lease's score is the Unix second at which it ends plus the owner's fraction: a 20-bit number that each server draws
once, divided by 2**20. The sum is exact in a double, and the fraction does not affect asynq's range queries. Every
write that must not touch another server's task compares the fraction.
"""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fastq.broker.operation import Operation, scripted
from fastq.wire import keys

LEASE_S: Final = 30
MAX_LISTED_BYTES: Final = 256_000
_NONCE_BITS: Final = 20


@dataclass(frozen=True, slots=True)
class Owner:
    """The mark of one server on its leases; two servers share a mark once in a million."""

    fraction: float

    @classmethod
    def draw(cls) -> "Owner":
        """Draw a random mark. It is never 0, the fraction in the scores of asynq's leases."""
        return cls((1 + secrets.randbelow(2**_NONCE_BITS - 1)) / 2**_NONCE_BITS)

    def score(self, unix_s: float, lease_s: int = LEASE_S) -> str:
        """Return the score of a lease taken at ``unix_s``, exact as text."""
        return repr(int(unix_s + lease_s) + self.fraction)

    def __str__(self) -> str:
        return repr(self.fraction)


class LeasedTask(NamedTuple):
    """A task's id and its encoded message."""

    id: str
    message: bytes


class Leased(NamedTuple):
    """Leased tasks as parallel lists of ids and messages, and how many ids without a task were dropped.

    ``pending_since_ns`` says since when (Unix time) the first and the last of them had been pending, 0 if not known.
    """

    ids: list[bytes]
    messages: list[bytes]
    dangling: int = 0
    pending_since_ns: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, tasks: Iterable[LeasedTask]) -> "Leased":
        """Return tasks as parallel lists."""
        ids, messages = [], []
        for task_id, message in tasks:
            ids.append(id_word(task_id))
            messages.append(message)
        return cls(ids, messages)

    @property
    def size(self) -> int:
        """Return the number of tasks."""
        return len(self.ids)

    def task(self, place: int) -> LeasedTask:
        """Return one of the tasks; an id that is not UTF-8 has surrogates for its invalid bytes, see ``id_word``."""
        return LeasedTask(self.ids[place].decode("utf-8", "surrogateescape"), self.messages[place])

    @property
    def tasks(self) -> list[LeasedTask]:
        """Return all of the tasks."""
        return [self.task(place) for place in range(len(self.ids))]


def parse_leased(reply: list[Any]) -> Leased:
    """Parse a reply with tasks: a count, then an id and a message for each of them."""
    return Leased(reply[1::2], reply[2::2], reply[0])


class LeaseList(NamedTuple):
    """Tasks found by their leases, how often each was lost before, and how many leases without a task were dropped."""

    tasks: list[LeasedTask]
    lost: list[int]
    dangling: int


def lost_count(word: bytes | None) -> int:
    """Return how often a task was lost, from the field of its hash; 0 if the field is not a valid number."""
    return int(word) if word and len(word) < 10 and word.isdigit() else 0


def id_word(task_id: str) -> bytes:
    """Return the bytes of an id as they are in Redis."""
    return task_id.encode("utf-8", "surrogateescape")


def extend_leases(queue: str, owner: Owner, lease_score: str, task_ids: Sequence[str]) -> Operation[list[str]]:
    """Extend the owner's leases of at most 500 tasks; returns the ids whose leases are not the owner's any more."""
    return scripted(
        "extend_leases",
        (keys.lease(queue),),
        (str(owner), lease_score, *task_ids),
        lambda reply: [task_id.decode() for task_id in reply],
        idempotent=True,
    )


def restore_owner(queue: str, task_id: str, message: bytes, lease_score: str) -> Operation[bool]:
    """Give a lease its owner's mark again if no more than that was changed; returns whether it has that mark now.

    ``message`` is the task's as it was taken; only its hash is sent.
    """
    digest = hashlib.sha1(message, usedforsecurity=False).hexdigest()
    return scripted(
        "restore_owner",
        (keys.lease(queue),),
        (keys.task_prefix(queue), task_id, digest, lease_score),
        bool,
        idempotent=True,
    )


def list_leases(queue: str, lowest: str, highest: str, limit: int) -> Operation[LeaseList]:
    """Read tasks whose lease scores are in a range (inclusive; "-inf" for no lower end).

    The list may be incomplete: ask again once these tasks are moved, or for a higher range. Fails if Redis takes no
    writes.
    """
    return scripted(
        "list_leases",
        (keys.lease(queue), keys.active(queue)),
        (keys.task_prefix(queue), lowest, highest, limit, MAX_LISTED_BYTES),
        _parse_listed,
        idempotent=True,
    )


def list_owned(queue: str, owner: Owner, ends_s: range, most: int) -> Operation[list[str]]:
    """List the ids of an owner's leases that end in a range of Unix seconds, in the order in which they were taken.

    An id that is not UTF-8 is returned changed, and names no task.
    """
    return scripted(
        "list_owned",
        (keys.lease(queue), keys.active(queue)),
        (str(owner), ends_s.start, ends_s.stop, most),
        lambda reply: [task_id.decode(errors="replace") for task_id in reply],
        idempotent=True,
    )


def read_leased(queue: str, task_id: str) -> Operation[tuple[bytes | None, int]]:
    """Read a task's message, None if it has none, and how often the task was lost."""
    return Operation(
        "HMGET",
        (keys.task(queue, task_id),),
        ("msg", "lost"),
        lambda reply: (reply[0], lost_count(reply[1])),
        idempotent=True,
    )


def _parse_listed(reply: list[Any]) -> LeaseList:
    leased = Leased(reply[1::3], reply[2::3])
    return LeaseList(leased.tasks, [lost_count(word) for word in reply[3::3]], reply[0])

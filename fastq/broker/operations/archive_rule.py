"""The rule of a queue's archive: how many failed tasks it keeps, for how long, and what happens when it is full.

The rule is stored in Redis, so that every script that archives follows it, for all servers and inspectors. Go's scripts
ignore it and always trim at 10 000 tasks and 90 days.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from fastq.broker.operation import Operation, Word, scripted
from fastq.broker.operations.finish import ARCHIVE_EXPIRY, ARCHIVE_MAX_SIZE
from fastq.wire import keys

RULE_TTL_S: Final = int(ARCHIVE_EXPIRY.total_seconds())
"""How long a rule is kept if no janitor looks at it. Go's tools delete a queue, but not its rule."""
_FIELDS = ("max", "ttl", "full")


class ArchiveFull(StrEnum):
    """The action when an archive is full."""

    TRIM = "trim"
    """The oldest tasks are deleted, as asynq does."""

    PAUSE = "pause"
    """The queue is paused, so that no more of its tasks start."""

    SPILL = "spill"
    """A server writes the oldest tasks to a file, then deletes them."""


class ArchiveRule(NamedTuple):
    """The rule of one queue; the defaults are asynq's."""

    most: int = ARCHIVE_MAX_SIZE
    ttl_s: int = int(ARCHIVE_EXPIRY.total_seconds())
    full: ArchiveFull = ArchiveFull.TRIM


def read_archive_rule(queue: str) -> Operation[ArchiveRule]:
    """Read the rule of a queue; asynq's if none was set."""
    return Operation("HMGET", (keys.archive_rule(queue),), _FIELDS, parse_rule, idempotent=True)


def set_archive_rule(queue: str, rule: ArchiveRule) -> Operation[int]:
    """Set the rule of a queue, for all servers and inspectors.

    A server calls this at its start, since a server that lives for only seconds never runs its janitor.
    """
    words: tuple[Word, ...] = (rule.most, rule.ttl_s, rule.full.value, RULE_TTL_S)
    return scripted("set_archive_rule", (keys.archive_rule(queue),), words, int, idempotent=True)


def drop_archived(queue: str, tasks: Sequence[tuple[bytes, bytes]]) -> Operation[int]:
    """Delete tasks that are still archived with the given score, and their unique locks.

    Returns how many tasks are left in the archive.
    """
    words = [word for task in tasks for word in task]
    return scripted("drop_archived", (keys.archived(queue),), (keys.task_prefix(queue), *words), int, idempotent=True)


def parse_rule(reply: Sequence[bytes | None]) -> ArchiveRule:
    """Return the rule from the fields ``max``, ``ttl`` and ``full``; asynq's values replace unknown ones, as in Lua."""
    most, ttl, full = reply
    default = ArchiveRule()
    return ArchiveRule(
        int(most) if most and most.isdigit() else default.most,
        int(ttl) if ttl and ttl.isdigit() else default.ttl_s,
        next((each for each in ArchiveFull if each.value.encode() == full), default.full),
    )

"""Aggregation: the operations that take a group's tasks as a set, and put one task in their place or give them back.

A set is in one of three states, by its score in ``aggregation_sets``: a deadline (after it any recoverer, even Go's,
gives the set back), infinity (it was aggregated, and its remaining tasks must be deleted), or no score (it does not
exist any more). Every operation may be sent twice.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from fastq.broker.operation import Operation, Word, scripted
from fastq.broker.operations.enqueue import NewTask
from fastq.broker.operations.finish import ARCHIVE_EXPIRY, ARCHIVE_MAX_SIZE, archive_keys
from fastq.broker.operations.lease import MAX_LISTED_BYTES, Leased, id_word, parse_leased
from fastq.common.states import TaskState
from fastq.wire import keys

MAX_SET: Final = 5000
"""The most tasks that are taken at once, so that ``take_set`` takes less than 5 ms."""
STRETCH: Final = 500
"""The most tasks of a set that one call reads, deletes or gives back."""
AGGREGATED: Final = "+inf"


@dataclass(frozen=True, slots=True)
class GroupRule:
    """The conditions under which a group is aggregated, in whole seconds, as scores are; 0 means no limit.

    A group is due when it has ``max_size`` tasks, ``max_delay_s`` after its oldest task joined, or ``grace_s`` after
    its newest task joined.
    """

    grace_s: int
    max_delay_s: int = 0
    max_size: int = 0

    @classmethod
    def of_seconds(cls, grace_s: float, max_delay_s: float, max_size: int) -> "GroupRule":
        """Round up to whole seconds: a group never waits for less than the given time."""
        return cls(math.ceil(grace_s), math.ceil(max_delay_s), max_size)


@dataclass(frozen=True, slots=True)
class AggregationSet:
    """A set of tasks that were taken out of a group."""

    queue: str
    group: str
    id: str

    @property
    def key(self) -> str:
        """Return the key of the set."""
        return keys.aggregation_set(self.queue, self.group, self.id)

    @classmethod
    def of_key(cls, queue: str, key: str) -> "AggregationSet | None":
        """Parse a key as asynq does, with the set's id after the last colon; None if it is not the key of a set."""
        group, _, set_id = key.removeprefix(keys.group_prefix(queue)).rpartition(":")
        one = cls(queue, group, set_id)
        return one if one.key == key else None


class SetList(NamedTuple):
    """Aggregation sets, and the other members of the queue's list of sets: they are not keys of sets."""

    sets: list[AggregationSet]
    foreign: list[bytes]


class GroupScan(NamedTuple):
    """The next cursor (0: none), the groups that are due, and when the next group is due (Unix seconds)."""

    cursor: int
    next_due_s: float | None
    due: list[str]


class Relisted(NamedTuple):
    """The next cursor (0: the beginning), and how many groups were put on the list."""

    cursor: int
    groups: int


class CommitOutcome(IntEnum):
    """The outcome of replacing a set by a task; the numbers are the script's."""

    DONE = 1
    DONE_BEFORE = 2
    ID_CONFLICT = 0
    DUPLICATE = -1
    GONE = -2


def scan_groups(queue: str, cursor: int, rule: GroupRule, now_s: int) -> Operation[GroupScan]:
    """Check about 500 listed groups from a ``cursor`` on, which is 0 at first."""
    return scripted(
        "scan_groups",
        (keys.groups(queue),),
        (keys.group_prefix(queue), cursor, STRETCH, now_s, rule.grace_s, rule.max_delay_s, rule.max_size),
        _parse_scan,
        idempotent=True,
    )


def _parse_scan(reply: list[Any]) -> GroupScan:
    cursor, next_due, *due = reply
    return GroupScan(int(cursor), float(next_due) if next_due else None, _texts(due))


def _texts(found: Iterable[bytes]) -> list[str]:
    """Decode names.

    A group whose name is not UTF-8 is left out: no client has made it, since no message could name it.
    """
    return [name.decode(errors="ignore") for name in found if name.decode(errors="ignore").encode() == name]


def take_set(one: AggregationSet, rule: GroupRule, now_s: int, deadline_s: int) -> Operation[int]:
    """Take the oldest tasks of a group if it is due; returns how many, 0 if the group is not due."""
    queue = one.queue
    limit = min(rule.max_size or MAX_SET, MAX_SET)
    return scripted(
        "aggregation_check",
        (keys.group(queue, one.group), one.key, keys.aggregation_sets(queue), keys.groups(queue)),
        (one.group, now_s, deadline_s, rule.grace_s, rule.max_delay_s, rule.max_size, limit),
        int,
        idempotent=True,
    )


def read_set(one: AggregationSet, start: int) -> Operation[Leased]:
    """Read a set's tasks from a rank on, up to 500 or 256 kB; ids without a task are dropped and counted."""
    return scripted(
        "read_aggregation_set",
        (one.key,),
        (keys.task_prefix(one.queue), start, STRETCH, MAX_LISTED_BYTES),
        parse_leased,
        idempotent=True,
    )


def commit_set(
    one: AggregationSet, expected: int, task: NewTask, state: TaskState, now_ns: int
) -> Operation[CommitOutcome]:
    """Enqueue ``task`` in place of a set of ``expected`` tasks, or do nothing; the caller then deletes the set."""
    queue = one.queue
    at = {TaskState.PENDING: now_ns, TaskState.SCHEDULED: task.run_at_s}.get(state, now_ns // 1_000_000_000)
    script_keys = (
        one.key,
        keys.aggregation_sets(queue),
        keys.pending(queue),
        keys.scheduled(queue),
        keys.groups(queue),
        keys.scheduled_groups(queue),
    )
    prefixes = (keys.task_prefix(queue), keys.group_prefix(queue))
    args = (
        expected,
        str(state),
        at,
        task.id,
        task.message,
        task.lock,
        task.lock_ttl_s,
        task.group,
        keys.due_channel(queue),
    )
    return scripted("commit_aggregation_set", script_keys, (*prefixes, *args), CommitOutcome, idempotent=True)


def delete_members(one: AggregationSet, locks: Mapping[str, str]) -> Operation[int]:
    """Delete up to 500 tasks (id to the key of its unique lock, or "") of a set that was aggregated.

    A lock is deleted if the task still holds it. The set is deleted with its last task. Returns how many tasks the set
    has left, or -1 if it was not aggregated and nothing was done.
    """
    words: list[Word] = [word for task_id, lock in locks.items() for word in (id_word(task_id), lock)]
    return scripted(
        "delete_aggregation_set",
        (one.key, keys.aggregation_sets(one.queue)),
        (keys.task_prefix(one.queue), *words),
        int,
        idempotent=True,
    )


def reclaim_set(one: AggregationSet, start: int = 0) -> Operation[int]:
    """Give up to 500 tasks of a set back to their group, from a rank on.

    Returns how many, or -1 if the set was aggregated and nothing was done.
    """
    queue = one.queue
    return scripted(
        "reclaim_aggregation_set",
        (one.key, keys.aggregation_sets(queue), keys.group(queue, one.group), keys.groups(queue)),
        (one.group, start, STRETCH),
        int,
        idempotent=True,
    )


def archive_members(one: AggregationSet, tasks: Sequence[tuple[str, bytes]], now_s: int) -> Operation[int]:
    """Move undecodable tasks of a set (id, message) to the archive, and trim it; returns how many.

    At most 500 tasks, because a call trims at most 750 from the archive.
    """
    words: list[Word] = [word for task_id, message in tasks for word in (id_word(task_id), message)]
    expire_before = now_s - int(ARCHIVE_EXPIRY.total_seconds())
    return scripted(
        "archive_aggregating",
        (one.key, keys.archived(one.queue), *archive_keys(one.queue)),
        (keys.task_prefix(one.queue), now_s, expire_before, ARCHIVE_MAX_SIZE, *words),
        int,
        idempotent=True,
    )


def list_sets(queue: str, until_s: int | None, limit: int) -> Operation[SetList]:
    """List sets whose deadline was by ``until_s``. With None, list aggregated sets that still have tasks to delete."""
    span = (AGGREGATED, AGGREGATED) if until_s is None else ("-inf", until_s)
    return Operation(
        "ZRANGEBYSCORE",
        (keys.aggregation_sets(queue),),
        (*span, "LIMIT", 0, limit),
        lambda reply: _parse_sets(queue, reply),
        idempotent=True,
    )


def _parse_sets(queue: str, reply: list[bytes]) -> SetList:
    found = SetList([], [])
    for member in reply:
        one = AggregationSet.of_key(queue, member.decode(errors="replace"))
        if one is not None and one.key.encode() == member:
            found.sets.append(one)
        else:
            found.foreign.append(member)
    return found


def drop_sets(queue: str, foreign: Sequence[bytes]) -> Operation[int]:
    """Remove members that are not sets from the list; returns how many."""
    return Operation("ZREM", (keys.aggregation_sets(queue),), tuple(foreign), int, idempotent=True)


def relist_groups(queue: str, cursor: int) -> Operation[Relisted]:
    """Scan about 500 keys of Redis for groups of the queue, and put unlisted ones on the list."""
    prefix = keys.group_prefix(queue)
    pattern = "".join(f"\\{char}" if char in "*?[]\\" else char for char in prefix) + "*"
    return scripted(
        "relist_groups",
        (keys.groups(queue),),
        (prefix, keys.task_prefix(queue), pattern, cursor, STRETCH),
        lambda reply: Relisted(int(reply[0]), reply[1]),
        idempotent=True,
    )


class Unlisted(NamedTuple):
    """How many groups a call checked, how many of these it took off the list, and how many groups and sets remain."""

    looked_at: int
    groups: int
    listed: int
    sets: int


def unlist_due_groups(queue: str) -> Operation[Unlisted]:
    """Take groups without tasks, for which no task is scheduled either, off the list; check up to 500 groups."""
    return scripted(
        "unlist_due_groups",
        (keys.groups(queue), keys.scheduled(queue), keys.scheduled_groups(queue), keys.aggregation_sets(queue)),
        (keys.group_prefix(queue), STRETCH),
        lambda reply: Unlisted(*reply),
        idempotent=True,
    )

"""Maintenance: the operations that move due and expired tasks, in bounded batches."""

from datetime import datetime
from typing import Any, NamedTuple

from fastq.broker.operation import Operation, scripted
from fastq.broker.operations.archive_rule import RULE_TTL_S, ArchiveRule, parse_rule
from fastq.broker.operations.finish import stats_expiry
from fastq.wire import keys


class Forwarded(NamedTuple):
    """How many due ids were taken, how many of them had no task, and the next due time (Unix seconds).

    That time may have come already, since a call takes a limited number of ids.
    """

    taken: int
    dangling: int
    next_due_s: float | None


def forward(queue: str, now_ns: int, limit: int) -> Operation[Forwarded]:
    """Move due tasks, up to ``limit`` each of scheduled and retry, to pending or to their group."""
    return scripted(
        "forward",
        (keys.scheduled(queue), keys.retry(queue), keys.pending(queue), keys.groups(queue)),
        (keys.task_prefix(queue), keys.group_prefix(queue), now_ns, now_ns // 1_000_000_000, limit),
        _parse_forwarded,
        idempotent=True,
    )


def _parse_forwarded(reply: list[Any]) -> Forwarded:
    taken, dangling, next_due = reply
    return Forwarded(taken, dangling, float(next_due) if next_due else None)


class Cleaned(NamedTuple):
    """How many completed tasks were deleted and are left, and how many tasks the archive has and has ever dropped.

    ``rule`` is the archive's rule in Redis, None if it has none.
    """

    deleted: int
    completed: int
    archived: int
    dropped: int
    rule: ArchiveRule | None


def delete_expired_completed(queue: str, now_s: int, limit: int) -> Operation[Cleaned]:
    """Delete completed tasks whose retention has ended; read the archive's size and rule, and extend the rule's TTL."""
    return scripted(
        "delete_expired_completed",
        (keys.completed(queue), keys.archived(queue), keys.archive_rule(queue)),
        (keys.task_prefix(queue), now_s, limit, RULE_TTL_S),
        _parse_cleaned,
        idempotent=True,
    )


def _parse_cleaned(reply: list[Any]) -> Cleaned:
    deleted, completed, archived, dropped, *rule = reply
    return Cleaned(deleted, completed, archived, int(dropped or 0), parse_rule(rule) if any(rule) else None)


def count_lost(queue: str, count: int, now: datetime) -> tuple[Operation[int], Operation[int]]:
    """Add to the day's count (UTC) of tasks lost with their servers. Not sent again, so never counted twice."""
    key = keys.lost(queue, now)
    return (
        Operation("INCRBY", (key,), (count,), int),
        Operation("EXPIREAT", (key,), (stats_expiry(now),), int, idempotent=True),
    )

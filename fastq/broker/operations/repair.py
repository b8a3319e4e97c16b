"""Repair: the operations that put right what dead peers have left: ids without task or lease, leases without task."""

from collections.abc import Sequence
from typing import NamedTuple

from fastq.broker.operation import Operation, scripted
from fastq.broker.operations.lease import id_word
from fastq.wire import keys


class ActiveRepair(NamedTuple):
    """How many ids were checked, how many tasks got a lease, and how many ids without a task were dropped."""

    looked_at: int
    leased: int
    dropped: int


class LeaseRepair(NamedTuple):
    """How many ids one call checked, and how many of their leases it repaired."""

    looked_at: int
    repaired: int


def repair_active(queue: str, start: int, count: int, now_s: int) -> Operation[ActiveRepair]:
    """Check ``count`` active ids from the ``start``-th oldest on, and repair those without a lease."""
    return scripted(
        "repair_active",
        (keys.active(queue), keys.lease(queue)),
        (keys.task_prefix(queue), start, count, now_s),
        lambda reply: ActiveRepair(*reply),
        idempotent=True,
    )


def repair_lease(queue: str, task_ids: Sequence[str], expired_at_s: int, now_ns: int) -> Operation[LeaseRepair]:
    """Drop expired leases whose tasks are not in active, and give such tasks back to pending.

    If active is long, one call checks only the first ids, since each missing id takes a pass over all of active. The
    caller then asks for the others.
    """
    return scripted(
        "repair_lease",
        (keys.lease(queue), keys.active(queue), keys.pending(queue)),
        (keys.task_prefix(queue), expired_at_s, now_ns, *map(id_word, task_ids)),
        lambda reply: LeaseRepair(*reply),
        idempotent=True,
    )

"""Repair: the operations that repair what a dead peer left: ids without task or lease, leases without task."""

from collections.abc import Sequence
from typing import NamedTuple

from fastq.broker.operation import Operation, scripted
from fastq.broker.operations.lease import id_word
from fastq.wire import keys

__all__ = ["ActiveRepair", "LeaseRepair", "repair_active", "repair_lease"]


class ActiveRepair(NamedTuple):
    """How many ids were examined, how many tasks got a lease, and how many ids without a task were dropped."""

    looked_at: int
    leased: int
    dropped: int


class LeaseRepair(NamedTuple):
    """How many of the ids one call looked at, and how many of their leases it repaired."""

    looked_at: int
    repaired: int


def repair_active(queue: str, start: int, count: int, now_s: int) -> Operation[ActiveRepair]:
    """Look at ``count`` active ids from the ``start``-th oldest on, and repair those that have no lease."""
    return scripted(
        "repair_active",
        (keys.active(queue), keys.lease(queue)),
        (keys.task_prefix(queue), start, count, now_s),
        lambda reply: ActiveRepair(*reply),
        idempotent=True,
    )


def repair_lease(queue: str, task_ids: Sequence[str], expired_at_s: int, now_ns: int) -> Operation[LeaseRepair]:
    """Drop expired leases whose tasks are not in active, and give such tasks back to pending.

    One call looks at the first ids only if active is long: to find that an id is missing takes a pass over all of it.
    The caller asks again for the rest.
    """
    return scripted(
        "repair_lease",
        (keys.lease(queue), keys.active(queue), keys.pending(queue)),
        (keys.task_prefix(queue), expired_at_s, now_ns, *map(id_word, task_ids)),
        lambda reply: LeaseRepair(*reply),
        idempotent=True,
    )

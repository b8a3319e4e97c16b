"""What was repaired in Redis: tasks of dead servers, ids without task, tasks without lease or place."""

from collections import Counter
from enum import StrEnum
from typing import TypeAlias

__all__ = ["RepairKind", "Repairs", "describe"]


class RepairKind(StrEnum):
    """The kinds of repairs."""

    RECOVERED = "recovered"
    """A task whose lease had ended: its server died."""

    NO_TASK = "ids without task"
    """Dropped, wherever they stood: their tasks were deleted or evicted."""

    NO_LEASE = "active without lease"
    """Leased, until now: recovered later unless somebody holds them."""

    NOT_ACTIVE = "leases without active task"
    """Dropped; the task, if it was nowhere else, is pending again."""


Repairs: TypeAlias = Counter[RepairKind]


def describe(repairs: Repairs) -> str:
    """Return what was repaired, and how often; "" if nothing was."""
    return ", ".join(f"{repairs[kind]} {kind}" for kind in RepairKind if repairs[kind])

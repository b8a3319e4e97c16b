"""What was found broken in Redis and mended: tasks of dead servers, ids without task, tasks without lease or place."""

from collections import Counter
from enum import StrEnum
from typing import TypeAlias

__all__ = ["Repair", "Repairs", "describe"]


class Repair(StrEnum):
    """The kinds of repairs."""

    RECOVERED = "recovered"
    """A task whose lease had ended: its server died."""

    NO_TASK = "ids without task"
    """Dropped, wherever they stood: their tasks were deleted or evicted."""

    NO_LEASE = "active without lease"
    """Leased, until now: recovered later unless somebody holds them."""

    NOT_ACTIVE = "leases without active task"
    """Dropped; the task, if it was nowhere else, is pending again."""


Repairs: TypeAlias = Counter[Repair]


def describe(repairs: Repairs) -> str:
    """Return what was mended, and how often; "" if nothing was."""
    return ", ".join(f"{repairs[kind]} {kind}" for kind in Repair if repairs[kind])

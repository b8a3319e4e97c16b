"""The numbers of a server, in one place: its parts write them where they arise.

``summary`` reports most; nothing reads ``lag_s``, ``lease_margin_s`` and ``restarts`` yet. The numbers count from the
start of the server, except the current values ``in_flight``, ``lag_s``, ``lease_margin_s`` and ``outage``.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from fastq.clock import Clock
from fastq.pool.protocol import EventKind
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.tasks import InFlightTasks
from fastq.server.outage import Outage

__all__ = ["RepairKind", "Repairs", "ServerStats", "describe_repairs"]

_DONE = (EventKind.DONE, EventKind.RESULT)


class RepairKind(StrEnum):
    """The kinds of repairs."""

    RECOVERED = "recovered"
    """A task whose lease had ended, because its server died."""

    NO_TASK = "ids without task"
    """Ids dropped from any list or set, because their tasks were deleted or evicted."""

    NO_LEASE = "active without lease"
    """Tasks that got a lease that ends at once, and are recovered later unless a server extends it."""

    NOT_ACTIVE = "leases without active task"
    """Leases dropped; a task that was nowhere else is pending again."""


Repairs: TypeAlias = Counter[RepairKind]


@dataclass(slots=True, eq=False)
class ServerStats:
    """The numbers of one server, and the outage of its Redis."""

    _tasks: InFlightTasks
    _stall: StallWatch
    _clock: Clock
    outage: Outage = field(default_factory=Outage, init=False)
    counts: Counter[EventKind] = field(default_factory=Counter, init=False)
    """The number of tasks by disposition."""
    repairs: Repairs = field(default_factory=Repairs, init=False)
    aggregated: int = field(default=0, init=False)
    """Sets of grouped tasks that became a task."""
    restarts: int = field(default=0, init=False)
    """Actors that the watchdog started again."""

    @property
    def in_flight(self) -> int:
        """Return how many tasks are leased to this server."""
        return len(self._tasks)

    @property
    def lag_s(self) -> float:
        """Return the longest delay of the event loop in the last minute, in seconds."""
        return self._stall.lag_s

    @property
    def lease_margin_s(self) -> float | None:
        """Return the seconds until the first lease would end if it were not extended; None with no task in flight.

        While leases are extended in time, this is most of a lease. Below 0, tasks may belong to another server.
        """
        ends_s = [task.leased_until_s for _, tasks in self._tasks.by_queue() for task in tasks]
        return min(ends_s) - self._clock.monotonic_s() if ends_s else None

    def summary(self) -> str:
        """Return a line about the work since the start."""
        done = sum(self.counts[kind] for kind in _DONE)
        others = "".join(
            f", {n} {kind.name.lower().replace('_', ' ')}" for kind, n in self.counts.items() if n and kind not in _DONE
        )
        groups = f", {self.aggregated} groups aggregated" if self.aggregated else ""
        repaired = describe_repairs(self.repairs)
        return f"{done} tasks done{others}{groups}; {self.in_flight} in flight{repaired and f'; repaired: {repaired}'}"


def describe_repairs(repairs: Repairs) -> str:
    """Return a text of the numbers of repairs by kind, "" if there were none."""
    return ", ".join(f"{repairs[kind]} {kind}" for kind in RepairKind if repairs[kind])

"""The numbers of a server, in one place: its parts write them where they arise.

``summary`` reports most; nothing reads ``lag_s``, ``lease_margin_s`` and ``restarts`` yet. They are since the start of
the server, except those that say how it is now: ``in_flight``, ``lag_s``, ``lease_margin_s``, ``outage``.
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
    """A task whose lease had ended: its server died."""

    NO_TASK = "ids without task"
    """Dropped, wherever they stood: their tasks were deleted or evicted."""

    NO_LEASE = "active without lease"
    """Leased, until now: recovered later unless somebody holds them."""

    NOT_ACTIVE = "leases without active task"
    """Dropped; the task, if it was nowhere else, is pending again."""


Repairs: TypeAlias = Counter[RepairKind]


@dataclass(slots=True, eq=False)
class ServerStats:
    """The numbers of one server, and what is wrong with its Redis."""

    _tasks: InFlightTasks
    _stall: StallWatch
    _clock: Clock
    outage: Outage = field(default_factory=Outage, init=False)
    counts: Counter[EventKind] = field(default_factory=Counter, init=False)
    """How many tasks ended in which way."""
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
        """Return the seconds until the first lease ends that is not extended; None with no task in flight.

        A server that extends its leases in time has most of a lease left; below 0, tasks may be another server's.
        """
        ends_s = [task.leased_until_s for _, tasks in self._tasks.by_queue() for task in tasks]
        return min(ends_s) - self._clock.monotonic_s() if ends_s else None

    def summary(self) -> str:
        """Return in a line what was done since the start."""
        done = sum(self.counts[kind] for kind in _DONE)
        others = "".join(
            f", {n} {kind.name.lower().replace('_', ' ')}" for kind, n in self.counts.items() if n and kind not in _DONE
        )
        groups = f", {self.aggregated} groups aggregated" if self.aggregated else ""
        repaired = describe_repairs(self.repairs)
        return f"{done} tasks done{others}{groups}; {self.in_flight} in flight{repaired and f'; repaired: {repaired}'}"


def describe_repairs(repairs: Repairs) -> str:
    """Return what was repaired, and how often; "" if nothing was."""
    return ", ".join(f"{repairs[kind]} {kind}" for kind in RepairKind if repairs[kind])

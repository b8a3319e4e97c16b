"""The numbers of a server, in one place: its parts write them where they arise.

``summary`` reports a few, ``monitoring/`` all of them. The numbers count from the start of the server, except the
current values ``in_flight``, ``lag_s``, ``lease_margin_s`` and ``outage``.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, TypeAlias

from fastq.common.clock import Clock
from fastq.pool.main.protocol import EventKind
from fastq.server.base.outage import Outage
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.tally import Histogram, Tally
from fastq.server.inflight.tasks import InFlightTasks

UNKNOWN: Final = "unknown"
"""The type that stands for all tasks that match no pattern of the app."""
BATCH_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
ROUND_TRIP_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0)
MARGIN_BOUNDS_S: Final = (0.0, 5.0, 10.0, 15.0, 20.0, 22.5, 25.0, 27.5, 30.0)

_DONE = (EventKind.DONE, EventKind.RESULT)


class RepairKind(StrEnum):
    """The kinds of repairs."""

    RECOVERED = "recovered"
    """A task whose lease had ended, because its server died."""

    NO_TASK = "ids without task"
    """Ids dropped from any list or set, because their tasks were deleted or evicted."""

    NO_LEASE = "active without lease"
    """Tasks without a lease that got one that ends at once; they are recovered unless a server extends it."""

    NOT_ACTIVE = "leases without active task"
    """Leases dropped because their tasks were not active; a task that was in no other list or set is pending again."""


class RoundTrip(StrEnum):
    """The purposes of round trips that are timed."""

    FETCH = "fetch"
    ACK = "ack"
    EXTEND = "extend"


Repairs: TypeAlias = Counter[RepairKind]


@dataclass(slots=True, eq=False)
class ServerStats:
    """The numbers of one server, and the outage of its Redis."""

    _tasks: InFlightTasks
    _stall: StallWatch
    _clock: Clock
    outage: Outage = field(init=False)
    counts: Counter[EventKind] = field(default_factory=Counter, init=False)
    """The number of ended runs by kind of end."""
    repairs: Repairs = field(default_factory=Repairs, init=False)
    aggregated: int = field(default=0, init=False)
    """Sets of grouped tasks that became a task."""
    restarts: Counter[str] = field(default_factory=Counter, init=False)
    """Actors that the watchdog started again, by name."""
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict, init=False)
    """The counts of tasks by queue and type."""
    leases_lost: int = field(default=0, init=False)
    """Tasks that another server got while they were in flight here."""
    lease_margins_s: Histogram = field(default_factory=partial(Histogram, MARGIN_BOUNDS_S), init=False)
    """The time left of the lease that would have ended first, for each call that extended leases."""
    fetched: Histogram = field(default_factory=partial(Histogram, BATCH_BOUNDS), init=False)
    """The tasks that a round trip of the fetcher brought; round trips without tasks are left out."""
    acked: Histogram = field(default_factory=partial(Histogram, BATCH_BOUNDS), init=False)
    """The ends that a round trip of acker or syncer carried."""
    round_trips_s: dict[RoundTrip, Histogram] = field(
        default_factory=lambda: {trip: Histogram(ROUND_TRIP_BOUNDS_S) for trip in RoundTrip}, init=False
    )
    """How long round trips took, waits for the connection included."""

    def __post_init__(self) -> None:
        self.outage = Outage(self._clock)

    def tally(self, queue: str, type: str) -> Tally:
        """Return the counts of a queue's tasks of a type."""
        found = self.tallies.get((queue, type))
        if found is None:
            found = self.tallies[queue, type] = Tally(queue, type)
        return found

    @property
    def lags_s(self) -> Histogram:
        """Return the delays of the event loop, one a second."""
        return self._stall.lags_s

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

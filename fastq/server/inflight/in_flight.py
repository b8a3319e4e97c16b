"""What a server has in flight and as whom: tasks, what is uncertain of them, and whether it may trust its leases."""

from dataclasses import dataclass

from fastq.broker.operations.lease import Owner
from fastq.clock import Clock
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.tasks import InFlightTasks
from fastq.server.inflight.uncertain import UncertainDequeues, UncertainEnds
from fastq.server.stats import ServerStats
from fastq.server.timing import Timing

__all__ = ["InFlight"]


@dataclass(frozen=True, slots=True)
class InFlight:
    """What the actors that take, keep and end tasks share."""

    tasks: InFlightTasks
    ends: UncertainEnds
    dequeues: UncertainDequeues
    owner: Owner
    stall: StallWatch
    clock: Clock
    timing: Timing
    stats: ServerStats

    @classmethod
    def of(cls, owner: Owner, stall: StallWatch, clock: Clock, timing: Timing) -> "InFlight":
        """Return those of a server with nothing in flight yet."""
        tasks, ends = InFlightTasks(timing.lease_s), UncertainEnds()
        dequeues = UncertainDequeues(tasks, ends, clock, timing.lease_s)
        return cls(tasks, ends, dequeues, owner, stall, clock, timing, ServerStats(tasks, stall, clock))

"""A server's tasks in flight, their owner, the doubts about them, and whether its leases are certain."""

from dataclasses import dataclass

from fastq.broker.operations.lease import Owner
from fastq.common.clock import Clock
from fastq.server.base.timing import Timing
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.stats import ServerStats
from fastq.server.inflight.tasks import InFlightTasks
from fastq.server.inflight.uncertain import UncertainDequeues, UncertainEnds


@dataclass(frozen=True, slots=True)
class InFlight:
    """The state shared by the actors that take, keep and end tasks."""

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
        """Return the state of a server with nothing in flight yet."""
        tasks, ends = InFlightTasks(timing.lease_s), UncertainEnds(clock)
        dequeues = UncertainDequeues(tasks, ends, clock, timing.lease_s)
        return cls(tasks, ends, dequeues, owner, stall, clock, timing, ServerStats(tasks, stall, clock))

"""What a server holds and as whom: the tasks leased to it, what is uncertain of them, and whether it may trust them."""

from dataclasses import dataclass

from fastq.broker.operations.lease import Owner
from fastq.clock import Clock
from fastq.server.inflight.held import HeldTasks
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.uncertain import UncertainDequeues, UncertainEnds
from fastq.server.timing import Timing

__all__ = ["Holdings"]


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the actors that take, keep and end tasks share."""

    held: HeldTasks
    ends: UncertainEnds
    dequeues: UncertainDequeues
    owner: Owner
    stall: StallWatch
    clock: Clock
    timing: Timing

    @classmethod
    def of(cls, owner: Owner, stall: StallWatch, clock: Clock, timing: Timing) -> "Holdings":
        """Return those of a server that holds nothing yet."""
        held, ends = HeldTasks(timing.lease_s), UncertainEnds()
        return cls(held, ends, UncertainDequeues(held, ends, clock, timing.lease_s), owner, stall, clock, timing)

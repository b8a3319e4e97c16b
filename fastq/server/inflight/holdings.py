"""What a server holds and as whom: the tasks leased to it, the mark of its leases, and whether it may trust them."""

from dataclasses import dataclass

from fastq.broker.operations.lease import Owner
from fastq.clock import Clock
from fastq.server.inflight.held import HeldTasks
from fastq.server.inflight.stall import StallWatch
from fastq.server.timing import Timing

__all__ = ["Holdings"]


@dataclass(frozen=True, slots=True)
class Holdings:
    """Share these among the actors that take, keep and end tasks."""

    held: HeldTasks
    owner: Owner
    stall: StallWatch
    clock: Clock
    timing: Timing

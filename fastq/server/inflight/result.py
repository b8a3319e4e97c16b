"""What came of a held task: the write that ends it, as the crew tells it to the acker."""

from typing import NamedTuple

from fastq.server.inflight.held import HeldTask
from fastq.server.inflight.outcomes import Write

__all__ = ["Result"]


class Result(NamedTuple):
    """Pair a held task with the write that ends it."""

    task: HeldTask
    write: Write

"""What came of a held task: the write that ends it, as the crew tells it to the acker."""

from typing import NamedTuple

from fastq.broker.operations.finish import Disposition
from fastq.server.inflight.held import HeldTask

__all__ = ["Result"]


class Result(NamedTuple):
    """Pair a held task with the write that ends it."""

    task: HeldTask
    write: Disposition

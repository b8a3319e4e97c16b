"""The numbers of a server, in one place: its parts write them where they arise, and what reports them reads them here.

All are since the start of the server, except those that say how it is now.
"""

from dataclasses import dataclass, field

from fastq.server.outage import Outage
from fastq.server.repairs import Repairs

__all__ = ["ServerStats"]


@dataclass(slots=True, eq=False)
class ServerStats:
    """The numbers of one server, and what is wrong with its Redis."""

    outage: Outage = field(default_factory=Outage)
    repairs: Repairs = field(default_factory=Repairs)
    aggregated: int = 0
    """Sets of grouped tasks that became a task."""
    restarts: int = 0
    """Actors that the watchdog started again."""

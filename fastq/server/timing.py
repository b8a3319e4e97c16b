"""The times of a server that asynq fixes and no setting changes.

They are here in one place so that tests can shorten them: a lease that ends within a test, a report that comes in it.
"""

from dataclasses import dataclass
from typing import Final

from fastq.broker.operations.lease import LEASE_S

__all__ = ["STANDARD", "Timing"]


@dataclass(frozen=True, slots=True)
class Timing:
    """The fixed times, in seconds.

    ``stall_s`` is how long the main process may stand still before its leases are in doubt. Leases are recovered
    ``recover_grace_s`` after they end; recoverers look every ``recoverer_interval_s`` (asynq: 60 s). So nothing is left
    of a dead server 60 s after its leases ended. ``report_interval_s`` is the time between two summary lines,
    ``watchdog_interval_s`` between two checks of the actors. A set of grouped tasks has ``aggregation_s`` to become one
    task. Leases that have ended do not show that their servers are dead until Redis has answered for ``settle_s``:
    servers that live extend theirs within two beats and a back-off, which is no longer than a beat.
    """

    lease_s: int = LEASE_S
    recover_grace_s: int = 30
    recoverer_interval_s: float = 30.0
    heartbeat_interval_s: float = 5.0
    stall_s: float = 5.0
    report_interval_s: float = 60.0
    watchdog_interval_s: float = 5.0
    aggregation_s: int = 120
    settle_s: float = 15.0


STANDARD: Final = Timing()

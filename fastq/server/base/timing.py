"""The times of a server that asynq fixes and no setting changes.

They are in one place so that tests can shorten them.
"""

from dataclasses import dataclass
from typing import Final

from fastq.broker.operations.lease import LEASE_S


@dataclass(frozen=True, slots=True)
class Timing:
    """The fixed times, in seconds.

    A stall of the main process longer than ``stall_s`` puts its leases in doubt. Leases are recovered
    ``recover_grace_s`` after they end; recoverers look every ``recoverer_interval_s`` (asynq: 60 s). So all tasks of a
    dead server are recovered within 60 s after its leases ended. ``report_interval_s`` is the time between two summary
    lines, ``watchdog_interval_s`` between two checks of the actors. A set of grouped tasks has ``aggregation_s`` to
    become one task. An ended lease proves that its server is dead only after Redis has answered for ``settle_s``: live
    servers extend their leases within two heartbeats and a back-off, which is no longer than one heartbeat.
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
    sign_interval_s: float = 2.0


STANDARD: Final = Timing()

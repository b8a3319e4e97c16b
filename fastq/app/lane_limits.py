"""The limits of lanes that an app declares in its code."""

from collections.abc import Mapping
from contextlib import closing

from fastq.broker.operations.limits import declare_limit
from fastq.broker.transport.open import open_broker
from fastq.wire.limit import Limit


def declare_limits(url: str | None, limits: Mapping[tuple[str, str], Limit]) -> None:
    """Set the limits that an app declares, by queue and name; a limit that it has declared before is skipped."""
    with closing(open_broker(url)) as broker:
        for (queue, name), limit in limits.items():
            broker.drive(declare_limit(queue, name, limit))

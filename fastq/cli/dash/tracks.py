"""The rates of queues between snapshots: how many tasks ended per second, and how many of these failed."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from fastq.inspector import QueueInfo

KEPT: Final = 240
LEAST_S: Final = 0.5
"""The least time between two snapshots; the counters of closer snapshots say little."""


@dataclass(slots=True)
class Track:
    """The rates of one queue, or of all queues together, in tasks per second; None for an unknown rate."""

    processed: deque[float | None] = field(default_factory=lambda: deque(maxlen=KEPT))
    failed: deque[float | None] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def rate(self) -> float | None:
        """Return the tasks that ended per second between the last two snapshots."""
        return self.processed[-1] if self.processed else None

    @property
    def failure_rate(self) -> float | None:
        """Return the tasks that failed per second between the last two snapshots."""
        return self.failed[-1] if self.failed else None

    def note(self, processed: float | None, failed: float | None) -> None:
        """Add the rates between two snapshots."""
        self.processed.append(processed)
        self.failed.append(failed)


class Tracks:
    """The rates of each queue; ``whole`` has those of all queues together."""

    def __init__(self) -> None:
        self.whole = Track()
        self._tracks: dict[str, Track] = {}
        self._before: dict[str, QueueInfo] = {}

    def of(self, queue: str) -> Track:
        """Return the rates of a queue."""
        return self._tracks.get(queue) or Track()

    def note(self, infos: Sequence[QueueInfo]) -> None:
        """Compute the rates since the previous snapshot; a snapshot that comes too soon is skipped."""
        gone = self._before.keys() - {info.queue for info in infos}
        for queue in gone:
            del self._before[queue], self._tracks[queue]
        rates = []
        for info in infos:
            track = self._tracks.setdefault(info.queue, Track())
            before = self._before.get(info.queue)
            if before is not None:
                seconds = (info.timestamp - before.timestamp).total_seconds()
                if 0 <= seconds < LEAST_S:
                    continue
                rates.append(_rates(before, info, seconds))
                track.note(*rates[-1])
            self._before[info.queue] = info
        if rates:
            self.whole.note(_sum([done for done, _ in rates]), _sum([failed for _, failed in rates]))


def _rates(before: QueueInfo, now: QueueInfo, seconds: float) -> tuple[float | None, float | None]:
    done, failed = now.processed_total - before.processed_total, now.failed_total - before.failed_total
    if done < 0 or failed < 0 or seconds < 0:  # the queue was deleted, or the clock was set back
        return None, None
    return done / seconds, failed / seconds


def _sum(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None

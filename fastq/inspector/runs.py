"""The history of queues: fastq's servers' counts of runs, by minute or by hour."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from fastq.broker.inspect.history import read_hours, read_minutes, read_minutes_by_type
from fastq.broker.inspect.queues import queue_exists
from fastq.broker.operation import Flow, Operation, together
from fastq.common.clock import at_unix_ns
from fastq.common.durations import nanoseconds_of
from fastq.errors import QueueNotFoundError
from fastq.inspector.checks import check_queue
from fastq.inspector.driver import Driver, operation
from fastq.wire.history import (
    ALL_TYPES,
    BOUNDS_S,
    COUNTERS,
    DAY_S,
    HOUR_S,
    HOURS_KEPT_S,
    MINUTE_S,
    MINUTES_KEPT_S,
    OUTCOMES,
    RUN_TIMES,
    STEP_OF_TYPES,
    WAITS,
    sum_of,
)

SECOND_NS: Final = 1_000_000_000
OTHERS: Final = tuple(name for name in OUTCOMES if name not in ("done", "failed"))
"""The counts that people see behind done, failed and the share of errors."""


@dataclass(frozen=True, slots=True)
class Durations:
    """How many durations each bucket has, from at most 1 ms to more than 1 h."""

    counts: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return the number of durations."""
        return sum(self.counts)

    def quantile(self, share: float) -> timedelta | None:
        """Return a time that this share of the durations did not exceed: the upper bound of a bucket. Returns None if
        there are no durations. Returns 1 h, the last bound, if the time is longer.
        """
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1: {share!r}")
        wanted, passed = share * self.count, 0
        for bound_s, count in zip(BOUNDS_S, self.counts, strict=False):
            passed += count
            if count and passed >= wanted:
                return timedelta(seconds=bound_s)
        return timedelta(seconds=BOUNDS_S[-1]) if self.count else None


@dataclass(frozen=True, slots=True)
class RunStats:
    """The outcomes of the runs that ended in a period which began at ``start`` (UTC). ``done`` runs ended without a
    failure, including runs of revoked tasks. ``failed`` runs counted as failures. ``retried`` and ``archived`` count
    the tasks that were retried or archived after any run. ``lost`` tasks were brought back from dead servers. ``run``
    has the run times of handlers, ``wait`` how long tasks had been pending when a server took them.
    """

    start: datetime
    done: int
    failed: int
    retried: int
    archived: int
    lost: int
    run: Durations
    wait: Durations

    @property
    def processed(self) -> int:
        """Return the number of runs."""
        return self.done + self.failed


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The runs of a queue's tasks until now: one ``RunStats`` for each ``step``, the oldest first, and their ``total``.

    The last step is not over yet. ``types`` has the sums by type, if the caller asked for them. These sums begin up to
    ten minutes earlier than ``points``, at a full ten minutes of the clock. A type is the handler's pattern; "other" is
    the sum of all types beyond 200.
    """

    queue: str
    step: timedelta
    points: Sequence[RunStats]
    total: RunStats
    types: Mapping[str, RunStats] = field(default_factory=dict)


class RunMethods(Driver):
    """The inspector's methods for the history of runs."""

    @operation
    def run_history(self, queue: str, since: float | timedelta, *, by_type: bool = False) -> Flow[RunHistory]:
        """Read the history that fastq's servers have written of a queue, for the time ``since`` before now. Up to 8 h
        are read by minute, and with ``by_type`` also by type, in steps of ten minutes. Up to 14 days are read by hour.
        Go's servers write no such history; ``history`` has the days of Go's and fastq's servers.
        """
        check_queue(queue)
        since_s = check_since(since, by_type=by_type)
        step_s, piece_s = (MINUTE_S, HOUR_S) if since_s <= MINUTES_KEPT_S else (HOUR_S, DAY_S)
        end = self._now_ns() // SECOND_NS // step_s
        steps = range(end - max(1, -(-since_s // step_s)) + 1, end + 1)
        of_types = range(steps[0] // STEP_OF_TYPES * STEP_OF_TYPES, end + 1)
        pieces = range(steps[0] * step_s // piece_s, end * step_s // piece_s + 1)
        reads = [_read(queue, piece * piece_s, piece_s, by_type=by_type) for piece in pieces]
        exists, *found = yield from together(queue_exists(queue), *reads)
        if not exists:
            raise QueueNotFoundError(queue)
        counts: defaultdict[str, dict[int, Sequence[int]]] = defaultdict(dict)
        for piece, records in zip(pieces, found, strict=True):
            for name, of_type in (records if by_type else {ALL_TYPES: records}).items():
                first, wanted = piece * piece_s // step_s, of_types if name else steps
                counts[name] |= {first + at: one for at, one in of_type.items() if first + at in wanted}
        of_all, nothing = counts.pop(ALL_TYPES, {}), (0,) * COUNTERS
        return RunHistory(
            queue,
            timedelta(seconds=step_s),
            [_stats(step * step_s, of_all.get(step, nothing)) for step in steps],
            _stats(steps[0] * step_s, sum_of(of_all.values())),
            {
                name: _stats(of_types[0] * step_s, sum_of(records.values()))
                for name, records in sorted(counts.items())
                if records
            },
        )


def check_since(since: float | timedelta, *, by_type: bool = False) -> int:
    """Return ``since`` in whole seconds; ``ValueError`` if no history is kept for so long."""
    since_s = -(-nanoseconds_of(since, name="since") // SECOND_NS)
    if not 0 < since_s <= HOURS_KEPT_S:
        raise ValueError(f"since must be above 0 and at most 14 days: {since!r}")
    if by_type and since_s > MINUTES_KEPT_S:
        raise ValueError(f"by_type goes with at most 8 hours, for which types are kept, not with since={since!r}")
    return since_s


def _read(queue: str, start_s: int, piece_s: int, *, by_type: bool) -> Operation[Any]:
    start = at_unix_ns(start_s * SECOND_NS)
    if piece_s == DAY_S:
        return read_hours(queue, start)
    return read_minutes_by_type(queue, start) if by_type else read_minutes(queue, start)


def _stats(start_s: int, counts: Sequence[int]) -> RunStats:
    return RunStats(
        at_unix_ns(start_s * SECOND_NS),
        **{name: counts[place] for name, place in OUTCOMES.items()},
        run=Durations(tuple(counts[RUN_TIMES])),
        wait=Durations(tuple(counts[WAITS])),
    )


def outcomes_of(stats: RunStats) -> dict[str, int]:
    """Return the counts of what became of tasks, by name."""
    return {name: getattr(stats, name) for name in OUTCOMES}

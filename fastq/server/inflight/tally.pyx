"""Counters that are written while tasks pass: histograms, and the counts of one queue's tasks of one type.

Compiled, so that they can always be kept: a task costs a few nanoseconds. ``fastq/server/monitoring/`` shows them.
"""

from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t
from libc.string cimport memset

from fastq.broker.operations import finish
from fastq.broker.operations.finish import Done, Retried
from fastq.pool.main.protocol import EventKind
from fastq.wire import history

cdef object FATES = finish.FATES
cdef tuple ENDS = tuple(FATES)
cdef int SIZE = len(ENDS)
# Two outcomes that the disposition alone does not show: the task was revoked, or its attempt asked to run later.
cdef int DELETED = SIZE, SNOOZED = SIZE + 1
# The kinds from ABORTED on are not ends of attempts.
cdef int KINDS = EventKind.ABORTED
cdef int COUNTERS = history.COUNTERS
cdef int FAILED = history.OUTCOMES["failed"], LOST = history.OUTCOMES["lost"]
cdef int RUN_TIMES = history.RUN_TIMES.start, WAITS = history.WAITS.start

cdef int DONE = ENDS.index(Done), RETRIED = ENDS.index(Retried)

ATTEMPT_BOUNDS = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 25.0)
CALL_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
OUTCOME_NAMES = (*(fate.outcome for fate in FATES.values()), "deleted", "snoozed")
# The history counters to which each kind of end adds one.
cdef list IN_HISTORY = [
    (at, history.OUTCOMES[name])
    for at, fate in enumerate((*FATES.values(), FATES[Done]))
    for name in fate.history
]
assert len(OUTCOME_NAMES) <= OUTCOMES and KINDS <= MOST_KINDS and COUNTERS <= MOST_COUNTERS
# Whether a task never runs again after this outcome; clients are told of such ends.
cdef bint IS_LAST[OUTCOMES]
for _at, _fate in enumerate(FATES.values()):
    IS_LAST[_at] = _fate.told is not None
IS_LAST[DELETED], IS_LAST[SNOOZED] = True, False


cdef class Histogram:
    """The number of values up to each bound, and above the last one; ``bounds`` ascend, at most 24 of them."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        cdef int at
        if not 0 < len(bounds) <= MOST_BOUNDS or any([a >= b for a, b in zip(bounds, bounds[1:])]):
            raise ValueError(f"bounds must be 1 to {MOST_BOUNDS} ascending numbers: {bounds!r}")
        self.size = len(bounds)
        for at in range(self.size):
            self.limits[at] = bounds[at]

    cdef void add(self, double value) noexcept:
        cdef int at = 0
        while at < self.size and value > self.limits[at]:
            at += 1
        self.filled[at] += 1
        self.sum += value

    def observe(self, value: float) -> None:
        """Count a value."""
        self.add(value)

    @property
    def bounds(self) -> tuple[float, ...]:
        """Return the upper bounds of all buckets but the last, which has none."""
        cdef int at
        return tuple([self.limits[at] for at in range(self.size)])

    @property
    def counts(self) -> tuple[int, ...]:
        """Return how many values each bucket has; not cumulative."""
        cdef int at
        return tuple([self.filled[at] for at in range(self.size + 1)])


cdef class Tally:
    """The counts of one queue's tasks of one type: ends that are written, causes of failures, waits and run times.

    ``attempts`` has the number of the last attempt of each task that has ended. ``type`` is the pattern of the app that
    matched, so that an app has a bounded number of tallies. ``lost`` tasks were brought back from dead servers. Batch
    handlers also have ``call_tasks``, the number of tasks of each call, and ``call_wait_s``, how long the first
    task of a call waited for the others and for a child; for other handlers both are None.
    """

    def __init__(self, queue: str, type: str) -> None:
        self.queue = queue
        self.type = type
        self.run_s = Histogram(history.BOUNDS_S)
        self.wait_s = Histogram(history.BOUNDS_S)
        self.attempts = Histogram(ATTEMPT_BOUNDS)

    @staticmethod
    cdef int outcome_of(object disposition, int failure) noexcept:
        """Return the outcome of a task, -1 if it is not known."""
        cdef int at
        kind = <object>type(disposition)
        for at in range(SIZE):
            if kind is <object>PyTuple_GET_ITEM(ENDS, at):
                # A revoked task is deleted with the same disposition as a done one, but it has a failure.
                if at == DONE and failure:
                    return DELETED
                return SNOOZED if at == RETRIED and not failure else at
        return -1

    cdef int count_call(self, int tasks, int64_t gathered_ns) except -1:
        """Count a call of a batch handler."""
        if self.call_tasks is None:
            self.call_tasks, self.call_wait_s = Histogram(CALL_BOUNDS), Histogram(history.BOUNDS_S)
        self.call_tasks.add(tasks)
        self.call_wait_s.add(gathered_ns / 1e9)
        return 0

    cdef void count(self, object disposition, int failure, int64_t retried) noexcept:
        cdef int outcome = Tally.outcome_of(disposition, failure)
        if outcome >= 0:
            self.by_outcome[outcome] += 1
        if outcome == RETRIED:
            if not disposition.is_failure:
                self.excused += 1
        elif outcome >= 0 and IS_LAST[outcome]:
            self.attempts.add(retried + 1)
        if 0 < failure < KINDS:
            self.by_kind[failure] += 1

    cdef int fill(self, int64_t *counts) noexcept:
        """Fill ``counts`` with the counters of the history, in the order of ``wire/history.py``."""
        cdef int at, buckets = self.run_s.size + 1
        memset(counts, 0, COUNTERS * sizeof(int64_t))
        for at, of in IN_HISTORY:
            counts[of] += self.by_outcome[at]
        counts[FAILED] -= self.excused
        counts[LOST] = self.lost
        for at in range(buckets):
            counts[RUN_TIMES + at] = self.run_s.filled[at]
            counts[WAITS + at] = self.wait_s.filled[at]
        return 0

    def take(self) -> list[int] | None:
        """Return what was counted for the history since the last call; None if nothing was."""
        cdef int64_t counts[MOST_COUNTERS]
        cdef int at
        cdef bint is_any = False
        self.fill(counts)
        for at in range(COUNTERS):
            is_any |= counts[at] != self.taken[at]
        if not is_any:
            return None
        new = []
        for at in range(COUNTERS):
            new.append(counts[at] - self.taken[at])
            self.taken[at] = counts[at]
        return new

    def give_back(self, counts: list[int]) -> None:
        """Let the next ``take`` return these counts again."""
        cdef int at
        for at in range(COUNTERS):
            self.taken[at] -= <int64_t>counts[at]

    @property
    def outcomes(self) -> dict[str, int]:
        """Return how many ends were written, by outcome; without outcomes that never occurred."""
        cdef int at
        return {name: self.by_outcome[at] for at, name in enumerate(OUTCOME_NAMES) if self.by_outcome[at]}

    @property
    def failures(self) -> dict[EventKind, int]:
        """Return how many of the written ends were not successes, by cause; without causes that never occurred."""
        cdef int at
        return {EventKind(at): self.by_kind[at] for at in range(KINDS) if self.by_kind[at]}

"""The interface between the server and the pool: submissions in, events out.

``ProcessPool`` is the only ``Pool``. The server depends on this file; only its wiring makes a ``ProcessPool``.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from fastq.log.setup import log_text
from fastq.pool.main.child_queue import BatchRule, Event, Submission
from fastq.pool.main.preloader_client import PoolStartError
from fastq.pool.shared.event_kind import ANOTHER_TASK, ITS_BATCH, NOT_BEGUN, TOLD_TO_END, TOO_LATE, EventKind
from fastq.pool.shared.runner import Sort

__all__ = [
    "ANOTHER_TASK",
    "ITS_BATCH",
    "NOT_BEGUN",
    "TOLD_TO_END",
    "TOO_LATE",
    "BatchRule",
    "CancelOutcome",
    "ChildCensus",
    "Event",
    "EventKind",
    "Pool",
    "PoolCensus",
    "PoolListener",
    "PoolStartError",
    "Running",
    "Sort",
    "Submission",
]

_log = logging.getLogger("fastq.pool")


class CancelOutcome(Enum):
    """The outcome of a cancellation."""

    WITHDRAWN = auto()
    """The task had not begun and never will; no event follows."""
    TOLD = auto()
    """The task runs and was asked to end; an event follows by the end of the grace."""
    TOO_LATE = auto()
    """The task has ended, was asked to end before, or is unknown."""


@dataclass(frozen=True, slots=True)
class Running:
    """A task that is in a handler now; times are CLOCK_MONOTONIC, deadline 0 means none."""

    submission: Submission
    pid: int
    started_ns: int
    deadline_ns: int


class ChildCensus(NamedTuple):
    """A child: what it does, since when it has been ready or leaving (CLOCK_MONOTONIC), its memory at the last look."""

    pid: int
    state: str
    since_s: float
    rss_bytes: int


class PoolCensus(NamedTuple):
    """The numbers of a pool: what its children do now, and what has happened since its start.

    ``children`` counts the children by what they do: starting, idle, busy, leaving. ``running`` tasks are in a handler,
    ``waiting`` ones are not. ``rss_bytes`` is the memory of the largest child and of all, by their last measurement.
    ``ended`` counts the children that are gone, by reason; ``each`` lists those that live. ``worked_s`` is for how long
    children had tasks, and for how long they could have had some, in seconds of all children together.
    """

    children: Mapping[str, int]
    running: int
    waiting: int
    rss_bytes: tuple[int, int]
    ended: Mapping[str, int]
    worked_s: tuple[float, float]
    each: Sequence[ChildCensus]


class PoolListener:
    """The interface of the receiver of a pool's reports; its methods run in the event loop and must not block."""

    def on_events(self, events: list[Event]) -> None:
        """Take all events, in batches."""

    def on_failed(self, error: PoolStartError) -> None:
        """Learn that no more children can be started; called once. Submitted tasks are RETURNED at ``stop``."""

    def on_notice(self, text: str) -> None:
        """Log a text about a problem."""
        log_text(_log, logging.WARNING, text)

    def on_info(self, text: str) -> None:
        """Log any other text."""
        log_text(_log, logging.INFO, text)

    def on_room(self) -> None:
        """Learn that the pool has room for more tasks."""

    def on_description(self, description: str) -> None:
        """Learn how the runner of a child that became ready describes itself."""


class Pool(Protocol):
    """A pool that runs submissions; its methods are called in the event loop and, unless async, return at once."""

    @property
    def free(self) -> int:
        """Return how many more tasks would start within ``prefetch_time``, by the estimated durations."""

    @property
    def free_coroutines(self) -> int:
        """Return how many more coroutines would start at once."""

    @property
    def pending(self) -> int:
        """Return how many submissions have had no final event yet."""

    @property
    def can_work(self) -> bool:
        """Return whether a child takes tasks or still works on those it has."""

    def submissions(self) -> list[Submission]:
        """Return the submissions without a final event."""

    @property
    def description(self) -> str:
        """Return the runner's description of itself."""

    async def start(self, listener: PoolListener) -> None:
        """Import the app, start the children, and return when all are ready; ``listener`` gets the reports.

        Raises ``PoolStartError`` with the reason or a traceback; ``stop`` must be called after that, too.
        """

    def submit(self, batch: Sequence[Submission]) -> None:
        """Take tasks; their events go to ``on_events``, never within this call."""

    def cancel(self, submission: Submission) -> CancelOutcome:
        """Withdraw a task, or ask it to end if it runs."""

    def running(self) -> list[Running]:
        """Return the tasks that are in a handler now."""

    def note_saved(self, submission: Submission, number: int) -> None:
        """Let a running task see that its checkpoint of this number is saved."""

    def announce_stop(self) -> None:
        """Let running tasks, and those that begin from now on, see that they should come to an end."""

    def let_batches_go(self) -> None:
        """Let no batch wait for more tasks, from now on, since none will come."""

    def census(self) -> PoolCensus:
        """Return the numbers of the pool as of now."""

    def withdraw_all(self) -> list[Submission]:
        """Take no more tasks. Return those that have not begun, in order of submission; they get no event."""

    async def drain(self, within: float) -> bool:
        """Wait for at most ``within`` seconds until nothing runs; return whether that was reached."""

    async def stop(self) -> None:
        """End running tasks (ABORTED), every child and the pool's own preloader, within 1.5 s."""

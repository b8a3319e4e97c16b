"""Where the server and the pool meet: submissions in, events out, and nothing else.

``ProcessPool`` is the one ``Pool``; the server depends on this file, and makes one where it is wired.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from fastq.pool._child_queue import Event, Submission
from fastq.pool.event_kind import NOT_BEGUN, TOLD_TO_END, TOO_LATE, EventKind
from fastq.pool.preloader_client import PoolStartError

__all__ = [
    "NOT_BEGUN",
    "TOLD_TO_END",
    "TOO_LATE",
    "CancelOutcome",
    "Event",
    "EventKind",
    "Pool",
    "PoolCallbacks",
    "PoolStartError",
    "Running",
    "Submission",
]


class CancelOutcome(Enum):
    """What a cancellation found."""

    WITHDRAWN = auto()
    """It had not begun and never will; no event follows."""
    TOLD = auto()
    """It runs and was told; an event follows, by the end of the grace."""
    TOO_LATE = auto()
    """It has ended, was told before, or is not here."""


@dataclass(frozen=True, slots=True)
class Running:
    """A task that is in a handler now; times are CLOCK_MONOTONIC, deadline 0 means none."""

    submission: Submission
    pid: int
    started_ns: int
    deadline_ns: int


@dataclass(frozen=True, slots=True)
class PoolCallbacks:
    """The callbacks of the pool; all run in the event loop and must not block.

    ``on_events`` gets every outcome, in batches. ``on_failed`` is called once when children cannot be started any more;
    submitted tasks are then RETURNED at ``stop``. ``on_notice`` gets log texts about problems, ``on_info`` other log
    texts. ``on_room`` is called when a child has begun to take tasks, ``on_description`` with the runner's description
    in each child that gets ready.
    """

    on_events: Callable[[list[Event]], None]
    on_failed: Callable[[PoolStartError], None]
    on_notice: Callable[[str], None]
    on_info: Callable[[str], None] = lambda text: None
    on_room: Callable[[], None] = lambda: None
    on_description: Callable[[str], None] = lambda description: None


class Pool(Protocol):
    """A pool that runs submissions; methods are the event loop's own and return at once, but for the awaited ones."""

    @property
    def free(self) -> int:
        """Return how many more tasks would start within ``prefetch_time``, by what is known of their durations."""

    @property
    def pending(self) -> int:
        """Return how many submissions have had no final event yet."""

    @property
    def can_work(self) -> bool:
        """Return whether there is a child that takes tasks, or works off what it has."""

    def submissions(self) -> list[Submission]:
        """Return everything that has had no final event yet."""

    @property
    def description(self) -> str:
        """Return what the runner says of itself."""

    async def start(self) -> None:
        """Import the app, start the children, and return when all are ready.

        Raises ``PoolStartError`` with the reason, a traceback if there is one; ``stop`` is still to be called.
        """

    def submit(self, batch: Sequence[Submission]) -> None:
        """Take tasks; each gets its outcome through ``on_events``, in a later turn of the loop at the earliest."""

    def cancel(self, submission: Submission) -> CancelOutcome:
        """Withdraw a task, or tell it to end."""

    def running(self) -> list[Running]:
        """Return what is in a handler now."""

    def withdraw_all(self) -> list[Submission]:
        """Take no more tasks, and return, in order of submission, those that have not begun; they get no event."""

    async def drain(self, within: float) -> bool:
        """Wait until nothing runs any more, for so many seconds at most; tell whether it came to that."""

    async def stop(self) -> None:
        """End what runs (ABORTED), every child and the preloader, within a second and a half."""

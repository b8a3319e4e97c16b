"""Background work of the web process: lookups, which are searches and runs of the doctor, and jobs on many tasks. A job
continues until it has ended or is stopped. A lookup only reads, and ends when no page has shown it for a while.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count
from typing import Any, Final

from fastq.errors import FastqError
from fastq.inspector import Progress

UNSEEN_S: Final = 15.0
"""How long a lookup continues after a page has last shown it."""
FRESH_S: Final = 5.0
"""How long the result of a lookup is returned to requests with the same key."""
MOST_LOOKUPS: Final = 12
MOST_OF_A_USER: Final = 3
"""The most lookups of one user at a time. A further lookup ends the one that the user last viewed longest ago."""
MOST_KEPT: Final = 40
"""The most lookups that are kept, including those that have ended."""
MOST_AT_ONCE: Final = 4
"""The most requests of a user that are answered at a time; further requests wait."""
MOST_WAITING: Final = 100
MOST_STREAMS: Final = 20
"""The most streamed replies to a user at a time; each keeps about a MB in memory until its client has read it."""
MOST_LARGE: Final = 4
"""The most payloads of over a MB that are in memory at a time, for all users."""
STRETCH_S: Final = 0.01
"""How long a computation may keep all pages waiting."""
MOST_RUNNING: Final = 20
MOST_JOBS: Final = 100

_log = logging.getLogger("fastq.web")


class WorkState(StrEnum):
    """The state of a piece of work."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class FullError(Exception):
    """Raised when this user, or all users together, have too much work running to begin more."""


class Shares:
    """Limits how many requests of a user are answered at a time, so that nobody keeps other users waiting."""

    def __init__(self, most_at_once: int = MOST_AT_ONCE) -> None:
        self._most_at_once = most_at_once
        self._users: dict[str, tuple[asyncio.Semaphore, int]] = {}
        self._streams: Counter[str] = Counter()

    @asynccontextmanager
    async def one_of(self, user: str) -> AsyncIterator[None]:
        """Wait until few other requests of the user are being answered; ``FullError`` if many wait."""
        semaphore, count = self._users.get(user) or (asyncio.Semaphore(self._most_at_once), 0)
        if count >= MOST_WAITING:
            raise FullError(f"{count} requests of yours are worked on already")
        self._users[user] = semaphore, count + 1
        try:
            async with semaphore:
                yield
        finally:
            _, count = self._users.pop(user)
            if count > 1:
                self._users[user] = semaphore, count - 1

    def begin_stream(self, user: str) -> None:
        """Count a streamed reply to a user; ``FullError`` if there are too many already."""
        if self._streams[user] >= MOST_STREAMS:
            raise FullError(f"{MOST_STREAMS} downloads and lists are sent to you already")
        self._streams[user] += 1

    def end_stream(self, user: str) -> None:
        """Remove an ended streamed reply from the count."""
        self._streams[user] -= 1
        if not self._streams[user]:
            del self._streams[user]


class Turns:
    """Lets long computations run one at a time, in short steps; between two steps the event loop does other work."""

    def __init__(self) -> None:
        self._large, self._large_of_each = asyncio.Semaphore(MOST_LARGE), Shares(1)
        self._lock = asyncio.Lock()
        self._began_s = 0.0

    async def __aenter__(self) -> "Turns":
        """Wait for the turn."""
        await self._lock.acquire()
        self._began_s = time.monotonic()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the turn, so that the next computation can begin."""
        self._lock.release()

    @asynccontextmanager
    async def large(self, user: str) -> AsyncIterator[None]:
        """Wait until large payloads for a user may be in memory; a slow reader delays only their own requests."""
        async with self._large_of_each.one_of(user), self._large:
            yield

    async def breathe(self) -> None:
        """Let the event loop do other work if this step has taken long enough; call this only within a turn."""
        if time.monotonic() - self._began_s > STRETCH_S:
            await asyncio.sleep(0)
            self._began_s = time.monotonic()


class _Stopped(Exception):  # noqa: N818 - no defect
    """Raised within work, between two chunks, to end it."""


@dataclass(eq=False, slots=True)
class Work:
    """A piece of work, its progress and its result.

    ``queues`` are the queues concerned, None for all queues; only users who see all of these see the work. ``result``
    is the result of a lookup so far. ``said`` is a sentence about the outcome. A lookup counts against the limits of
    its ``owner``, the user or address that began it; other work has no owner.
    """

    title: str
    by: str = ""
    queues: frozenset[str] | None = None
    result: Any = None
    owner: str = ""
    ends_unseen: bool = False
    id: str = ""
    state: WorkState = WorkState.RUNNING
    said: str = ""
    stopped_by: str | None = None
    progress: Progress = field(default_factory=Progress)
    began_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    seen_s: float = field(default_factory=time.monotonic)
    ended_s: float = 0.0
    on_end: Callable[[], None] | None = None
    end: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_running(self) -> bool:
        """Whether the work goes on."""
        return self.state is WorkState.RUNNING

    def note(self, progress: Progress) -> None:
        """Record the progress; raise if the work has to stop here."""
        self.progress = progress
        if self.stopped_by is not None:
            raise _Stopped
        if self.ends_unseen and time.monotonic() - self.seen_s > UNSEEN_S:
            raise _Stopped

    def stop(self, by: str) -> None:
        """End the work before its next chunk."""
        self.stopped_by = by

    async def settle(self, seconds: float) -> None:
        """Wait for the end of the work for ``seconds`` at most."""
        try:
            await asyncio.wait_for(self.end.wait(), seconds)
        except TimeoutError:
            return

    async def run(self, do: Callable[["Work"], Awaitable[str]]) -> None:
        """Do the work, and record how it ended."""
        try:
            self.said = await do(self)
            self.state = WorkState.DONE
        except _Stopped:
            self.state = WorkState.STOPPED
        except asyncio.CancelledError:
            self.state, self.stopped_by = WorkState.STOPPED, self.stopped_by or "the end of the web process"
            raise
        except (FastqError, ValueError) as error:
            self.state, self.said = WorkState.FAILED, str(error)
            _log.warning("%s failed: %s", self.title, error)
        except BaseException:
            self.state, self.said = WorkState.FAILED, "a defect; the log of fastq web has the traceback"
            raise
        finally:
            self.ended_at, self.ended_s = datetime.now(UTC), time.monotonic()
            self.end.set()
            if self.on_end is not None:
                self.on_end()


class Board:
    """All work of a web process; the newest jobs are kept for a while after they have ended."""

    def __init__(self) -> None:
        self.jobs: dict[str, Work] = {}
        self._lookups: dict[str, Work] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ids = count(1)

    def start(self, work: Work, do: Callable[[Work], Awaitable[str]]) -> None:
        """Begin a job; ``ValueError`` if too many run."""
        if sum(each.is_running for each in self.jobs.values()) >= MOST_RUNNING:
            raise ValueError(f"{MOST_RUNNING} jobs run already; wait for one to end, or stop one")
        work.id = str(next(self._ids))
        self.jobs[work.id] = work
        for old in [each for each in self.jobs.values() if not each.is_running][: max(0, len(self.jobs) - MOST_JOBS)]:
            del self.jobs[old.id]
        self._begin(work, do)

    def lookup(self, key: str) -> Work | None:
        """Return a lookup, and record that it was shown now."""
        work = self._lookups.get(key)
        if work is not None:
            work.seen_s = time.monotonic()
        return work

    def look_up(self, key: str, work: Work, do: Callable[[Work], Awaitable[str]]) -> Work:
        """Return the lookup with a key if it is running or has just ended, else begin it; ``FullError`` if too many
        run.
        """
        known = self.lookup(key)
        if known is not None and (known.is_running or time.monotonic() - known.ended_s < FRESH_S):
            return known
        self._make_room(work.owner)
        work.ends_unseen = True
        self._lookups.pop(key, None)
        self._lookups[key] = work
        self._begin(work, do)
        return work

    def _make_room(self, owner: str) -> None:
        """End one of this user's lookups if the user has too many; drop results if too many are kept."""
        running = [work for work in self._lookups.values() if work.owner and work.is_running and not work.stopped_by]
        own = [work for work in running if work.owner == owner]
        if len(own) >= MOST_OF_A_USER:
            min(own, key=lambda work: work.seen_s).stop("newer searches")
        elif owner and len(running) >= MOST_LOOKUPS:
            raise FullError(f"{len(running)} searches of others go on; wait for one to end")
        # The results of this user are dropped first.
        ended = sorted(
            (work.owner != owner, work.seen_s, key) for key, work in self._lookups.items() if not work.is_running
        )
        for *_, key in ended[: max(0, len(self._lookups) - MOST_KEPT + 1)]:
            del self._lookups[key]

    def forget(self, key: str) -> None:
        """Drop a lookup, so that the next request begins a new one."""
        if work := self._lookups.pop(key, None):
            work.stop("newer data")

    def _begin(self, work: Work, do: Callable[[Work], Awaitable[str]]) -> None:
        task = asyncio.get_running_loop().create_task(work.run(do), name=work.title)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all work: between two chunks if it gets there within 2 s, else in the middle of a chunk."""
        for work in [*self.jobs.values(), *self._lookups.values()]:
            if work.is_running:
                work.stop("the end of the web process")
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=2.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""The waits of one client: which function to call at the end of which task."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from fastq.broker.operations.ends import SubmitKey, TaskKey
from fastq.common.durations import nanoseconds_of
from fastq.errors import BrokerConnectionError, BrokerError
from fastq.handles.handle import Outcome, Timeout
from fastq.info import TaskInfo
from fastq.running import CURRENT
from fastq.wire.inbox import TOLD_ONCE, EndKind, TaskEnd, read_ends_message

_log = logging.getLogger("fastq")

E = TypeVar("E", bound=tuple[SubmitKey, Outcome])

LOOK_EVERY_S: Final = 5.0
"""How often a client looks at all tasks that it waits for, since messages can be lost, and Go servers send none."""

OPEN_WITHIN_S: Final = 1.0
"""How long a call waits for the client's subscription. Without one, the client finds ends only by looking in Redis."""

HEARD_WITHIN_S: Final = 0.2
"""How long to wait for a message about a task that is gone: a failed task that a full archive dropped is gone, too."""

MAX_TOLD: Final = 100_000
"""How many failed tasks are remembered for which nobody waits yet; the oldest are forgotten first."""

Ends: TypeAlias = Sequence[tuple[SubmitKey, Outcome]]
"""Ends that came in one message, or were found by one look."""
Call: TypeAlias = Callable[[Ends], object]


class Waits:
    """The functions to call when tasks end; each is called once for a task. Thread-safe."""

    def __init__(self) -> None:
        self._calls: dict[SubmitKey, list[Call]] = {}
        self._told: dict[SubmitKey, TaskEnd] = {}
        self._hints: set[TaskKey] = set()
        self._last: SubmitKey | None = None
        self._lock = threading.Lock()
        self._over: Exception | None = None
        self._has_warned = False

    def add(self, tasks: Iterable[SubmitKey], call: Call) -> None:
        """Have ``call`` called with the ends of these tasks; raise the error that has ended all waits, if any."""
        with self._lock:
            if self._over is not None:
                raise self._over
            for task in tasks:
                self._calls.setdefault(task, []).append(call)

    def submitted(self, task: SubmitKey) -> None:
        """Note the last submitted task: the first look at it can wait, since a message may come soon."""
        self._last = task

    def is_new(self, tasks: Collection[SubmitKey]) -> bool:
        """Return whether ``tasks`` is only the last submitted task, and no message has announced its end."""
        return len(tasks) == 1 and self._last in tasks

    def remove(self, tasks: Iterable[SubmitKey], call: Call) -> None:
        """Do not call ``call`` for these tasks any more."""
        with self._lock:
            for task in tasks:
                calls = self._calls.get(task, [])
                if call in calls:
                    calls.remove(call)
                    if not calls:
                        del self._calls[task]

    @property
    def tasks(self) -> list[SubmitKey]:
        """Return all tasks that are waited for."""
        with self._lock:
            return list(self._calls)

    def take_hinted(self) -> list[SubmitKey]:
        """Return the tasks to look at, because a message without a nonce has named their ids.

        Such a message may be about these tasks, or about earlier tasks with their ids.
        """
        hints, self._hints = self._hints, set()
        return [task for task in self.tasks if task[:2] in hints] if hints else []

    def has(self, task: SubmitKey) -> bool:
        """Return whether anybody waits for a task."""
        return task in self._calls

    def settle(self, ends: Iterable[tuple[SubmitKey, TaskEnd]]) -> list[SubmitKey]:
        """Take the ends that a look found; return the tasks that are gone, for ``settle_gone``.

        An earlier message may have said more: a task that is gone may have failed, and been dropped by a full archive.
        """
        gone, settled = [], list[tuple[SubmitKey, Outcome]]()
        for task, found in ends:
            if task in self._calls:
                is_bare = found.kind is EndKind.GONE or (found.kind is EndKind.FAILED and not found.is_whole)
                end = self._told.get(task, found) if is_bare else found
                if end.kind is EndKind.GONE:
                    gone.append(task)
                else:
                    settled.append((task, end))
        self._settle(settled)
        return gone

    def settle_gone(self, gone: Iterable[SubmitKey]) -> None:
        """End the waits for tasks that are gone; if a message has announced a failure, its task counts as failed."""
        self._settle([(task, self._told.get(task, _GONE)) for task in gone])

    def take_message(self, data: bytes | str) -> None:
        """Take the ends in a message to the inbox; a message that is not well-formed is dropped.

        An older server sends no nonces. Its message may be about an earlier task of the same id, so it is only a hint.
        """
        try:
            ends = read_ends_message(data)
        except ValueError as error:
            if not self._has_warned:
                self._has_warned = True
                _log.warning("dropped a message to this client's inbox: %s; later such messages are not logged", error)
            return
        self._hints |= {task[:2] for task, _ in ends if not task[2]}
        for task, end in self._settle(end for end in ends if end[0][2]):
            if task == self._last:
                self._last = None
            if end.kind in TOLD_ONCE:
                with self._lock:
                    self._told[task] = end
                    if len(self._told) > MAX_TOLD:
                        del self._told[next(iter(self._told))]

    def fail(self, error: Exception, tasks: Iterable[SubmitKey]) -> None:
        """End the waits for these tasks with an error."""
        self._settle([(task, error) for task in tasks])

    def end(self, error: Exception) -> None:
        """End all waits for good; later waits end with the same error."""
        with self._lock:
            self._over = self._over or error
        self.fail(error, self.tasks)

    def _settle(self, ends: Iterable[E]) -> list[E]:
        """Call the functions for ended tasks; return the ends of tasks for which nobody waits."""
        by_call = defaultdict[Call, list[E]](list)
        unknown = []
        with self._lock:
            for each in ends:
                calls = self._calls.pop(each[0], None)
                if calls is None:
                    unknown.append(each)
                    continue
                self._told.pop(each[0], None)
                for call in calls:
                    by_call[call].append(each)
        for call, of_call in by_call.items():
            call(of_call)
        return unknown


_GONE: Final = TaskEnd(EndKind.GONE, is_whole=True)


class Inbox(NamedTuple):
    """The inbox that the tasks of a submit name, the nonce of the submit, and the waits to which ends are reported."""

    name: str
    submit: str = ""
    waits: Waits | None = None

    def submitted(self, info: TaskInfo) -> SubmitKey:
        """Note that a task was just enqueued, and return its queue, id and nonce."""
        task = info.queue, info.id, self.submit
        if self.waits is not None:
            self.waits.submitted(task)
        return task


class Deadline:
    """The time that a call may wait."""

    __slots__ = ("_at_s", "_pause_s", "_timeout_s")

    def __init__(self, timeout: Timeout) -> None:
        self._at_s: float | None = None
        self._pause_s = 0.05
        self._timeout_s = 0.0
        if timeout is not None:
            self._timeout_s = max(0.0, nanoseconds_of(timeout, name="timeout") / 1e9)
            self._at_s = time.monotonic() + self._timeout_s

    def left_s(self) -> float | None:
        """Return the seconds that are left, None without a timeout."""
        return None if self._at_s is None else max(0.0, self._at_s - time.monotonic())

    def within_s(self, most_s: float) -> float:
        """Return the seconds that are left, at most ``most_s``."""
        left_s = self.left_s()
        return most_s if left_s is None else min(most_s, left_s)

    def next_pause_s(self, what: str) -> float:
        """Return how long to wait before the next look, each time longer; raise ``TimeoutError`` when time is up."""
        pause_s = self._pause_s
        if self.left_s() == 0:
            raise self.over(what)
        self._pause_s = min(1.0, 1.3 * pause_s)
        return self.within_s(pause_s)

    @property
    def is_long(self) -> bool:
        """Return whether a timeout error names a reason: not after a short timeout, whose caller will ask again."""
        return self._timeout_s >= 1.0

    def over(self, what: str) -> TimeoutError:
        """Return the error to raise when time is up."""
        return TimeoutError(f"{what} not ended within {self._timeout_s:g} s")


def describe(task: SubmitKey | TaskKey) -> str:
    """Return the beginning of an error's text about a task."""
    return f"task {task[1]} of queue {task[0]!r} has"


class Failures:
    """The failed attempts to subscribe since the last success."""

    def __init__(self) -> None:
        self._count = 0
        self._has_warned = False

    def add(self, error: BrokerError) -> None:
        """Note a failed attempt; a lasting error, such as a missing right, is logged once."""
        self._count += 1
        if not error.transient and not self._has_warned:
            self._has_warned = True
            _log.warning("cannot hear when tasks end, and looks every %g s: %s", LOOK_EVERY_S, error)

    def clear(self) -> None:
        """Note a success."""
        self._count = 0

    @property
    def pause_s(self) -> float:
        """Return how long to wait before the next attempt."""
        return min(0.05 * 2.0 ** min(self._count, 6), 2.0)


def refuse_in_handler() -> None:
    """Raise ``RuntimeError`` if the caller is a handler."""
    task: Any = CURRENT.get(None)
    if task is not None:
        raise RuntimeError(
            f"the handler of task {task.id} cannot wait for other tasks: it would hold a place that they may need, and "
            "all places may be held so; enqueue what is to follow from the last of them, or wait in the producer"
        )


def closed() -> BrokerConnectionError:
    """Return the error of waits whose client is closed."""
    return BrokerConnectionError("the client was closed while it waited for a task")

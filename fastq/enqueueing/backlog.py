"""Back-pressure for producers: they wait, or are refused, while a queue has too many pending tasks.

A client asks Redis for a queue's length at most once a second; until the next time, it adds the tasks that it sends
itself to that length. A client without ``max_pending`` does neither.
"""

import math
import os
from collections.abc import Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from fastq.broker.operation import Flow, Operation, Wait
from fastq.broker.operations.enqueue import EnqueueBatch
from fastq.common.clock import Clock
from fastq.common.durations import nanoseconds_of
from fastq.common.states import TaskState
from fastq.errors import BrokerError, QueueFullError
from fastq.wire import keys

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_EVERY_S: Final = 1.0
ASKING_S: Final = 0.005


class MaxPending(NamedTuple):
    """How many pending tasks a queue may have, and how long a producer waits while it has as many or more."""

    most: int
    wait_s: float = math.inf


def max_pending_of(most: object, timeout: float | timedelta | None) -> MaxPending | None:
    """Return the checked limit of a client or a call; None if it has no limit."""
    wait_s = math.inf if timeout is None else nanoseconds_of(timeout, name="full_timeout") / 1e9
    if wait_s < 0:
        raise ValueError(f"full_timeout must not be negative: {timeout!r}")
    if most is None:
        return None
    if not isinstance(most, int) or isinstance(most, bool):
        raise TypeError(f"max_pending must be an int, not {type(most).__name__}: {most!r}")
    if most < 1:
        raise ValueError(f"max_pending must be at least 1: {most!r}")
    return MaxPending(most, wait_s)


_OF_CALL: Final[ContextVar[MaxPending | None]] = ContextVar("fastq_max_pending", default=None)


def limit_of_call(of_client: MaxPending | None) -> MaxPending | None:
    """Return the limit of the current call if it has one, else the client's limit."""
    return _OF_CALL.get() or of_client


@contextmanager
def calling_with(limit: MaxPending | None) -> "Iterator[None]":
    """Apply a limit to everything that the block sends, also through the client's middleware."""
    token = _OF_CALL.set(limit)
    try:
        yield
    finally:
        _OF_CALL.reset(token)


@dataclass(slots=True)
class _Seen:
    """What a client knows of one queue; ``length`` is Redis' last answer plus the tasks that the client sent later."""

    at_s: float
    length: int = 0
    is_known: bool = False
    asked_by: int = 0
    """The process in which a call asks Redis now, 0 for none: after a fork, the parent's call gives no answer here."""


class Backlog:
    """The lengths of queues, as far as one client knows them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str, _Seen] = {}

    def room(self, batches: Iterable[EnqueueBatch], limit: MaxPending) -> Flow[None]:
        """Wait until each queue has fewer pending tasks than its limit; ``QueueFullError`` if that takes too long."""
        for batch in batches:
            if batch.state is TaskState.PENDING:
                yield from self._room(batch.queue, len(batch.tasks), limit)

    def _room(self, queue: str, count: int, limit: MaxPending) -> Flow[None]:
        until_s, pid = self._clock.monotonic_s() + limit.wait_s, os.getpid()
        seen = self._queues.setdefault(queue, _Seen(-math.inf))
        while True:
            now_s = self._clock.monotonic_s()
            if seen.asked_by != pid and now_s - seen.at_s >= LOOK_EVERY_S:
                yield from self._look(queue, seen, now_s, pid)
            if seen.is_known and seen.length < limit.most:
                seen.length += count
                return
            now_s = self._clock.monotonic_s()
            if seen.is_known and now_s >= until_s:
                raise QueueFullError(queue, seen.length, limit.most)
            pause_s = ASKING_S if seen.asked_by == pid else seen.at_s + LOOK_EVERY_S - now_s
            yield Wait(max(0.0, min(pause_s, until_s - now_s if seen.is_known else pause_s)))

    def _look(self, queue: str, seen: _Seen, now_s: float, pid: int) -> Flow[None]:
        """Ask for the length of a queue.

        Meanwhile, other calls of this client wait for the answer instead of asking, too.
        """
        seen.asked_by = pid
        try:
            seen.length = yield Operation("LLEN", (keys.pending(queue),), (), int, idempotent=True)
            seen.at_s, seen.is_known = now_s, True
        except BrokerError as error:
            error.maybe_applied = False  # nothing was enqueued
            raise
        finally:
            seen.asked_by = 0

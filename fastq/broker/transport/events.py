"""The messages of sentinels to a blocking client, read without waiting when a call begins.

There is no thread, since a client may be forked at any time. A call asks the kernel whether a sentinel has sent
anything, which takes about a microsecond. The sentinels are still asked for the master once a second, since a sentinel
may refuse subscriptions.
"""

import logging
import os
import select
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import ResponseError

from fastq.broker.transport.faults import CONNECT_FAULTS, REFUSALS

EVENTS: Final = ("+switch-master", "+promoted-slave")
CONNECT_WITHIN_S: Final = 0.2
"""The longest time that a call waits for a sentinel that is out of reach."""
LARGEST_SHARE: Final = 0.01
"""The largest share of all time that calls together wait for such sentinels."""
AGAIN_S: Final = 1.0
REFUSED_AGAIN_S: Final = 60.0

_log = logging.getLogger("fastq")
_all: Final = weakref.WeakSet["SentinelEvents"]()


def log_refusal(where: str, error: Exception) -> None:
    """Log that a sentinel refuses the subscription to its events."""
    _log.warning("the sentinel at %s does not tell us of switches: %s; it is asked once a second", where, error)


class SentinelEvents:
    """The subscriptions for one connection pool: one connection to each sentinel."""

    def __init__(self, sentinels: Sequence[Any], service_name: str) -> None:
        self._sentinels = sentinels
        self._name = service_name.encode()
        self._refused: set[Any] = set()
        self.begin()
        _all.add(self)

    def begin(self) -> None:
        """Begin without subscriptions.

        In a forked child the old connections are the parent's, and the lock may be held.
        """
        self._lock = threading.Lock()
        self._is_ending = False
        self._poll = select.poll()
        self._open: dict[int, tuple[Any, Any]] = {}
        self._missing = dict.fromkeys(self._sentinels, 0.0)
        """The sentinels without a subscription, and when to try again, in monotonic seconds."""

    def told(self) -> Any | None:
        """Return a sentinel that has announced another master since the last call, None if there is none."""
        if not self._open or not self._lock.acquire(blocking=False):  # another thread is looking
            return None
        try:
            return next((teller for fd, _ in self._poll.poll(0) if (teller := self._hear(fd)) is not None), None)
        finally:
            self._leave()

    def subscribe(self) -> None:
        """Subscribe to one of the sentinels that are missing, if it is time to try."""
        if not self._missing or not self._lock.acquire(blocking=False):
            return
        try:
            now_s = time.monotonic()
            if due := [sentinel for sentinel, due_s in self._missing.items() if due_s <= now_s]:
                self._subscribe(due[0])
        finally:
            self._leave()

    def close(self) -> None:
        """Close the connections, at once or when the thread that uses them is done."""
        self._is_ending = True
        self._end()

    def _leave(self) -> None:
        self._lock.release()
        self._end()

    def _end(self) -> None:
        # This never waits for the lock: a signal handler may have interrupted the thread that has it.
        while self._is_ending and self._lock.acquire(blocking=False):
            self._is_ending = False
            try:
                for fd in tuple(self._open):
                    self._drop(fd, 0.0)
            finally:
                self._lock.release()

    def _subscribe(self, sentinel: Any) -> None:
        pool = sentinel.connection_pool
        limits = {"socket_connect_timeout": CONNECT_WITHIN_S, "socket_timeout": CONNECT_WITHIN_S}
        connection = pool.connection_class(**pool.connection_kwargs | limits)
        began_s = time.monotonic()
        try:
            connection.connect()
            connection.send_command("SUBSCRIBE", *EVENTS)
        except CONNECT_FAULTS:
            connection.disconnect()
            now_s = time.monotonic()
            self._missing[sentinel] = now_s + max(AGAIN_S, (now_s - began_s) / LARGEST_SHARE)
            return
        fd = connection._sock.fileno()
        self._poll.register(fd, select.POLLIN)
        self._open[fd] = sentinel, connection
        del self._missing[sentinel]

    def _hear(self, fd: int) -> Any | None:
        """Read all that one sentinel has sent; return the sentinel if it announced a switch of our master."""
        sentinel, connection = self._open[fd]
        is_told = False
        try:
            while connection.can_read(timeout=0):
                heard = connection.read_response(disable_decoding=True, disconnect_on_error=False)
                is_told = is_told or (heard[0] == b"message" and self._name in heard[2].split())
        except (ResponseError, *REFUSALS) as error:
            self._drop(fd, REFUSED_AGAIN_S)
            if sentinel not in self._refused:
                self._refused.add(sentinel)
                log_refusal(f"{connection.host}:{connection.port}", error)
        except CONNECT_FAULTS:
            self._drop(fd, AGAIN_S)
        return sentinel if is_told else None

    def _drop(self, fd: int, again_s: float) -> None:
        sentinel, connection = self._open.pop(fd)
        self._poll.unregister(fd)
        connection.disconnect()
        self._missing[sentinel] = time.monotonic() + again_s


def _begin_all() -> None:
    for events in tuple(_all):
        events.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all)

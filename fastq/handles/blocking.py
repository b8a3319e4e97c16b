"""How a ``Client`` waits: a thread receives messages about ended tasks, and looks in Redis for ends without a message.

The thread starts with the first submitted task. A forked process starts its own thread, with another inbox.
"""

import logging
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

from fastq.broker.operations.cancel import cancel_task
from fastq.broker.operations.ends import (
    SubmitKey,
    TaskKey,
    look_at,
    parts_of,
    read_end,
    read_progress_of,
    read_state,
    read_why,
    tell_inbox,
)
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.blocking_subscription import BlockingSubscription
from fastq.common.clock import Clock
from fastq.common.states import TaskState
from fastq.errors import BrokerError, TaskGoneError
from fastq.handles.collecting import READ_AT_ONCE, Collection, Hear, collect
from fastq.handles.handle import Handle, Outcome, Timeout, value_of
from fastq.handles.waits import (
    HEARD_WITHIN_S,
    LOOK_EVERY_S,
    OPEN_WITHIN_S,
    Deadline,
    Failures,
    Inbox,
    Waits,
    closed,
    describe,
    refuse_in_handler,
)
from fastq.wire import keys
from fastq.wire.inbox import new_name
from fastq.wire.progress import TaskProgress

CLOSE_WITHIN_S = 5.0
HEAR_MOST_S = 1.0

R = TypeVar("R")
_Ends: TypeAlias = "queue.SimpleQueue[Sequence[tuple[SubmitKey, Outcome]]]"

_log = logging.getLogger("fastq")


class BlockingWaiter:
    """The part of a ``Client`` that waits for its tasks."""

    def __init__(self, broker: BlockingBroker, clock: Clock, look_every_s: float = LOOK_EVERY_S) -> None:
        self._broker = broker
        self._clock = clock
        self._look_every_s = look_every_s
        self._by_pid: dict[int, _Own] = {}

    @property
    def own(self) -> "_Own":
        """Return the inbox and the listener of this process; a fork cannot use its parent's thread and locks."""
        pid = os.getpid()
        return self._by_pid.get(pid) or self._by_pid.setdefault(pid, _Own())

    def open_inbox(self) -> Inbox:
        """Return the inbox for the headers of tasks that will be submitted; from now on, its messages are received."""
        return Inbox(self.own.inbox, new_name(), self._listening(Deadline(None)))

    def wait_for(self, handle: Handle[Any], timeout: Timeout) -> Outcome:
        """Return how a task has ended, as soon as it has."""
        if handle.end is None:
            deadline = Deadline(timeout)
            try:
                deque(self._collect(Collection.of_one(handle), deadline), maxlen=0)
            except TimeoutError as error:
                raise TimeoutError(f"{error}{self._why(handle.task, deadline)}") from None
        assert handle.end is not None, "it has been collected"
        return handle.end

    def _why(self, task: SubmitKey, deadline: Deadline) -> str:
        """Return the reason why a task has not ended in time; "" if the reason is unknown."""
        try:
            now_s = self._clock.unix_ns() // 1_000_000_000
            return self._broker.drive(read_why(*task[:2], now_s)) if deadline.is_long else ""
        except BrokerError:  # the Redis user may lack the right to read the servers' notices
            return ""

    def as_completed(self, handles: Iterable[Handle[R]], timeout: Timeout) -> Iterator[Handle[R]]:
        """Yield each handle when its task ends."""
        collection: Collection[Handle[R]] = Collection(handles, self)
        return self._collect(collection, Deadline(timeout))

    def _collect(self, collection: Collection[Handle[R]], deadline: Deadline) -> Iterator[Handle[R]]:
        yield from collection.ended
        ended: _Ends = queue.SimpleQueue()
        with closing(collect(collection, self._listening(deadline), ended.put, deadline)) as steps:
            reply: Any = None
            with suppress(StopIteration):
                while True:
                    step, reply = steps.send(reply), None
                    if isinstance(step, list):
                        yield from step
                    else:
                        reply = _heard(ended, step.within_s) if isinstance(step, Hear) else self._broker.drive(step)

    def wait_for_any(self, task: TaskKey, timeout: Timeout) -> bytes | None:
        """Wait for a task that does not name this client's inbox, and return its result."""
        refuse_in_handler()
        deadline, own = Deadline(timeout), self.own
        closings = own.closings
        while own.closings == closings:
            end = self._broker.drive(read_end((*task, "")))
            if end is not None:
                return value_of(task, end)
            time.sleep(deadline.next_pause_s(describe(task)))
        raise closed()

    def state(self, task: SubmitKey) -> TaskState:
        """Return the state that a task is in."""
        state = self._broker.run(read_state(*task))
        if state is None:
            raise TaskGoneError(*task[:2])
        return state

    def progress(self, task: SubmitKey) -> TaskProgress | None:
        """Return how far a task has come."""
        return self._broker.drive(read_progress_of(task))

    def cancel(self, task: SubmitKey) -> None:
        """Delete a task, and stop it if it runs."""
        self._broker.drive(cancel_task(task))

    def close(self) -> None:
        """End all waits; later waits begin anew."""
        own = self.own
        with own.lock:
            listener, own.listener = own.listener, None
            own.closings += 1
        if listener is not None:
            listener.close()

    def _listening(self, deadline: Deadline) -> Waits:
        """Return the waits once the inbox is subscribed to, or the subscription has failed or takes too long."""
        own = self.own
        with own.lock:
            if own.listener is None or not own.listener.is_alive:
                own.listener = _Listener(self._broker, own.inbox, self._clock, self._look_every_s)
                weakref.finalize(self, own.listener.is_closing.set)  # for a client that nobody closes
            listener = own.listener
        within_s = deadline.within_s(OPEN_WITHIN_S)
        if not listener.is_ready.wait(within_s) and within_s == OPEN_WITHIN_S:
            listener.is_ready.set()  # later calls do not wait for the subscription
        return listener.waits


def _heard(ended: _Ends, within_s: float | None) -> dict[SubmitKey, Outcome]:
    found: dict[SubmitKey, Outcome] = {}
    with suppress(queue.Empty):
        found.update(ended.get(timeout=within_s))
        while len(found) < READ_AT_ONCE:
            found.update(ended.get_nowait())
    return found


class _Own:
    """The inbox and the listener of one process."""

    def __init__(self) -> None:
        self.inbox = new_name()
        self.lock = threading.Lock()
        self.listener: _Listener | None = None
        self.closings = 0


class _Listener:
    """The thread that receives messages about ended tasks, and looks in Redis for the other ends."""

    def __init__(self, broker: BlockingBroker, inbox: str, clock: Clock, look_every_s: float) -> None:
        self.waits = Waits()
        self.is_ready = threading.Event()
        self._broker = broker
        self._inbox = inbox
        self._clock = clock
        self._look_every_s = look_every_s
        self._look_at_s = 0.0
        self._failures = Failures()
        self.is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fastq waits", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the thread and all waits."""
        self.is_closing.set()
        try:
            self._broker.run(tell_inbox(self._inbox, "", ()))  # wakes the thread before its next look
        except BrokerError:
            _log.debug("the client cannot wake its listener; it ends by itself")
        self._thread.join(CLOSE_WITHIN_S)
        self.waits.end(closed())

    def _run(self) -> None:
        try:
            while not self.is_closing.is_set():
                try:
                    self._listen()
                except BrokerError as error:
                    self._failures.add(error)
                    self.is_ready.set()
                    self.is_closing.wait(self._failures.pause_s)
                    self._look_if_due(self.is_closing.wait)
        except Exception as error:  # noqa: BLE001 - a defect; nobody may wait for ever because of it
            _log.exception("unexpected error: the client waits no longer")
            self.waits.end(error)
        finally:
            self.is_ready.set()

    def _listen(self) -> None:
        """Receive messages until the connection ends or the client is closed."""
        subscription = BlockingSubscription(self._broker.transport, keys.inbox_channel(self._inbox))
        try:
            self.is_ready.set()
            self._failures.clear()
            self._look_at_s = 0.0  # messages that came before the subscription are lost
            hear = partial(self._hear, subscription)
            while not self.is_closing.is_set():
                self._look_if_due(hear)
                while hinted := self.waits.take_hinted():  # messages that come during a look may bring more hints
                    self._look_at(hinted, hear)
                message = subscription.next(self._look_at_s - self._clock.monotonic_s())
                if message is not None:
                    self.waits.take_message(message)
        finally:
            subscription.close()

    def _hear(self, subscription: BlockingSubscription, within_s: float) -> None:
        """Receive messages for ``within_s``.

        Messages that have arrived by then are still taken, for at most one more second.
        """
        until_s = self._clock.monotonic_s() + within_s
        while (left_s := until_s - self._clock.monotonic_s()) > -HEAR_MOST_S:
            message = subscription.next(left_s)
            if message is not None:
                self.waits.take_message(message)
            elif left_s <= 0:
                return

    def _look_if_due(self, hear: Callable[[float], object]) -> None:
        if self._clock.monotonic_s() >= self._look_at_s:
            self._look_at(self.waits.tasks, hear)
            self._look_at_s = self._clock.monotonic_s() + self._look_every_s

    def _look_at(self, tasks: Sequence[SubmitKey], hear: Callable[[float], object]) -> None:
        gone: list[SubmitKey] = []
        for part in parts_of(tasks):
            try:
                gone += self.waits.settle(self._broker.drive(look_at(part)))
            except BrokerError as error:
                if not error.transient:
                    self.waits.fail(error, self.waits.tasks)
                break
            hear(0)
            if self.is_closing.is_set():
                return
        if gone:
            hear(HEARD_WITHIN_S)
            self.waits.settle_gone(gone)

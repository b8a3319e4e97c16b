"""The seats of a pool: one for each of its ``processes``, with a child and sometimes the child's successor.

A child that has run its share of tasks or has grown too big leaves: it gets no more tasks, and its successor is started
while it works on those it has. The successor takes over only when all of these have ended, so that there are never more
running handlers than seats. A child of an older import of the app leaves once its successor is ready. One successor
starts at a time. A child with a device ends before its successor starts, since the device may have no memory for both.
A reload empties one such seat at a time. It does not wait for a seat whose last child
could not start, unless the reload has emptied that seat.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fastq.pool.main.census import why_replaced
from fastq.pool.main.child import Child, ChildState
from fastq.pool.main.config import PoolConfig
from fastq.pool.main.dispatcher import Dispatcher


@dataclass(slots=True)
class Seat:
    """The place of one child: the child that works, and its successor; both have the ``device``, "" for none."""

    device: str = ""
    current: Child | None = None
    successor: Child | None = None
    is_vacated: bool = False
    """Whether a reload has emptied the seat, and no child of the new import is ready in it yet."""
    has_failed: bool = False
    """Whether the last child of the seat could not start."""


class Seats:
    """The seats of a pool; a seat that becomes empty is filled again."""

    def __init__(
        self,
        config: PoolConfig,
        dispatcher: Dispatcher,
        order: Callable[[str], Child | None],
        tell: Callable[[str], None],
    ) -> None:
        devices = config.devices or ("",)
        self._all = [Seat(devices[number % len(devices)]) for number in range(config.processes)]
        self._dispatcher = dispatcher
        self._order = order
        self._tell = tell

    @property
    def all_ready(self) -> bool:
        """Return whether every seat has a child that is ready or leaving."""
        return all(seat.current and seat.current.state in (ChildState.READY, ChildState.LEAVING) for seat in self._all)

    def fill(self) -> None:
        """Seat a successor, or order a new child, at every empty seat."""
        for seat in self._all:
            if seat.current is None:
                seat.current = seat.successor or self._order(seat.device)
                seat.successor = None
            if seat.current is not None and seat.current.state is ChildState.READY:
                seat.current.queue.set_open(True)
                seat.is_vacated = seat.has_failed = False

    def leave(self, child: Child, *, has_failed: bool) -> None:
        """Take a dead child off its seat; ``has_failed`` if it could not start."""
        for seat in self._all:
            if seat.current is child:
                seat.current, seat.has_failed = None, has_failed
            if seat.successor is child:
                seat.successor = None

    def recycle(self) -> None:
        """Retire the children that must leave, and order and seat their successors."""
        for seat in self._all:
            old = seat.current
            if old is None:
                continue
            if old.state is ChildState.READY and (old.queue.left == 0 or old.queue.wants_to_leave or old.is_too_big):
                self._retire(old)
            if seat.device:
                self._vacate(seat, old)
            elif old.state is ChildState.LEAVING or (old.state is ChildState.READY and old.is_outdated):
                self._replace(seat, old)

    def _replace(self, seat: Seat, old: Child) -> None:
        """Order the successor of a child that must leave, and seat it once it is ready and the child is idle."""
        if seat.successor is None and not self._is_starting_one:
            seat.successor = self._order(seat.device)
            if seat.successor is None and old.state is ChildState.LEAVING and not old.queue.pending:
                dismiss(old)  # it is idle, and may hold the memory or descriptors that its successor lacks
        if seat.successor is None or seat.successor.state is not ChildState.READY:
            return
        if old.state is ChildState.READY:
            self._retire(old)
        if not old.queue.pending:
            dismiss(old)
            seat.current = None
            self.fill()

    def _vacate(self, seat: Seat, old: Child) -> None:
        """Dismiss a child that must leave; its successor is ordered once it is dead and its memory is free."""
        if old.state is ChildState.READY and old.is_outdated and not any(map(_is_awaited, self._all)):
            seat.is_vacated = True
            self._retire(old)
        if old.state is ChildState.LEAVING and not old.queue.pending:
            dismiss(old)

    @property
    def _is_starting_one(self) -> bool:
        return any(seat.successor and seat.successor.state is ChildState.STARTING for seat in self._all)

    def _retire(self, child: Child) -> None:
        child.state = ChildState.LEAVING
        child.why_replaced = why_replaced(child)  # only now: a task that it gives back counts no more
        child.queue.set_open(False)
        if child.is_outdated:
            child.queue.announce_stop()  # only now, since the tasks that end because of it may begin elsewhere at once
        if child.queue.is_over_memory:
            size_mb = child.queue.rss / 1e6
            self._tell(
                f"worker process {child.pid} has grown to {size_mb:.0f} MB (max_memory_per_child); it is replaced"
            )
        elif child.queue.wants_to_leave:
            self._tell(f"worker process {child.pid} has no descriptor left for a large payload; it is replaced")
        # Tasks that have not begun need not wait for those that run.
        if child.queue.wants_to_leave or child.is_too_big or child.is_outdated:
            self._dispatcher.put_back(child.queue.take_back_all())


def _is_awaited(seat: Seat) -> bool:
    """Return whether a reload must wait for the child of this seat before it empties another seat."""
    is_ready = seat.current is not None and seat.current.state is ChildState.READY
    return seat.is_vacated or not (is_ready or seat.has_failed)


def dismiss(child: Child) -> None:
    """Send an idle child the order to exit."""
    child.state = ChildState.EXITING
    child.since_s = time.monotonic()
    child.queue.tell_to_exit()

"""Who sits where: each of the pool's ``processes`` is a seat with a child, and now and then its successor.

A child that has done its share, or has grown too big, leaves: it gets nothing more, its successor is started while it
works off what it has, and takes over only when it has answered for everything, so that there are never more running
handlers than seats. One of an older import of the app leaves once its successor is ready. One successor starts at a
time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fastq.pool._dispatcher import Dispatcher
from fastq.pool.child import Child, ChildState

__all__ = ["Seat", "Seats"]


@dataclass(slots=True)
class Seat:
    """The place of one child: the child that works, and its successor."""

    current: Child | None = None
    successor: Child | None = None


class Seats:
    """The seats of a pool, each of which is kept taken."""

    def __init__(
        self,
        count: int,
        dispatcher: Dispatcher,
        order: Callable[[], Child | None],
        tell: Callable[[str], None],
    ) -> None:
        self._all = [Seat() for _ in range(count)]
        self._dispatcher = dispatcher
        self._order = order
        self._tell = tell

    @property
    def all_ready(self) -> bool:
        """Return whether every seat has a child that takes tasks or soon will again."""
        return all(seat.current and seat.current.state in (ChildState.READY, ChildState.LEAVING) for seat in self._all)

    def fill(self) -> None:
        """Give every empty seat its successor, or else a new child."""
        for seat in self._all:
            if seat.current is None:
                seat.current = seat.successor or self._order()
                seat.successor = None
            if seat.current is not None and seat.current.state is ChildState.READY:
                seat.current.queue.set_open(True)

    def leave(self, child: Child) -> None:
        """Take a dead child off its seat."""
        for seat in self._all:
            if seat.current is child:
                seat.current = None
            if seat.successor is child:
                seat.successor = None

    def recycle(self) -> None:
        """Let children leave that are to, and order and seat their successors."""
        for seat in self._all:
            old = seat.current
            if old is None:
                continue
            if old.state is ChildState.READY and (old.queue.left == 0 or old.queue.wants_to_leave or old.is_too_big):
                self._retire(old)
            if old.state is not ChildState.LEAVING and not (old.state is ChildState.READY and old.is_outdated):
                continue
            if seat.successor is None and not self._is_starting_one:
                seat.successor = self._order()
                if seat.successor is None and old.state is ChildState.LEAVING and not old.queue.pending:
                    dismiss(old)  # it is of no use, and what its successor lacks may be what it holds
            if seat.successor is None or seat.successor.state is not ChildState.READY:
                continue
            if old.state is ChildState.READY:
                self._retire(old)
            if not old.queue.pending:
                dismiss(old)
                seat.current = None
                self.fill()

    @property
    def _is_starting_one(self) -> bool:
        return any(seat.successor and seat.successor.state is ChildState.STARTING for seat in self._all)

    def _retire(self, child: Child) -> None:
        child.state = ChildState.LEAVING
        child.queue.set_open(False)
        if child.queue.is_over_memory:
            size_mb = child.queue.rss / 1e6
            self._tell(
                f"worker process {child.pid} has grown to {size_mb:.0f} MB (max_memory_per_child); it is replaced"
            )
        elif child.queue.wants_to_leave:
            self._tell(f"worker process {child.pid} has no descriptor left for a large payload; it is replaced")
        # What has not begun need not wait for what runs.
        if child.queue.wants_to_leave or child.is_too_big or child.is_outdated:
            self._dispatcher.put_back(child.queue.take_back_all())


def dismiss(child: Child) -> None:
    """Let a child that has nothing to do end."""
    child.state = ChildState.EXITING
    child.since_s = time.monotonic()
    child.queue.tell_to_exit()

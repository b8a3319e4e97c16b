"""How logging's handlers take their lock, in processes whose threads are interrupted by exceptions.

Up to Python 3.12, ``Handler.handle`` calls ``acquire`` before its ``try``. If an exception is set for a thread that
waits there, the lock stays taken, and all other threads that log wait for ever. Python 3.13 takes the lock by ``with``,
so that nothing can be raised between taking the lock and entering the block.
"""

import sys
from logging import Handler, LogRecord
from typing import Any

_handle = Handler.handle


def _handle_with(self: Handler, record: LogRecord) -> Any:
    kind = type(self)
    if self.lock is None or kind.acquire is not Handler.acquire or kind.release is not Handler.release:
        return _handle(self, record)
    kept: Any = self.filter(record)  # from 3.12 on, a filter may return another record
    if isinstance(kept, LogRecord):
        record = kept
    if kept:
        with self.lock:
            self.emit(record)
    return kept


def take_locks_by_with() -> None:
    """Make logging's handlers take their lock as in Python 3.13."""
    if sys.version_info < (3, 13):
        Handler.handle = _handle_with  # type: ignore[method-assign]  # that is its purpose

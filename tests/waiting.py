"""Wait for something that another process or thread will do, without a fixed pause."""

import time
from collections.abc import Callable
from threading import Event

__all__ = ["wait_until"]


def wait_until(predicate: Callable[[], object], timeout_s: float = 10.0, *, interval_s: float = 0.01) -> None:
    """Ask ``predicate`` until it answers something true; an ``AssertionError`` names it when it never does."""
    deadline = time.monotonic() + timeout_s
    pause = Event()
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"{getattr(predicate, '__name__', predicate)} was not true within {timeout_s} s")
        pause.wait(interval_s)

"""Wait for something that another process or thread will do, without a fixed pause."""

import asyncio
import time
from collections.abc import Callable
from threading import Event

__all__ = ["until", "wait_until"]


def wait_until(predicate: Callable[[], object], timeout_s: float = 10.0, *, interval_s: float = 0.01) -> None:
    """Ask ``predicate`` until it answers something true; an ``AssertionError`` names it when it never does."""
    deadline = time.monotonic() + timeout_s
    pause = Event()
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"{getattr(predicate, '__name__', predicate)} was not true within {timeout_s} s")
        pause.wait(interval_s)


async def until(predicate: Callable[[], object], *, interval_s: float = 0.002) -> None:
    """Wait on an event loop until ``predicate`` answers something true; the test's own limit ends a wait in vain."""
    pause = asyncio.Event()
    while not predicate():
        asyncio.get_running_loop().call_later(interval_s, pause.set)
        await pause.wait()
        pause.clear()

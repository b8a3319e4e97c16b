"""Wait for something that another process or thread will do, without a fixed pause.

A limit is there to end a test that fails; one that passes must not come near it on any machine.
"""

import asyncio
import time
from collections.abc import Callable
from threading import Event

PATIENCE_S = 90.0
"""For a machine ten times as slow as ours that stands still for a while, too."""


def wait_until(predicate: Callable[[], object], timeout_s: float = PATIENCE_S, *, interval_s: float = 0.01) -> None:
    """Ask ``predicate`` until it answers something true; an ``AssertionError`` names it when it never does."""
    deadline = time.monotonic() + timeout_s
    pause = Event()
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"{getattr(predicate, '__name__', predicate)} was not true within {timeout_s} s")
        pause.wait(interval_s)


def after(seconds: float) -> Callable[[], bool]:
    """Return what is true once so much time has passed: for trouble that has to last, not for work to be done."""
    end_s = time.monotonic() + seconds
    return lambda: time.monotonic() > end_s


async def until(predicate: Callable[[], object], *, interval_s: float = 0.002) -> None:
    """Wait on an event loop until ``predicate`` answers something true; the test's own limit ends a wait in vain."""
    pause = asyncio.Event()
    while not predicate():
        asyncio.get_running_loop().call_later(interval_s, pause.set)
        await pause.wait()
        pause.clear()

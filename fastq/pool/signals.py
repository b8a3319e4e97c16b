"""The signals between main process and children, and what a child does with those that others send.

The soft signal is a real-time one where there are any, since apps use SIGUSR1 and SIGUSR2. Who stops a whole service
sends SIGTERM or SIGINT to every process of it: children leave that to the main process, which lets them finish.
"""

import os
import signal
from collections.abc import Callable
from types import FrameType

__all__ = ["SOFT_SIGNAL", "install"]

SOFT_SIGNAL: int = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
_LEFT_TO_MAIN = (signal.SIGTERM, signal.SIGINT)


def _leave(signum: int, frame: FrameType | None) -> None:
    # A function, not SIG_IGN: that would be inherited by every program a handler starts.
    del signum, frame


def _hold() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_TO_MAIN)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _LEFT_TO_MAIN)


def _restore() -> None:
    for signum in (*_LEFT_TO_MAIN, SOFT_SIGNAL):
        signal.signal(signum, signal.SIG_DFL)
    _release()  # one that came meanwhile ends the process now, as it should


def install(on_soft: Callable[[int, FrameType | None], None]) -> None:
    """Set a child's signal handlers; processes that it forks get the defaults back."""
    for signum in _LEFT_TO_MAIN:
        signal.signal(signum, _leave)
    signal.signal(SOFT_SIGNAL, on_soft)
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_restore)

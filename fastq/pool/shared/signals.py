"""The signals between main process and children, and the children's handling of signals from outside.

The soft signal is a real-time one where there are any, since apps use SIGUSR1 and SIGUSR2. A service manager may send a
signal to each process of the service; preloader and children leave it to the main process. An app may handle these
signals except SIGTERM and SIGINT.
"""

import os
import signal
from collections.abc import Callable
from types import FrameType

SOFT_SIGNAL: int = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
_LEFT_TO_MAIN = (signal.SIGTERM, signal.SIGINT)
_ORDERS = (
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)


def _leave(signum: int, frame: FrameType | None) -> None:
    # Not SIG_IGN: every program that a handler starts would inherit that.
    del signum, frame


def _hold() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_TO_MAIN)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _LEFT_TO_MAIN)


def _restore() -> None:
    for signum in (*_LEFT_TO_MAIN, SOFT_SIGNAL):
        signal.signal(signum, signal.SIG_DFL)
    for signum in _ORDERS:
        if signal.getsignal(signum) is _leave:
            signal.signal(signum, signal.SIG_DFL)
    _release()  # a signal that came meanwhile ends the process now


def leave_to_main() -> None:
    """Ignore the signals on which the main process acts; an app that is imported later may handle them."""
    for signum in _ORDERS:
        signal.signal(signum, _leave)


def install(on_soft: Callable[[int, FrameType | None], None]) -> None:
    """Set a child's signal handlers; processes that it forks get the defaults back."""
    for signum in _LEFT_TO_MAIN:
        signal.signal(signum, _leave)
    signal.signal(SOFT_SIGNAL, on_soft)
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_restore)

"""Reaps orphans if the main process is PID 1, as in a container without an init: nothing else would.

Its own children are left to the code that started them and needs their exit status.
"""

import asyncio
import os
import signal
from collections.abc import Callable

_AGAIN_S = 0.1


def reap_orphans(own: Callable[[], set[int]]) -> None:
    """Reap, from now on and on the running loop, every ended child that ``own`` does not name."""
    loop = asyncio.get_running_loop()

    def reap() -> None:
        while (pid := _next_dead()) and pid not in own():
            os.waitpid(pid, 0)
        if pid:  # our own dead child hides the next dead one until its starter has reaped it
            loop.call_later(_AGAIN_S, reap)

    def on_signal(*_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(reap)

    signal.signal(signal.SIGCHLD, on_signal)  # not by the loop: uvloop keeps this signal to itself


def _next_dead() -> int:
    """Return a child that has ended, without reaping it; 0 when there is none."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return found.si_pid if found is not None else 0

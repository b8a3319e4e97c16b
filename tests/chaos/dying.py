"""What the bench starts ends with it, even when the bench is killed."""

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def with_parent() -> None:
    """Let this process, between fork and exec, be killed when the thread that started it ends."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

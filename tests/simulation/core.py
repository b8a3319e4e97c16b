"""The core of the processor on which a run happens."""

import ctypes
import os


def stay() -> None:
    """Stay on the core of now, with all that is started from here: of those that wake each other only one ever runs."""
    os.sched_setaffinity(0, {ctypes.CDLL(None).sched_getcpu()})

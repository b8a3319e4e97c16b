"""Look at processes from outside."""

import os
from pathlib import Path

__all__ = ["is_running"]


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that has ended and waits for its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # no /proc here, or gone just now
        return not Path("/proc/self").exists()
    return state not in "ZX"

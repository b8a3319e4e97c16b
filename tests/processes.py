"""Look at processes from outside."""

import os
import subprocess
from pathlib import Path


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that has ended and waits for its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # no /proc here, or gone just now
        return not Path("/proc/self").exists()
    return state not in "ZX"


def children(of: int | None = None) -> set[int]:
    """Return the children of a process, of this one unless told otherwise."""
    of = os.getpid() if of is None else of
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return {int(pid) for pid, parent, name in rows if int(parent) == of and name != "ps"}

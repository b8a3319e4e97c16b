"""Resource usage from /proc: CPU of processes in nanoseconds, their memory, and the load of the whole machine."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes with all their threads; processes that are gone count as 0."""
    return sum(map(_cpu_s, pids))


def _cpu_s(pid: int) -> float:
    total_ns = 0
    with suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                total_ns += int((thread / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def children_of(pid: int) -> list[int]:
    """Return the child processes of a process."""
    found: list[int] = []
    with suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process."""
    return [found for child in children_of(pid) for found in (child, *descendants(child))]


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def pss_bytes(pid: int) -> int:
    """Return a process' memory, with shared pages divided among their users; 0 if it is gone."""
    with suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def busy_s() -> float:
    """Return the seconds since the machine's start in which its cores were busy or taken by the host, in total."""
    user, nice, system, _, _, irq, softirq, steal, *_ = (
        int(word) for word in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS


def memory_bytes() -> int:
    """Return the memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

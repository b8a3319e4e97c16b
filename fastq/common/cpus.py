"""How many processors this process may use: its affinity, and the CPU quotas of its control groups.

A container with two CPUs on a machine with 64 has a quota, but sees 64 processors. Both versions of cgroups are read.
The quotas of this process' group and of all groups above it, up to the mounted root, are read, because the smallest
counts.
"""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")


def available_cpus(root: Path = _ROOT) -> float:
    """Return how many processors this process may use, perhaps a fraction; ``root`` is the parent of proc and sys."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cpus = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count()
    return min(float(cpus or 1), cgroup_cpus(root))


def whole_cpus(root: Path = _ROOT) -> int:
    """Return ``available_cpus`` rounded up."""
    return max(1, math.ceil(available_cpus(root)))


def cgroup_cpus(root: Path = _ROOT) -> float:
    """Return the least CPU quota of this process' control groups, in processors; infinity if there is none."""
    with suppress(OSError, ValueError):
        return min((_quota(group) for group in _groups(root)), default=math.inf)
    return math.inf


def _groups(root: Path) -> Iterator[Path]:
    """Yield the directories of this process' groups, and of the groups above them, that may have a quota."""
    own: dict[str, str] = {}
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), group))
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        _, _, _, top, mount, *_ = fields.split()
        version, _, options = kind.split(maxsplit=2)
        is_v1 = version == "cgroup" and "cpu" in options.split(",")
        if not is_v1 and version != "cgroup2":
            continue
        group = own.get("cpu" if is_v1 else "", "")
        if not group:
            continue
        # In a container, the mount may begin at the container's group, while proc gives the group's path on the host.
        inside = os.path.relpath(group, top) if f"{group}/".startswith(f"{top.rstrip('/')}/") else "."
        directory = root / mount.lstrip("/")
        yield directory
        for name in inside.split("/"):
            directory = directory / name
            yield directory


def _quota(group: Path) -> float:
    """Return the quota of one group: ``cpu.max`` in version 2, two files in version 1."""
    with suppress(OSError):
        quota, period = (group / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with suppress(OSError):
        quota_us = int((group / "cpu.cfs_quota_us").read_text())
        return math.inf if quota_us <= 0 else quota_us / int((group / "cpu.cfs_period_us").read_text())
    return math.inf

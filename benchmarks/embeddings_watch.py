"""What an embedding service costs while it runs: CPU by process, and how busy and how full its GPUs are."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import redis

TICK: Final = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """CPU seconds: of the producer, of the worker's main process, of those below it, and of Redis."""

    producer: float
    main: float
    children: float
    redis: float


def cpu_s() -> dict[int, tuple[int, float]]:
    """Return each process, with its parent and the CPU seconds that it has used."""
    found: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(")")[2].split()
            found[int(stat.parent.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK
    return found


def cost(worker: int, url: str) -> Cost:
    """Return what the processes have used so far; children that have ended are not in it."""
    processes = cpu_s()
    below: set[int] = {worker}
    while more := {pid for pid, (parent, _) in processes.items() if parent in below} - below:
        below |= more
    with redis.Redis.from_url(url) as db:
        cpu = db.info("cpu")
    return Cost(
        processes[os.getpid()][1],
        processes[worker][1],
        sum(processes[pid][1] for pid in below - {worker}),
        float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]),
    )


class Watch(threading.Thread):
    """A thread that notes five times a second what ``nvidia-smi`` tells, if it is there."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.busy: list[float] = []
        self.used_mb: list[float] = []
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        """Read a line a GPU and look."""
        if program := shutil.which("nvidia-smi"):
            query = ["--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "200"]
            self._process = subprocess.Popen([program, *query], stdout=subprocess.PIPE, text=True)
            for line in self._process.stdout or ():
                with suppress(ValueError):  # what it cannot tell is "[N/A]"
                    busy, used_mb = map(float, line.split(","))
                    self.busy.append(busy)
                    self.used_mb.append(used_mb)

    def __enter__(self) -> "Watch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.terminate()
        self.join()

    def told(self) -> dict[str, float]:
        """Return the mean share of the time in which the GPUs were busy, and the most memory in use."""
        if not self.busy:
            return {}
        return {"gpu_busy": sum(self.busy) / len(self.busy) / 100, "gpu_mb": max(self.used_mb)}


def calls_in(log: Path) -> Iterator[tuple[int, float]]:
    """Yield the texts and the seconds of each call in a log of the service."""
    for line in log.read_text().splitlines() if log.exists() else ():
        if line.startswith("call "):
            _, count, seconds = line.split()
            yield int(count), float(seconds)


def loads_in(log: Path) -> list[tuple[int, int, int, int]]:
    """Return each start of a child: pid, predecessors still there, MB in use on its GPU before and after the load."""
    lines = log.read_text().splitlines() if log.exists() else ()
    return [tuple(map(int, line.split()[1:])) for line in lines if line.startswith("load ")]  # type: ignore[misc]

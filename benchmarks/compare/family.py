"""A contender's processes as one: started in sessions of their own, frozen and thawed, weighed, ended without rest."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare.contender import Command
from benchmarks.compare.surroundings import Surroundings

TICK = os.sysconf("SC_CLK_TCK")
STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class Process:
    """What ``/proc/<pid>/stat`` says, as far as it matters here."""

    pid: int
    parent: int
    session: int
    cpu_ticks: int  # its own, and that of the children it has waited for
    started: int

    @classmethod
    def read(cls, pid: int) -> "Process | None":
        """Return what is known of a process, or nothing if it is gone."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return cls(pid, int(fields[1]), int(fields[3]), sum(map(int, fields[11:15])), int(fields[19]))


def processes() -> Iterator[Process]:
    """Return all processes of this machine."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := Process.read(int(name))):
            yield found


class Family:
    """The processes that some commands started, their children's children too, even in sessions of their own."""

    def __init__(self, commands: Sequence[Command], around: Surroundings) -> None:
        self._roots: list[subprocess.Popen[bytes]] = []
        self._known: dict[int, Process] = {}
        self._frozen: list[Process] = []
        for command in commands:
            self._roots.append(
                subprocess.Popen(
                    [str(word) for word in command],
                    env=dict(around.variables),
                    cwd=around.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=around.log,
                    stderr=around.log,
                    start_new_session=True,
                )
            )

    def members(self) -> list[Process]:
        """Return who is alive, parents before children."""
        mine = {root.pid for root in self._roots}
        alive = list(processes())
        found: dict[int, Process] = {}
        more = True
        while more:
            new = [p for p in alive if p.pid not in found and (p.session in mine or p.pid in mine or p.parent in found)]
            found.update((process.pid, process) for process in new)
            more = bool(new)
        self._known.update(found)
        return list(found.values())

    def is_root(self, pid: int) -> bool:
        """Return whether a process was started here, and not by others of the family."""
        return pid in {root.pid for root in self._roots}

    def kill(self) -> None:
        """End everybody at once, by SIGKILL."""
        for process in self.members():
            self._send(process, signal.SIGKILL)
        for root in self._roots:
            root.wait()

    def has_ended(self) -> bool:
        """Return whether a process that was started here is gone."""
        return any(root.poll() is not None for root in self._roots)

    def freeze(self) -> None:
        """Stop everybody where they are, parents first, so that none of them wonders about its children."""
        self._frozen = self.members()
        for process in self._frozen:
            self._send(process, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let those who are frozen go on, children first."""
        for process in reversed(self._frozen):
            self._send(process, signal.SIGCONT)

    def cpu_s(self) -> float:
        """Return the CPU that all have used, user and system, those who have ended and were waited for included."""
        return sum(process.cpu_ticks for process in self.members()) / TICK

    def pss_mb(self) -> float:
        """Return the memory that all hold, shared pages split between those who share them."""
        total_kb = 0
        for process in self.members():
            with suppress(OSError):
                lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
                total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total_kb / 1024

    def stop(self) -> None:
        """End everybody, politely for some seconds, then for good."""
        self.thaw()
        for root in self._roots:
            root.terminate()
        deadline_s = time.monotonic() + STOP_S
        for root in self._roots:
            with suppress(subprocess.TimeoutExpired):
                root.wait(max(0.0, deadline_s - time.monotonic()))
        self.members()
        for process in self._known.values():
            self._send(process, signal.SIGKILL)
        for root in self._roots:
            root.wait()

    @staticmethod
    def _send(process: Process, number: signal.Signals) -> None:
        # The start tells a process from a later one of the same number.
        now = Process.read(process.pid)
        if now and now.started == process.started:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

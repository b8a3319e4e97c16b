"""The facts that identify a process of this host until the host reboots, and the check whether a process has ended.

A pid alone identifies no process, because pids are reused. The boot of the machine, the pid's namespace and the start
time of the process are needed, too, and the time namespace, because it shifts the start time. Only Linux provides these
facts.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_ENDED: Final = ("Z", "X")
"""The states of a process that runs no more: a zombie, and a dead one."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The facts that identify a process; ``boot`` is empty where the system does not provide it."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str


class ThisProcess:
    """The running process, which can check whether other processes have ended."""

    def __init__(self) -> None:
        self.facts = _facts()

    def is_gone(self, other: ProcessFacts) -> bool | None:
        """Return whether another process has ended, None if this process cannot know."""
        ours = self.facts
        if not ours.boot or (other.host, other.boot, other.namespace) != (ours.host, ours.boot, ours.namespace):
            return None
        try:
            os.kill(other.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # the process is another user's
        try:
            state, started = _state(other.pid)
        except (OSError, ValueError, IndexError):
            return None
        return state in _ENDED or started != other.started


def _facts() -> ProcessFacts:
    try:
        host, boot = socket.gethostname(), _BOOT.read_text("ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
        with suppress(FileNotFoundError):  # Linux before 5.6 has none
            namespace += os.readlink("/proc/self/ns/time")
        _, started = _state(os.getpid())
    except (OSError, ValueError, IndexError):
        return ProcessFacts("", "", "", os.getpid(), "")
    return ProcessFacts(host, boot, namespace, os.getpid(), started)


def _state(pid: int) -> tuple[str, str]:
    """Return the state of a process and the clock tick at which it started; the process' name may contain any text."""
    _, _, fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")
    words = fields.split()
    return words[0], words[19]

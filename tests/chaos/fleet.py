"""The servers: whole worker processes, each behind a proxy of its own, started again when they were ended.

A generation is one life of a server. Its number is in every record of its handlers, and a mark in the environment of
every process that comes of it, by which it is found whatever becomes of its parents.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import app
from tests.chaos.dying import with_parent
from tests.chaos.shortage import LogPipe
from tests.chaos.workload import QUEUES

_MARK = "MARK_OF_FASTQ_CHAOS"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Plant:
    """Where servers live and how they are set up."""

    directory: Path
    children: int
    timing: dict[str, Any]
    urls: Sequence[str]
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def ledger(self) -> Path:
        return self.directory / "ledger"


@dataclass
class Generation:
    """One life of a server; times are monotonic nanoseconds, ``ended_ns`` is 0 while it lives."""

    number: int
    server: int
    process: subprocess.Popen[bytes]
    log: Path
    pipe: LogPipe
    mark: str
    began_ns: int = field(default_factory=time.monotonic_ns)
    ended_ns: int = 0
    is_expected_to_end: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def signal(self, signum: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signum)

    def lives(self) -> bool:
        """Return whether it runs; record when it ended."""
        if self.process.poll() is None:
            return True
        self.ended_ns = self.ended_ns or time.monotonic_ns()
        return False


class Fleet:
    """Start servers, and know which of them live."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self.generations: list[Generation] = []
        self.current: dict[int, Generation] = {}

    def start(self, server: int) -> Generation:
        """Begin a server's next life."""
        number = len(self.generations)
        plant = self._plant
        mark = f"{plant.mark}-{number}"
        log = plant.directory / f"server-{server}-{number}.log"
        pipe = LogPipe(log)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.serve", json.dumps(self._order(server))],
                stdin=subprocess.DEVNULL,
                stdout=pipe.write_fd,
                stderr=pipe.write_fd,
                cwd=plant.directory,
                env=self._environment(number, mark),
                start_new_session=True,
                preexec_fn=with_parent,  # noqa: PLW1509 - it takes no lock that a thread may hold
            )
        finally:
            os.close(pipe.write_fd)
        generation = Generation(number, server, process, log, pipe, mark)
        self.generations.append(generation)
        self.current[server] = generation
        return generation

    def _order(self, server: int) -> dict[str, Any]:
        config = {
            "concurrency": self._plant.children,
            "queues": QUEUES,
            "retry_delay": "tests.chaos.app:retry_delay",
            "delayed_task_check_interval": 0.2,
            "timeout_grace": 0.5,
            "shutdown_timeout": 4.0,
            "async_concurrency": app.COROUTINES,
            "threads": app.THREADS,
            "max_tasks_per_child": 4000,
            "max_memory_per_child": 200 << 20,
            "max_lost": 1000,  # no task here is poison, however often its servers are struck
        }
        url = self._plant.urls[server]
        return {"app": "tests.chaos.app:mux", "redis": url, "timing": self._plant.timing, "config": config}

    def _environment(self, number: int, mark: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FASTQ_")}
        return {
            **inherited,
            "PYTHONPATH": str(_ROOT),
            app.LEDGER: str(self._plant.ledger),
            app.GENERATION: str(number),
            app.SLOTS_FILE: str(self._plant.directory / f"slots-{number}"),
            app.SLOTS: str(self._plant.children),
            _MARK: mark,
        }

    def kill_all(self) -> None:
        """End everything that is left, at once."""
        for generation in self.generations:
            if generation.lives():
                generation.process.kill()
                generation.process.wait()
        for pid in family_of(self._plant.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for generation in self.generations:
            generation.pipe.close()


def family_of(mark: str) -> set[int]:
    """Return the living processes of a generation by its mark, or of all by the plant's."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "environ").read_bytes().split(b"\0")
            of = next((word for word in words if word.startswith(f"{_MARK}={mark}".encode())), None)
            if of is not None and (of == f"{_MARK}={mark}".encode() or mark.count("-") == 0):
                found.add(int(entry.name))
    return found


def parent_of(pid: int) -> int:
    """Return the parent of a process, 0 if it is gone."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0

"""The commands of ``fastq`` on a million tasks: each is run as a process, and Redis' slow log has its slowest call."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from redis import Redis

from benchmarks.bigdata_keyspace import QUEUE, Size, prepare
from fastq.broker.scripts import SCRIPTS
from tests.redis_servers import RedisServer

LOGGED_US: Final = 100
"""What is quicker is not logged: the log has what scripts call, too, which is some calls a task."""
PROGRAM: Final = """
import atexit
from pathlib import Path
from fastq.cli.main import main
status = Path("/proc/self/status")
if status.exists():
    atexit.register(lambda: Path("status").write_text(status.read_text()))
main()
"""
"""The command, which leaves its peak of memory: what Linux tells of a child counts its parent's, too, before exec."""
ROOT: Final = Path(__file__).parents[1]
_PAGES: Final = {"pending": 1000, "completed": 1000, "scheduled": 1000, "retry": 1000, "archived": 300, "active": 1}
"""A page of 30 tasks far behind; the archive holds 10 000."""


@dataclass(frozen=True)
class Command:
    """A command and how it may end."""

    words: str
    changes: bool = False
    codes: tuple[int, ...] = (0,)


COMMANDS: Final = (
    Command("stats"),
    Command(f"queue inspect {QUEUE}"),
    Command(f"queue history {QUEUE} --days 90"),
    Command(f"group ls -q {QUEUE}"),
    *(Command(f"task ls -q {QUEUE} -s {state}") for state in _PAGES),
    Command(f"task ls -q {QUEUE} -s aggregating -g group-0"),
    *(Command(f"task ls -q {QUEUE} -s {state} --page {page}") for state, page in _PAGES.items() if page > 1),
    Command(f"task ls -q {QUEUE} -s pending --type t*"),
    Command(f"task ls -q {QUEUE} -s pending --type none"),
    Command(f"task ls -q {QUEUE} -s retry --error none"),
    Command(f"queue drain {QUEUE} --timeout 1", codes=(1,)),
    Command("doctor", codes=(0, 1)),
    Command(f"task export -q {QUEUE} -s retry --json -o retry.jsonl --yes"),
    Command(f"task retry -q {QUEUE} --all --error Timeout --yes", changes=True),
    Command(f"task delete-all -q {QUEUE} -s completed --yes", changes=True),
)
"""In this order on one keyspace: what changes it comes last, each on states of its own."""


@dataclass(frozen=True)
class CommandRun:
    """The slowest call in microseconds and its name, and the process' time and memory."""

    us: int
    name: str
    seconds: float
    memory_mb: float

    def __str__(self) -> str:
        took = f"{self.seconds:>8.1f} s{self.memory_mb:>7.0f} MB"
        return f"{self.us / 1000:>9.2f} ms  {self.name:<24}{took}"


@dataclass(frozen=True)
class Limits:
    """How long a call may hold Redis, and how often a command is tried until none of its calls does so longer."""

    repeats: int
    us: int


def measure_commands(server: RedisServer, size: Size, wanted: str, limits: Limits) -> Iterator[tuple[str, CommandRun]]:
    """Run each command once; one with a call above the limit again, and the best of its runs counts."""
    names = {script.sha: name for name, script in SCRIPTS.items()}
    with server.client() as db, tempfile.TemporaryDirectory() as folder:
        db.config_set("slowlog-log-slower-than", LOGGED_US)
        db.config_set("slowlog-max-len", 100_000)
        is_fresh = False
        for command in COMMANDS:
            if wanted not in f"fastq {command.words}":
                continue
            runs: list[CommandRun] = []
            while len(runs) < limits.repeats and not any(run.us <= limits.us for run in runs):
                if not is_fresh or (runs and command.changes):
                    prepare(db, "mixed", size)
                    is_fresh = True
                runs.append(_run(db, server.url, command, folder, names))
            yield f"fastq {command.words}", min(runs, key=lambda run: run.us)


def _run(db: Redis, url: str, command: Command, folder: str, names: dict[str, str]) -> CommandRun:
    db.slowlog_reset()
    began = time.perf_counter()
    with open(Path(folder) / "output", "w+b") as output:
        code, peak = run_program(["--redis", url, *command.words.split()], Path(folder), output)
        seconds = time.perf_counter() - began
        output.seek(0)
        assert code in command.codes, (command.words, code, output.read(2000))
    entries: list[dict[str, Any]] = db.slowlog_get(-1)
    calls = [(entry["duration"], _name(entry["command"], names)) for entry in entries]
    calls = [call for call in calls if call[1] != "SLOWLOG"]  # which are ours, or the doctor's
    us, name = max(calls, default=(LOGGED_US, "any"))
    return CommandRun(us, name, seconds, _peak_mb(Path(folder) / "status", peak))


def run_program(words: Sequence[str], folder: Path, output: IO[bytes]) -> tuple[int, int]:
    """Run the program there; return its exit code, and the peak of its memory as wait4 says."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    command = [sys.executable, "-c", PROGRAM, *words]
    process = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_maxrss


def _peak_mb(status: Path, otherwise: int) -> float:
    """Read the peak of a process's memory; where it left no status, as on macOS, that is what wait4 says, in bytes."""
    if not status.exists():
        return otherwise / 2**20
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    assert found is not None
    return int(found[1]) / 1024


def _name(logged: bytes, names: dict[str, str]) -> str:
    """Name a call: the script where it is one."""
    words = logged.decode(errors="replace").split(" ", 2)
    if words[0].upper() == "EVALSHA":
        return names.get(words[1], words[1])
    if words[0].upper() == "EVAL":
        found = re.search(r"--\[\[\s*(\w+):", logged.decode(errors="replace"))
        return found[1] if found else "EVAL"
    return words[0].upper()

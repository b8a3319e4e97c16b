"""What a run leaves behind: figures, versions, machine and commit, as JSON."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.compare.contender import Contender
from benchmarks.compare.turn import Figures

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender: who it was, and what its rounds gave."""

    name: str
    title: str
    version: str
    guarantee: str
    detail: str
    settings: str
    settings_waiting: str
    rounds: Sequence[Figures]
    failures: Sequence[str]

    @classmethod
    def of(cls, contender: Contender, version: str, rounds: Sequence[Figures], failures: Sequence[str]) -> "Entry":
        """Put together what is known of a contender."""
        told = (contender.title, version, contender.guarantee.value, contender.detail, contender.settings)
        waiting = contender.settings_waiting
        return cls(contender.name, *told, waiting, rounds, failures)


@dataclass(frozen=True, slots=True)
class Record:
    """A whole run."""

    taken: str
    seconds: float
    condition: str
    machine: dict[str, str]
    entries: Sequence[Entry]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Record":
        """Read what ``save`` wrote."""
        raw: dict[str, Any] = json.loads(path.read_text())
        entries = [
            Entry(**{**entry, "rounds": [Figures.of_json(one) for one in entry["rounds"]]}) for entry in raw["entries"]
        ]
        return cls(raw["taken"], raw["seconds"], raw["condition"], raw["machine"], entries)


def machine(redis_program: str) -> dict[str, str]:
    """Describe where and with what a run is taken."""
    changed = "" if not _output("git", "status", "--porcelain", "--untracked-files=no") else " and changes"
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "redis": next((word[2:] for word in _output(redis_program, "--version").split() if word.startswith("v=")), "?"),
        "go": _output("go", "env", "GOVERSION").removeprefix("go") or "none",
        "commit": (_output("git", "rev-parse", "--short=12", "HEAD") or "?") + changed,
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""

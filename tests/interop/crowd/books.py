"""The crowd's books, kept outside Redis: every run of a handler, by whichever server."""

import base64
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.peer import GoPeer

TaskKey = tuple[str, str]
"""A queue and an id."""


@dataclass(frozen=True)
class Run:
    """One run of a handler; ``outcome`` is "" while it lasts."""

    server: str
    key: TaskKey
    type: str
    payload: bytes
    headers: Mapping[str, str]
    retried: int
    start_ns: int
    outcome: str


def fastq_runs(directory: Path) -> list[Run]:
    """Read what the handlers of fastq's servers have written so far."""
    return [run for file in directory.glob("ledger-*.jsonl") for run in _runs_of(file)]


def fastq_begun(directory: Path, type: str) -> set[TaskKey]:
    """Return the tasks of a type that the handlers of fastq's servers have begun; no other lines are parsed."""
    mark, found = f'"type": {json.dumps(type)}', set()
    for file in directory.glob("ledger-*.jsonl"):
        for line in file.read_text().splitlines(keepends=True):
            if mark in line and line.endswith("\n"):
                entry = json.loads(line)
                found.add((entry["queue"], entry["id"]))
    return found


def _runs_of(file: Path) -> Iterator[Run]:
    begun: dict[int, dict[str, Any]] = {}
    for line in file.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):  # being written
            continue
        entry = json.loads(line)
        begun.setdefault(entry["run"], {"outcome": ""}).update(entry)
    for entry in begun.values():
        payload = base64.b64decode(entry["payload"])
        key = (entry["queue"], entry["id"])
        facts = {name: entry[name] for name in ("server", "type", "headers", "retried", "start_ns", "outcome")}
        yield Run(key=key, payload=payload, **facts)


def go_runs(go: GoPeer, type: str = "") -> list[Run]:
    """Return what the handlers of Go's servers have done so far, or those of one type of task."""
    return [
        Run(
            server=f"go {run.server}",
            key=(run.queue, run.id),
            type=run.type,
            payload=run.payload or b"",
            headers=run.headers or {},
            retried=run.retried,
            start_ns=run.start_ns,
            outcome=run.outcome,
        )
        for run in go.executions(type=type)
    ]


def runs_by_task(runs: list[Run]) -> dict[TaskKey, list[Run]]:
    """Return each task's runs in their order."""
    found = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start_ns):
        found[run.key].append(run)
    return dict(found)


def part_numbers(payload: bytes) -> list[int]:
    """Return the numbers of the jobs of which an aggregator, Go's or ours, made one task."""
    return [
        _number(base64.b64decode(part["payload"] or ""), part["headers"] or {}) for part in json.loads(payload)["tasks"]
    ]


def _number(payload: bytes, headers: Mapping[str, str]) -> int:
    return int(headers["n"]) if "n" in headers else int(json.loads(payload)["n"])

"""What the tasks of a run do, step by step, and what is noted of them."""

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastq.errors import TaskCanceled, TaskEndedError, TaskTimeout
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.runner import Answer, TaskContext
from tests.pool.without_batches import WithoutBatches
from tests.simulation.child import baton

SORTS = ("plain", "coroutine", "thread")


@dataclass(frozen=True)
class Plan:
    """A task: how it runs, what it does, how much it carries, and for how long it may run (0: as it likes)."""

    number: int
    sort: str
    steps: tuple[tuple[str, float], ...]
    size: int = 0
    timeout_s: float = 0.0
    is_awaited: bool = False
    is_deaf: bool = False  # it goes on when it is told to end

    def data(self) -> bytes:
        """Return the bytes that the pool runs."""
        return json.dumps([self.number, self.steps, self.is_deaf, "x" * self.size]).encode()


@dataclass
class Noted:
    """What was seen of a task by itself."""

    begun: int = 0
    left: int = 0
    told: list[str] = field(default_factory=list)
    wrote: int = 0
    writing: int = 0


class Ledger:
    """What tasks have seen of themselves, by number; it outlives the processes."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.of: dict[int, Noted] = {}
        self.tell = note

    def __getitem__(self, number: int) -> Noted:
        return self.of.setdefault(number, Noted())


def draw_plan(chance: random.Random, number: int, sorts: tuple[str, ...], ring_bytes: int) -> Plan:
    """Draw a task."""
    kinds = ["points", "points", "sleep", "write", "progress", "save", "lock", "with", "log"]
    steps: list[tuple[str, float]] = []
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        kind = chance.choice(kinds)
        sizes = (1, 10, ring_bytes // 8, ring_bytes // 4, ring_bytes * 2)
        value = {"sleep": chance.choice((0, 0.0001, 0.003, 0.05)), "write": chance.choice(sizes)}
        steps.append((kind, value.get(kind, chance.randrange(1, 6))))
    if chance.random() < 0.2:
        steps.append(chance.choice([("raise", 0), ("answer", 10), ("answer", ring_bytes * 2), ("skip", 0)]))
    return Plan(
        number,
        chance.choice(sorts),
        tuple(steps),
        chance.choice((0, 0, 0, 10, ring_bytes // 8, ring_bytes // 5, ring_bytes)),
        chance.choice((0, 0, 0, 0.0001, 0.002, 0.02)),
        chance.random() < 0.2,
        chance.random() < 0.1,
    )


class ScriptRunner(WithoutBatches):
    """Runs plans, in any of the simulated children."""

    has_plain = True
    has_async = True
    description = "runs plans"
    child_start = ()
    child_stop = ()

    def __init__(self, ledger: Ledger, locks: dict[int, Any], loggers: dict[int, logging.Logger]) -> None:
        self._ledger = ledger
        self._locks = locks
        self._loggers = loggers

    def run(self, data: bytes, context: TaskContext) -> Answer:
        """Run a plan that is no coroutine."""
        number, steps, is_deaf, _ = json.loads(data)
        noted = self._begin(number)
        try:
            while True:
                try:
                    answer: Answer = None
                    while steps:
                        kind, value = steps.pop(0)
                        answer = self._step(number, kind, value, context)
                    return answer
                except (TaskTimeout, TaskCanceled) as error:
                    noted.told.append(type(error).__name__)
                    self._ledger.tell(f"task {number} is told: {type(error).__name__}")
                    if not is_deaf:
                        raise
        finally:
            noted.left += 1
            self._ledger.tell(f"task {number} leaves")

    async def run_async(self, data: bytes, context: TaskContext) -> Answer:
        """Run a plan that is a coroutine."""
        number, steps, is_deaf, _ = json.loads(data)
        noted = self._begin(number)
        try:
            while True:
                try:
                    answer: Answer = None
                    while steps:
                        kind, value = steps.pop(0)
                        if kind in ("sleep", "points"):
                            await asyncio.sleep(value if kind == "sleep" else 0)
                        else:
                            answer = self._step(number, kind, value, context)
                    return answer
                except asyncio.CancelledError:
                    noted.told.append("CancelledError")
                    self._ledger.tell(f"task {number} is told: CancelledError")
                    if not is_deaf:
                        raise
        finally:
            noted.left += 1
            self._ledger.tell(f"task {number} leaves")

    def _begin(self, number: int) -> Noted:
        noted = self._ledger[number]
        noted.begun += 1
        self._ledger.tell(f"task {number} begins in process {baton.own_process()}")
        return noted

    def _step(self, number: int, kind: str, value: float, context: TaskContext) -> Answer:
        match kind:
            case "points":
                for _ in range(int(value)):
                    baton.point()
            case "sleep":
                time.sleep(value)
            case "lock" | "with" | "log":
                for _ in range(int(value)):
                    self._hold(number, kind)
            case "raise":
                raise ZeroDivisionError(number)
            case "skip":
                return EventKind.SKIP_RETRY, f"{number} ".encode()
            case "answer":
                return EventKind.RESULT, f"{number} ".encode().ljust(int(value), b"r")
            case _:
                self._send(number, kind, value, context)
        return None

    def _hold(self, number: int, kind: str) -> None:
        """Take a lock of the app, in one of the ways in which code does."""
        lock = self._locks[baton.own_process()]
        if kind == "log":
            self._loggers[baton.own_process()].info("a line of task %d", number)
        elif kind == "with":
            with lock:
                baton.point()
        else:
            lock.acquire()
            try:
                baton.point()
            finally:
                lock.release()

    def _send(self, number: int, kind: str, value: float, context: TaskContext) -> None:
        """Send what a task sends before its end."""
        noted = self._ledger[number]
        if kind == "write":
            noted.writing += 1
            context.write_result(f"{number} {noted.writing} ".encode().ljust(int(value), b"w"))
            noted.wrote += 1
        elif kind == "progress":
            context.write_progress(f"{number} ".encode(), value > 3)
        else:
            saved = context.save(f"{number} ".encode())
            with contextlib.suppress(TaskEndedError):
                while not context.is_saved(saved) and context.interruption is None:
                    time.sleep(0.001)

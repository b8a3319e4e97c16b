"""Waits in a pool on simulated clocks: ``python -m tests.planning.pool_waits SLOTS BUSY MS,... COUNT``.

The dispatcher and the rings are the real ones. So many tasks of these durations come at random times. Redis, the
children and the loop of the main process are a few lines here: each step of theirs takes 0.3 ms. Prints the mean and
the 99th percentile of the waits in ms, of the pool and of one queue for all slots.
"""

import heapq
import math
import os
import random
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fastq.pool.main.child_queue import Event
from tests.pool.desk import Desk
from tests.simulation.__main__ import build_shim
from tests.simulation.page import Page

STEP_NS: Final = 300_000
TICK_NS: Final = 20_000_000
BEGIN_NS: Final = 10**11


def draw(slots: int, busy: float, durations_ms: Sequence[float], count: int) -> list[tuple[int, int]]:
    """Return when each task comes and how long it takes, in ns."""
    chance = random.Random(1)
    rate = busy * slots * len(durations_ms) / sum(durations_ms) / 1e6
    at, tasks = float(BEGIN_NS), []
    for _ in range(count):
        at += chance.expovariate(rate)
        tasks.append((round(at), round(1e6 * chance.choice(durations_ms))))
    return tasks


class Model:
    """A pool on the clock of a page."""

    def __init__(self, page: Page, slots: int, tasks: Sequence[tuple[int, int]]) -> None:
        self._page, self._tasks, self._steps = page, tasks, 0
        self._page.set(0, BEGIN_NS)
        self._page.switch(True)
        self._desk = Desk(slots)
        self._running: list[int | None] = [None] * slots
        self._pending: deque[int] = deque()
        self._due: list[tuple[int, int, str, int]] = []
        self.waited_ns: dict[int, int] = {}

    def run(self) -> list[int]:
        """Run all tasks; return the waits in order of their length."""
        for number, (at_ns, _) in enumerate(self._tasks):
            self._later(at_ns, "come", number)
        self._later(BEGIN_NS + TICK_NS, "tick", 0)
        while len(self.waited_ns) < len(self._tasks):
            self._now_ns, _, what, number = heapq.heappop(self._due)
            self._page.set(0, self._now_ns)
            getattr(self, f"_{what}")(number)
        self._page.switch(False)
        return sorted(self.waited_ns.values())

    def _later(self, at_ns: int, what: str, number: int) -> None:
        self._steps += 1
        heapq.heappush(self._due, (at_ns, self._steps, what, number))

    def _come(self, number: int) -> None:
        self._pending.append(number)
        self._later(self._now_ns + STEP_NS, "fetch", 0)

    def _fetch(self, _: int) -> None:
        count = min(self._desk.dispatcher.free(only_async=False), len(self._pending))
        if count:
            self._go_on(self._desk.submit(*(self._pending.popleft() for _ in range(count))))

    def _tick(self, _: int) -> None:
        self._bell(0)
        self._go_on(self._desk.dispatcher.relieve())
        self._later(self._now_ns + TICK_NS, "tick", 0)

    def _bell(self, _: int) -> None:
        self._desk.dispatcher.collect([])
        self._go_on(self._desk.dispatcher.dispatch())
        self._later(self._now_ns + STEP_NS, "fetch", 0)

    def _end(self, slot: int) -> None:
        seq, self._running[slot] = self._running[slot], None
        assert seq is not None
        child = self._desk.children[slot]
        task = child.queue.find(seq)
        assert task is not None
        child.end(seq, self._tasks[int(str(task.key))][1])
        self._begin(slot)
        if self._running[slot] is None:
            self._later(self._now_ns + STEP_NS, "bell", 0)

    def _go_on(self, returned: Sequence[Event]) -> None:
        self._pending.extendleft(sorted((int(str(event.submission.key)) for event in returned), reverse=True))
        for slot in range(len(self._running)):
            self._begin(slot)

    def _begin(self, slot: int) -> None:
        child = self._desk.children[slot]
        if self._running[slot] is not None or (taken := child.tasks.take()) is None:
            return
        task = child.queue.find(taken[0])
        assert task is not None
        number = int(str(task.key))
        came_ns, takes_ns = self._tasks[number]
        assert number not in self.waited_ns, "it runs once"
        self.waited_ns[number], self._running[slot] = self._now_ns - came_ns, taken[0]
        child.slots.start(0, taken[0], self._now_ns, 0)
        self._later(self._now_ns + takes_ns, "end", slot)


def one_queue(slots: int, tasks: Sequence[tuple[int, int]]) -> list[int]:
    """Return the waits where each task takes the slot that is free first."""
    free_ns, waits = [0] * slots, []
    for came_ns, takes_ns in tasks:
        begins_ns = max(came_ns, heapq.heappop(free_ns))
        heapq.heappush(free_ns, begins_ns + takes_ns)
        waits.append(begins_ns - came_ns)
    return sorted(waits)


def start_again() -> int:
    """Run this program on simulated clocks; return its code."""
    with tempfile.TemporaryDirectory() as directory:
        page = Page(Path(directory, "page"))
        clocks = {"LD_PRELOAD": str(build_shim()), "FASTQ_SIMULATION": str(page.path)}
        words = [sys.executable, "-m", "tests.planning.pool_waits", *sys.argv[1:]]
        return os.spawnve(os.P_WAIT, sys.executable, words, {**os.environ, **clocks})


def main() -> int:
    if "FASTQ_SIMULATION" not in os.environ:
        return start_again()
    slots, busy, durations, count = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3].split(","), int(sys.argv[4])
    tasks = draw(slots, busy, [float(one) for one in durations], count)
    page = Page(Path(os.environ["FASTQ_SIMULATION"]))
    for waits in (Model(page, slots, tasks).run(), one_queue(slots, tasks)):
        sys.stdout.write(f"{sum(waits) / count / 1e6:.3f} {waits[math.ceil(0.99 * count) - 1] / 1e6:.3f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

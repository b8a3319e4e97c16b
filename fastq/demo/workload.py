"""The workload: tasks of all lots, in three queues, generated one by one from a seed.

Each queue gets a third of the first wave. So the queues' shares of the runs depend on the queues' weights only.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from fastq.common.clock import Clock, SystemClock
from fastq.demo.corpus import Corpus
from fastq.demo.fates import DELAYED, DUPLICATE, KEPT, LATE, SCATTERED, SINGLES, STEADY, UNIQUE, Lot
from fastq.demo.work import WORK
from fastq.options import EnqueueOptions
from fastq.task import Task

LEAST_TASKS: Final = 1_000
"""With fewer tasks, some lots would be empty."""

WEIGHTS: Final = {"critical": 6, "default": 3, "low": 1}

_TYPES: Final = tuple(WORK)
_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Ordered:
    """A task as it was ordered: its lot, queue and type, its text if the result is checked, its lock if it is unique.

    ``due_ns`` is the Unix time before which a delayed task must not start, 0 if it is not delayed.
    """

    lot: Lot
    queue: str
    type: str
    due_ns: int = 0
    text: bytes = b""
    unique_key: str = ""


class Offer(NamedTuple):
    """A task for ``Client.enqueue``, and its ``Ordered``."""

    task: Task
    ordered: Ordered


class Workload:
    """The tasks of a demo. ``queues`` has the names of three queues, and ``tasks`` is the total number of tasks."""

    def __init__(self, tasks: int, seed: int, queues: Sequence[str], clock: Clock | None = None) -> None:
        if tasks < LEAST_TASKS:
            raise ValueError(f"tasks must be at least {LEAST_TASKS}: {tasks}")
        self.queues = tuple(queues)
        self.late = LATE.count(tasks)
        self.first = tasks - self.late
        self.tasks = tasks
        self._rng = random.Random(seed)
        self._corpus = Corpus(seed)
        self._clock = clock or SystemClock()
        # A small demo must not wait as long for its delayed tasks as a big one.
        self._spread_s = max(2, min(10, tasks // 10_000))

    def first_wave(self) -> Iterator[Offer]:
        """Yield all tasks except the late ones, and then duplicates that must be refused."""
        unique: list[Offer] = []
        places = self._places()
        for at in range(self.first):
            lot, queue = places.get(at, STEADY), self.queues[at % len(self.queues)]
            offer = self._offer(lot, queue, self._spread_s, unique_key=f"text-{at}" if lot is UNIQUE else "")
            if lot is UNIQUE:
                unique.append(offer)
            yield offer
        for task, ordered in unique:
            yield Offer(task, Ordered(DUPLICATE, ordered.queue, ordered.type))

    def second_wave(self) -> Iterator[Offer]:
        """Yield the late tasks, due within seconds."""
        for at in range(self.late):
            yield self._offer(LATE, self.queues[at % len(self.queues)], 2)

    def _places(self) -> dict[int, Lot]:
        """Scatter the lots over the first wave, and keep hanging tasks apart."""
        queues = len(self.queues)
        singles = {int(self.first * part) // queues * queues + queue: lot for lot, queue, part in SINGLES}
        scattered = [lot for lot in SCATTERED for _ in range(lot.count(self.tasks))]
        free = [at for at in range(self.first) if at not in singles]
        return singles | dict(zip(self._rng.sample(free, len(scattered)), scattered, strict=True))

    def _offer(self, lot: Lot, queue: str, spread_s: int, unique_key: str = "") -> Offer:
        rng = self._rng
        task_type = lot.type or rng.choice(_TYPES)
        text = self._corpus.cut(rng)
        options: EnqueueOptions = {**lot.options, "queue": queue}
        due_ns = 0
        if unique_key:
            options["unique_key"] = unique_key
        if lot in (DELAYED, LATE):
            # In whole seconds, because asynq's due times have no fractions.
            due_s = self._clock.unix_ns() // _SECOND_NS + rng.randint(2, 1 + spread_s)
            due_ns = due_s * _SECOND_NS
            options["process_at"] = datetime.fromtimestamp(due_s, UTC)
        ordered = Ordered(lot, queue, task_type, due_ns, text if lot is KEPT else b"", unique_key)
        return Offer(Task(task_type, text, **options), ordered)

"""A small set of books, and findings that agree with it to the last run: what the audit's tests then spoil."""

from dataclasses import dataclass, field

import orjson

from fastq.broker.inspect.tasks import FoundTask
from fastq.demo.books import Books
from fastq.demo.fates import KEPT, LATE, SCATTERED, SINGLES, STEADY, Fate, Lot
from fastq.demo.findings import Findings, QueueCounts, TaskKey
from fastq.demo.ledger import Ending, Run
from fastq.demo.work import features
from fastq.demo.workload import Ordered
from fastq.wire.codec import TaskMessage, encode_task_message

SECOND_NS = 1_000_000_000
TEXT = b"a b b"
LOTS: dict[str, Lot] = {lot.name: lot for lot in (STEADY, LATE, *SCATTERED, *(lot for lot, _, _ in SINGLES))}
ERRORS = {
    Fate.EXHAUSTED: "ValueError: no",
    Fate.SKIPPED: "SkipRetry: no",
    Fate.TIMED_OUT: "TaskTimeout: the task's time is up",
    Fate.CANCELED: "TaskCanceled",
    Fate.CRASHED: "WorkerCrashedError: exit code 70",
}
COUNTERS = {
    "a": QueueCounts(0, 0, 0, 0, 0, 0, processed=100, failed=7),
    "b": QueueCounts(0, 0, 0, 0, 0, 0, processed=0, failed=0),
}


def stored(state: str, error: str = "", result: bytes | None = None) -> FoundTask:
    return FoundTask(encode_task_message(TaskMessage("t", id="i", error_msg=error)), state, result, None)


@dataclass
class Sample:
    """A task of each lot in each of two queues, with the id ``<lot>-<queue>``."""

    books: Books = field(default_factory=Books)
    before: dict[str, QueueCounts] = field(default_factory=lambda: dict(COUNTERS))
    counts: dict[str, QueueCounts] = field(default_factory=lambda: dict(COUNTERS))
    states: dict[TaskKey, list[str]] = field(default_factory=dict)
    stored: dict[TaskKey, FoundTask] = field(default_factory=dict)
    orphans: list[TaskKey] = field(default_factory=list)
    locks: list[str] = field(default_factory=list)
    runs: dict[str, list[Run]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for queue in self.before:
            for lot in LOTS.values():
                self._add(f"{lot.name}-{queue}", lot, queue)

    def _add(self, task_id: str, lot: Lot, queue: str) -> None:
        is_late = lot is LATE
        due_ns = 500 * SECOND_NS if is_late else 0
        text = TEXT if lot is KEPT else b""
        self.books.by_id[task_id] = Ordered(lot, queue, lot.type or "text:features", due_ns, text)
        begun = [(1000 + 10 * retried) * SECOND_NS for retried in range(lot.runs)]
        self.runs[task_id] = [Run(retried, at, at + SECOND_NS, Ending.RAISED) for retried, at in enumerate(begun)]
        if lot.fate in (Fate.DONE, Fate.KEPT, Fate.RETRIED, Fate.REVOKED):
            ending = Ending.REVOKED if lot.fate is Fate.REVOKED else Ending.RETURNED
            self.runs[task_id][-1] = self.runs[task_id][-1]._replace(ending=ending)
        elif lot.fate is Fate.CRASHED:
            self.runs[task_id][-1] = Run(0, 1000 * SECOND_NS, 0, None)
        if lot.fate is Fate.KEPT:
            self.put(task_id, queue, stored("completed", result=orjson.dumps(features(TEXT))))
        elif lot.fate in ERRORS:
            self.put(task_id, queue, stored("archived", ERRORS[lot.fate]))
        count = self.counts[queue]
        self.counts[queue] = count._replace(processed=count.processed + lot.runs, failed=count.failed + lot.failures)
        if states := self.states.get((queue, task_id)):
            self.add_to(queue, states[0], 1)

    def put(self, task_id: str, queue: str, task: FoundTask) -> None:
        """Let Redis hold a task in the state that its hash names."""
        self.states[queue, task_id] = [str(task.state)]
        self.stored[queue, task_id] = task

    def add_to(self, queue: str, counter: str, number: int) -> None:
        """Let a counter be more."""
        count = self.counts[queue]
        self.counts[queue] = count._replace(**{counter: getattr(count, counter) + number})

    def findings(self) -> Findings:
        return Findings(self.counts, self.states, self.stored, self.orphans, self.locks, self.runs)

"""The audit: compares the enqueued tasks, the data in Redis, and the ledger of the handlers.

Every task must have exactly its expected fate and number of runs, and every counter must agree.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from fastq.broker.inspect.tasks import FoundTask
from fastq.demo.books import Books
from fastq.demo.fates import Fate
from fastq.demo.findings import Findings, QueueCounts
from fastq.demo.ledger import Ending, Run
from fastq.demo.work import WORK
from fastq.demo.workload import Ordered
from fastq.wire.codec import InvalidMessageError, decode_task_message


@dataclass(frozen=True, slots=True)
class Audit:
    """The number of tasks per fate, and a sentence for each discrepancy."""

    found: Mapping[Fate, int]
    faults: Sequence[str]


def audit(books: Books, before: Mapping[str, QueueCounts], findings: Findings) -> Audit:
    """Compare the books with the findings; ``before`` was counted before the first task was enqueued."""
    found: Counter[Fate] = Counter()
    faults = list(books.faults)
    for task_id, order in books.by_id.items():
        key = (order.queue, task_id)
        runs = findings.runs.get(task_id, ())
        states = findings.states.get(key, ())
        fate = fate_of(states, findings.stored.get(key), runs)
        found[fate] += 1
        faults += (f"task {task_id} ({order.type}, queue {order.queue}) {what}" for what in _task(order, fate, runs))
        if fate is Fate.KEPT and (what := _result(order, findings.stored[key])):
            faults.append(f"task {task_id} ({order.type}, queue {order.queue}) {what}")
    found[Fate.REFUSED] = books.refused
    faults += _strangers(books, findings)
    faults += (fault for queue in before for fault in _counters(books, queue, before[queue], findings.counts[queue]))
    faults += (
        f"task {task_id} (queue {queue}) is in no state, but its data is still there"
        for queue, task_id in findings.orphans
    )
    faults += (f"the lock {lock} is still held" for lock in findings.locks)
    return Audit(found, faults)


_ARCHIVED: Final = {
    "SkipRetry": Fate.SKIPPED,
    "TaskTimeout": Fate.TIMED_OUT,
    "TaskCanceled": Fate.CANCELED,
    "WorkerCrashedError": Fate.CRASHED,
}


def fate_of(states: Sequence[str], stored: FoundTask | None, runs: Sequence[Run]) -> Fate:
    """Return the fate of a task.

    It follows from the task's place in Redis and its stored error, or else from the end of its last run.
    """
    last = runs[-1].ending if runs else None
    if not states:
        if last is Ending.REVOKED:
            return Fate.REVOKED
        if last is not Ending.RETURNED:
            return Fate.LOST
        return Fate.DONE if len(runs) == 1 else Fate.RETRIED
    [state, *others] = states
    if others or stored is None or stored.message is None or stored.state != state:
        return Fate.LEFT
    if state == "archived":
        return _ARCHIVED.get(_error(stored.message).partition(":")[0], Fate.EXHAUSTED)
    return Fate.KEPT if state == "completed" else Fate.LEFT


def _error(message: bytes) -> str:
    try:
        return decode_task_message(message).error_msg
    except InvalidMessageError as error:
        return f"{type(error).__name__}: {error}"


def _task(order: Ordered, fate: Fate, runs: Sequence[Run]) -> Iterator[str]:
    """Describe what is wrong with a task's fate and its runs."""
    lot = order.lot
    if fate is not lot.fate:
        yield f"should be {lot.fate.value!r}, but is {fate.value!r} after {len(runs)} runs"
    elif [run.retried for run in runs] != list(range(lot.runs)):
        yield f"should run {lot.runs} times, but ran {len(runs)} times: attempts {[run.retried for run in runs]}"
    if runs and runs[0].begun_ns < order.due_ns:
        yield f"began {(order.due_ns - runs[0].begun_ns) / 1e9:.3f} s before its time"


def _result(order: Ordered, stored: FoundTask) -> str | None:
    """Do the work again; describe the stored result if it differs."""
    right = orjson.dumps(WORK[order.type](order.text))
    return None if stored.result == right else f"has the result {stored.result!r} instead of {right!r}"


def _strangers(books: Books, findings: Findings) -> Iterator[str]:
    for queue, task_id in findings.states:
        order = books.by_id.get(task_id)
        if order is None or order.queue != queue:
            yield f"task {task_id} is in queue {queue}, but was not enqueued there"
    for task_id in findings.runs.keys() - books.by_id.keys():
        yield f"task {task_id} ran, but was not enqueued"


def _counters(books: Books, queue: str, before: QueueCounts, after: QueueCounts) -> Iterator[str]:
    lots = [order.lot for order in books.by_id.values() if order.queue == queue]
    expected = QueueCounts(
        *(0, 0, 0, 0),
        completed=sum(lot.fate is Fate.KEPT for lot in lots),
        archived=sum(lot.fate in _ARCHIVED_FATES for lot in lots),
        processed=before.processed + sum(lot.runs for lot in lots),
        failed=before.failed + sum(lot.failures for lot in lots),
    )
    for name, right, found in zip(QueueCounts._fields, expected, after, strict=True):
        if right != found:
            yield f"queue {queue}: {name} is {found}, but should be {right}"


_ARCHIVED_FATES: Final = {*_ARCHIVED.values(), Fate.EXHAUSTED}

"""The checker: holds ledger, journal, producer and keyspace against the guarantees, and says which are broken."""

import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from tests.chaos.alibi import LEASE_LOST, Alibis
from tests.chaos.evidence import Evidence, Stored
from tests.chaos.ledger import Record, Run, What, runs_of
from tests.chaos.plan import Kind
from tests.chaos.producer import Enqueued, Entry
from tests.simulation.judge import Answered, Began, Ended, History, Sent, early, kept, nothing_left

OF_ALL_HISTORIES: Final = (kept, nothing_left, early)
"""Rules of the simulation's judge that need to know of no fault."""
GUARANTEES: Final = {
    "kept": "no task is lost, or left in a state on the way",
    "nothing_left": "no data and no lock is left of what has ended",
    "early": "no task begins before its time",
    "twice": "every second run is explained by a fault between start and ack",
    "charged": "no attempt is charged without a run, none for a server that died or lost its leases",
    "blocked": "no task is charged for another that blocks its event loop",
    "batch": "no task is charged for the death of a call that it shared with others",
    "last": "a last attempt is not used up without a run",
    "archived": "nothing is archived but last attempts that a fault cut short",
    "result": "a kept task has its result",
    "slots": "never more living handlers than slots",
    "alive": "no process outlives its server, none ends by itself",
    "deaf": "a server hears SIGTERM while nobody reads its log",
    "strange": "nothing runs, or is in Redis, that nobody enqueued",
}


_NS: Final = 1_000_000_000
_ENDS: Final = {What.RETURNED: "DONE", What.RAISED: "FAILED"}
_BLOCKED: Final = "another task blocked its event loop"


class Violation(NamedTuple):
    """A broken guarantee, by its key in ``GUARANTEES``."""

    guarantee: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """The violations, the explanations of repeated runs with how often each was needed, and some figures."""

    violations: Sequence[Violation]
    explained: Mapping[str, int]
    figures: Mapping[str, int]


def check(evidence: Evidence) -> Verdict:
    """Check everything."""
    return _Check(evidence).verdict()


def history_of(evidence: Evidence) -> History:
    """Return what is known of the tasks that were enqueued, as the judge takes it; servers are processes."""
    history, stored = History(skew_s=1.0), evidence.keyspace.tasks  # times in Redis are whole seconds
    for entry in evidence.entries:
        task_id, job, began_s = entry.order.id, entry.order.job, entry.began_ns / _NS
        most = 0 if job.is_last_attempt else sys.maxsize
        history.note(Sent(began_s, task_id, began_s + entry.order.delay_s, most, "", keeps=job.is_kept))
        if entry.said is Enqueued.YES or task_id in stored:
            history.note(Answered(entry.ended_ns / _NS, task_id, is_acknowledged=True))
    for record in evidence.records:
        task_id, at_s, process = record.task_id, record.at_ns / _NS, f"{record.generation}/{record.pid}"
        if task_id in history.sent and record.what is What.BEGAN:
            history.note(Began(at_s, task_id, process, record.retried, ""))
        elif task_id in history.sent and record.what is not What.OVERFULL:
            history.note(Ended(at_s, task_id, process, _ENDS[record.what], "", 0.0))
    history.places = {task_id: [*one.states] for task_id, one in stored.items()}
    history.left = [*evidence.keyspace.orphans, *evidence.keyspace.locks]
    return history


class _Check:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._alibis = Alibis(evidence.strikes, evidence.lives, evidence.timing)
        self._runs = runs_of(list(evidence.records))
        self._blocks = [
            run
            for entry in evidence.entries
            if entry.order.job.blocks
            for run in self._runs.get(entry.order.id, [])
            if run.retried == 0
        ]
        self._begun: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for record in evidence.records:
            if record.what is What.BEGAN:
                self._begun[record.generation, record.pid].append(record.at_ns)
        self._together = _together(evidence.records)
        self._explained: Counter[str] = Counter()

    def verdict(self) -> Verdict:
        violations = [Violation(*one) for one in self._evidence.observed]
        for entry in self._evidence.entries:
            runs = self._runs.get(entry.order.id, [])
            stored = self._evidence.keyspace.tasks.get(entry.order.id)
            violations += self._of_end(entry, runs, stored)
            violations += self._of_runs(entry, runs)
        violations += self._of_history()
        violations += self._of_strangers()
        return Verdict(violations, dict(self._explained.most_common()), self._figures())

    def _of_history(self) -> Iterator[Violation]:
        names = {entry.order.id: _name(entry) for entry in self._evidence.entries}
        history = history_of(self._evidence)
        for rule in OF_ALL_HISTORIES:
            for text in rule(history):
                subject, _, what = text.partition(" ")
                yield Violation(rule.__name__, f"{names.get(subject, subject)} {what}")

    def _figures(self) -> dict[str, int]:
        said = Counter(entry.said for entry in self._evidence.entries)
        states = Counter(state for stored in self._evidence.keyspace.tasks.values() for state in stored.states)
        runs = [run for of_task in self._runs.values() for run in of_task]
        return {
            "tasks enqueued": said[Enqueued.YES],
            "tasks in doubt (their enqueue failed)": said[Enqueued.MAYBE],
            "runs": len(runs),
            "runs that returned": sum(run.returned for run in runs),
            "runs that raised": sum(run.what is What.RAISED for run in runs),
            "runs that did not end": sum(run.ended_ns is None for run in runs),
            "tasks that ran more than once": sum(len(of_task) > 1 for of_task in self._runs.values()),
            "runs that outlasted the outage": self._outlasting(runs),
            "tasks kept as completed": states["completed"],
            "tasks archived": states["archived"],
        }

    def _outlasting(self, runs: list[Run]) -> int:
        outages = [one for one in self._evidence.strikes if one.kind is Kind.OUTAGE]
        return sum(
            run.began_ns < one.began_ns and run.ended_ns is not None and run.ended_ns > one.ended_ns
            for one in outages
            for run in runs
        )

    # The end of a task ------------------------------------------------------------------------------------------

    def _of_end(self, entry: Entry, runs: list[Run], stored: Stored | None) -> Iterator[Violation]:
        if stored is None:
            return
        if stored.states == ("archived",):
            yield from self._of_archived(entry, runs, stored)
        elif stored.states == ("completed",) and stored.result != _result(entry):
            yield Violation("result", f"{_name(entry)} has the result {repr(stored.result)[:100]}")

    def _of_archived(self, entry: Entry, runs: list[Run], stored: Stored) -> Iterator[Violation]:
        if not entry.order.job.is_last_attempt:
            yield Violation("archived", f"{_name(entry)} was archived ({stored.error}): {_story(runs)}")
        elif not runs and (why := self._alibis.of_unrun(self._monotonic(stored.failed_unix_s))):
            self._explained[why] += 1
        elif not runs:
            yield Violation("last", f"{_name(entry)} was archived ({stored.error}) and never ran")
        elif (why := self._explain(entry, runs[-1], None)) is None:
            yield Violation("archived", f"{_name(entry)} was archived ({stored.error}): {_story(runs)}")
        else:
            self._explained[f"archived: {why}"] += 1
            if any(run.returned for run in runs):
                self._explained["archived, though its handler returned"] += 1

    def _monotonic(self, unix_s: float) -> float:
        return unix_s - self._evidence.unix_less_monotonic_s

    # Its runs ---------------------------------------------------------------------------------------------------

    def _of_runs(self, entry: Entry, runs: list[Run]) -> Iterator[Violation]:
        if runs and runs[0].retried:
            if (unseen := self._alibis.of_unseen(entry, runs[0])) is None:
                text = f"{_name(entry)} began with {runs[0].retried} attempts charged: {_story(runs)}"
                yield Violation("charged", text)
            else:
                self._explained[f"charged before the handler's first line: {unseen.value}"] += 1
        for run, following in pairwise(runs):
            failed_as_meant = entry.order.job.fails_first and run.retried == 0 and following.retried > 0
            if not (failed_as_meant and not run.returned):
                why = self._explain(entry, run, following)
                if why is None:
                    yield Violation("twice", f"{_name(entry)} ran again, and no fault says why: {_story(runs)}")
                else:
                    self._explained[why] += 1
                is_lost = why in (Kind.KILL_SERVER.value, LEASE_LOST) and run.what is not What.RAISED
                if is_lost and not entry.order.job.is_timed and following.retried > run.retried:
                    yield Violation("charged", f"{_name(entry)} was charged as it was lost: {_story(runs)}")
                if following.retried > run.retried:
                    yield from self._of_others(entry, run, why, runs)
            extra = following.retried - run.retried - 1
            if extra > 0:
                yield Violation("charged", f"{_name(entry)} was charged {extra} attempts more: {_story(runs)}")

    def _of_others(self, entry: Entry, run: Run, why: str | None, runs: list[Run]) -> Iterator[Violation]:
        """Yield what is wrong with charging a run that may not have been to blame."""
        if why == _BLOCKED:
            yield Violation("blocked", f"{_name(entry)} was charged for another: {_story(runs)}")
        is_shared = entry.order.job.is_batched and (run.task_id, run.began_ns) in self._together
        if is_shared and run.ended_ns is None:
            yield Violation("batch", f"{_name(entry)} was charged for a call of many: {_story(runs)}")

    def _explain(self, entry: Entry, run: Run, following: Run | None) -> str | None:
        begun = self._begun[run.generation, run.pid]
        at = bisect_right(begun, run.began_ns)
        has_child = not entry.order.job.is_async and not entry.order.job.is_batched
        next_on_child_ns = begun[at] if at < len(begun) and has_child else None
        following_ns = following.began_ns if following is not None else (1 << 63) - 1
        if (why := self._alibis.of(run, following_ns, next_on_child_ns)) is not None:
            return why.value if isinstance(why, Kind) else why
        if following is not None and (why := self._alibis.of_late(run, following)) is not None:
            return why
        if entry.order.job.is_async and self._is_blocked(run):
            return _BLOCKED
        if entry.order.job.pad and (short := self._alibis.of_size(run)) is not None:
            return short.value
        if entry.order.job.is_timed and (why := self._alibis.of_time(run)) is not None:
            return why
        return self._alibis.of_enqueue(entry)

    def _is_blocked(self, run: Run) -> bool:
        """Return whether a run did not end because its child was killed for another task.

        That task blocked the event loop.
        """
        if run.ended_ns is not None:
            return False
        child = (run.generation, run.pid)
        others = (one for one in self._blocks if one.task_id != run.task_id and one.ended_ns is None)
        return any((one.generation, one.pid) == child for one in others)

    # What nobody ordered ----------------------------------------------------------------------------------------

    def _of_strangers(self) -> Iterator[Violation]:
        known = {entry.order.id for entry in self._evidence.entries}
        for task_id in self._runs.keys() - known:
            yield Violation("strange", f"task {task_id} ran, but was not enqueued")
        for task_id in self._evidence.keyspace.tasks.keys() - known:
            yield Violation("strange", f"task {task_id} is in Redis, and nobody enqueued it")
        for record in self._evidence.records:
            if record.what is What.OVERFULL:
                yield Violation(
                    "slots",
                    f"task {record.task_id} began in process {record.pid} of generation {record.generation} "
                    "while every slot had a living handler",
                )


def _together(records: Sequence[Record]) -> set[tuple[str, int]]:
    """Return the runs, by task and beginning, that were in one process with others."""
    found: set[tuple[str, int]] = set()
    open_: defaultdict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for record in records:
        running = open_[record.generation, record.pid]
        if record.what is What.BEGAN:
            running[record.task_id] = record.at_ns
            if len(running) > 1:
                found |= {*running.items()}
        elif record.what is not What.OVERFULL:
            running.pop(record.task_id, None)
    return found


def _result(entry: Entry) -> bytes | None:
    order = entry.order
    return f'"{order.id * order.job.echoes}"'.encode() if order.job.echoes else None


def _name(entry: Entry) -> str:
    return f"task {entry.order.id} ({entry.order.job.name}, queue {entry.order.queue})"


def _story(runs: list[Run]) -> str:
    """Describe the runs of a task, with times in monotonic seconds as in the journal."""
    told = []
    for run in runs:
        ended = "no end" if run.ended_ns is None else f"{run.what.name.lower()} {run.ended_ns / 1e9:.3f}"
        where = f"generation {run.generation} pid {run.pid}"
        told.append(f"[attempt {run.retried}, {where}, began {run.began_ns / 1e9:.3f}, {ended}]")
    return " ".join(told) or "no runs"

"""The checker: holds what was written down outside Redis against the guarantees, and says which are broken.

A lost task is explained only by Redis itself: its master had written more, by the first look after the enqueue had
returned, than the replica had when it took over (``second_repl_offset``). The looks are 20 ms apart; what a master had
written that died before the next one is not known, and counts as more. With ``wait_replicas`` nothing explains the loss
of a task that a fastq client has acknowledged.

A second run is explained by a fault of those in which an ack may be lost. Slots that move are none: only a run of Go's
whose ack Redis refused for the move, before the task ran again, may be repeated. Go asynq v0.26 tries such an ack four
times within some 0.1 s, and then never again: its syncer repeats it under a context that has been canceled
(``markAsDone``). It logs each such ack, which is how they are known; ``tests/interop/test_cluster.py`` shows it.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from fastq.inspector import Finding, Level
from tests.chaos.checker import Violation
from tests.chaos.topology.books import Ack, Books, Fault, Passage, Refusal, Run, Sample

__all__ = ["GUARANTEES", "Verdict", "Violation", "check", "problems_of"]

GUARANTEES: Final = {
    "lost": "no acknowledged task is lost, but those that the promoted replica did not have",
    "left": "nothing is left in any state once all is worked off",
    "twice": "every second run is explained by a fault between start and ack",
    "strange": "nothing runs, or is in Redis, that nobody enqueued",
    "doctor": "the doctor finds no problem in what is left",
    "alive": "no worker ends by itself or with an error, or logs a defect",
}

_BEFORE_S: Final = 1.0
_AFTER_S: Final = 5.0
"""How long before a fault began, and after the site was whole again, its traces may be seen: a write that the replica
did not get; a lost reply that is looked for."""
_OF_MOVES: Final = ("TRYAGAIN ", "ASK ", "MOVED ")


@dataclass(frozen=True)
class Verdict:
    """The violations and some figures; a row of the table for each kind of fault."""

    violations: Sequence[Violation]
    figures: Mapping[str, int]
    rows: Sequence[Mapping[str, object]]
    lost: Sequence[str]
    repeated: Sequence[str]


def check(books: Books, observed: Sequence[Violation] = ()) -> Verdict:
    """Check everything; ``observed`` is what the bench itself saw."""
    return _Check(books).verdict(observed)


def problems_of(findings: Sequence[Finding]) -> list[Violation]:
    """Return a violation for each problem that the doctor has found; warnings are about the site."""
    problems = [finding for finding in findings if finding.level is Level.PROBLEM]
    return [
        Violation("doctor", " ".join(filter(None, (one.check, one.queue, one.seen, ", ".join(one.examples)))))
        for one in problems
    ]


class _Check:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._histories = _Histories(books.samples)
        self._faults = sorted([*books.faults, *self._unordered()], key=lambda fault: -fault.began)
        """The latest first: of several that explain a thing, it is the one."""
        self._runs: defaultdict[str, list[Run]] = defaultdict(list)
        for run in sorted(books.runs, key=lambda run: run.began):
            self._runs[run.id].append(run)
        self._lost: Counter[tuple[str, str]] = Counter()  # by fault and whose it was
        self._again: Counter[str] = Counter()  # by fault
        self._refusals: defaultdict[str, list[Refusal]] = defaultdict(list)
        for refusal in books.refusals:
            self._refusals[refusal.id].append(refusal)
        self._given_up = 0
        self._gone: list[str] = []
        self._repeated: list[str] = []

    def _unordered(self) -> Iterator[Fault]:
        """Yield the promotions outside of all faults: a node stood still for as long as they take to begin."""
        for node, at in self._histories.promotions():
            if not any(fault.began <= at <= fault.ended + _AFTER_S for fault in self._books.faults):
                yield Fault("a promotion that nobody ordered", node, [], True, at - _AFTER_S, at, at + _AFTER_S)

    def verdict(self, observed: Sequence[Violation]) -> Verdict:
        violations = [*observed]
        for ack in self._books.acks:
            violations += self._of_ack(ack)
        for id, runs in self._runs.items():
            violations += self._of_runs(id, runs)
        for id, state in self._books.left.items():
            violations.append(Violation("left", f"{id} is still {state}: {self._story(id)}"))
        strangers = (self._runs.keys() | self._books.left.keys()) - self._books.tried
        violations += [Violation("strange", f"nobody enqueued {id}: {self._story(id)}") for id in sorted(strangers)]
        rows = [self._row(kind) for kind in dict.fromkeys(fault.kind for fault in reversed(self._faults))]
        return Verdict(violations, self._figures(), rows, self._gone, self._repeated)

    # Losses -----------------------------------------------------------------------------------------------------

    def _of_ack(self, ack: Ack) -> Iterator[Violation]:
        if ack.id in self._books.left or any(run.ended for run in self._runs[ack.id]):
            return
        if ack.who == "fastq" and self._books.wait_replicas:
            yield Violation("lost", f"{ack.id}, which replicas had confirmed: {self._story(ack.id)}")
        elif any(self._histories.are_cut(point) for point in self._points(ack)):
            near = (fault.kind for fault in self._faults if _is_near(fault, ack.at))
            self._lost[next(near, "none"), ack.who] += 1
            self._gone.append(self._story(ack.id))
        else:
            yield Violation("lost", f"{ack.id}, and the replica had it: {self._story(ack.id)}")

    def _points(self, ack: Ack) -> Iterator[Passage]:
        """Yield where the task was from when on: the node that took it, and those that its queue moved to."""
        passed = [passage for passage in self._books.passages.get(ack.id, ()) if passage.at <= ack.at]
        if passed:
            yield Passage(ack.at, passed[-1].node)
        for move in self._books.moves:
            if move.queue == ack.queue and move.at > ack.at:
                yield Passage(move.at, move.node)

    # Repeats ----------------------------------------------------------------------------------------------------

    def _of_runs(self, id: str, runs: Sequence[Run]) -> Iterator[Violation]:
        for run, again in pairwise(runs):
            is_refused = any(_refuses(refusal, run, again) for refusal in self._refusals[id])
            why = next((fault.kind for fault in self._faults if _explains(fault, run, is_refused)), None)
            if why is not None:
                self._given_up += is_refused
                self._again[why] += 1
                self._repeated.append(self._story(id))
            else:
                yield Violation("twice", f"{id} ran again, and no fault says why: {self._story(id)}")

    # What is told -----------------------------------------------------------------------------------------------

    def _story(self, id: str) -> str:
        """Return what is known of a task, in seconds since the first fault began."""
        zero = min((fault.began for fault in self._faults), default=0.0)
        of_task = [ack for ack in self._books.acks if ack.id == id]
        acks = [f"acknowledged {ack.at - zero:.3f} ({ack.who}, {ack.queue})" for ack in of_task]
        passed = [f"to {each.node} {each.at - zero:.3f}" for each in self._books.passages.get(id, ())]
        runs = [f"run by {run.who} {run.began - zero:.3f}-{_end(run, zero)}" for run in self._runs[id]]
        refused = [f"ack refused {one.at - zero:.3f}: {one.why}" for one in self._refusals[id]]
        at = [ack.at for ack in of_task] or [run.began for run in self._runs[id]]
        near = [
            f"{fault.kind} of {fault.node} {fault.began - zero:.1f}-{fault.ended - zero:.1f}"
            for fault in self._faults
            if at and _is_near(fault, at[-1])
        ]
        return "; ".join([*acks, *passed, *runs, *refused, f"fault: {', '.join(near) or 'none near'}"])

    def _figures(self) -> dict[str, int]:
        acks, runs = Counter(ack.who for ack in self._books.acks), Counter(run.who for run in self._books.runs)
        return {
            "enqueues tried": len(self._books.tried),
            **{f"acknowledged to {who}": number for who, number in sorted(acks.items())},
            **{f"runs by {who}": number for who, number in sorted(runs.items())},
            "tasks that ran more than once": sum(len(runs) > 1 for runs in self._runs.values()),
            "runs again since Go gave up an ack that a move refused": self._given_up,
            "acknowledged tasks lost that the replica did not have": self._lost.total(),
        }

    def _row(self, kind: str) -> dict[str, object]:
        faults = [fault for fault in self._faults if fault.kind == kind]
        switched = [fault.promoted - fault.began for fault in faults if fault.promoted]
        return {
            "fault": kind,
            "times": len(faults),
            "promoted after, s": round(max(switched), 1) if switched else "",
            "no ack for, s": _gap([ack.at for ack in self._books.acks if ack.who == "fastq"], faults),
            "no ack for Go, s": _gap([ack.at for ack in self._books.acks if ack.who == "Go"], faults),
            "no run for, s": _gap([run.began for run in self._books.runs if run.who == "fastq"], faults),
            "no run for Go, s": _gap([run.began for run in self._books.runs if run.who == "Go"], faults),
            "lost": self._lost[kind, "fastq"],
            "lost of Go": self._lost[kind, "Go"],
            "ran again": self._again[kind],
            "oldest run, s": self._oldest(faults),
        }

    def _oldest(self, faults: Sequence[Fault]) -> object:
        """Return how long the task waited that waited longest of those enqueued near some faults."""
        waits = (
            self._runs[ack.id][0].began - ack.at
            for ack in self._books.acks
            if self._runs[ack.id] and any(_is_near(fault, ack.at) for fault in faults)
        )
        return round(max(waits, default=0.0), 1)


class _Histories:
    """The replication histories of the masters, and where each was left by a replica that was promoted."""

    def __init__(self, samples: Mapping[str, Sequence[Sample]]) -> None:
        self._samples = samples
        self._times = {node: [sample.at for sample in of_node] for node, of_node in samples.items()}
        self._branches: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        for of_node in samples.values():
            for sample in of_node:
                if sample.branch > 0:
                    self._branches[sample.before].add((sample.history, sample.branch))

    def promotions(self) -> Iterator[tuple[str, float]]:
        """Yield each node that was promoted, and when that was first seen."""
        for node, of_node in self._samples.items():
            firsts = {sample.history: sample for sample in reversed(of_node) if sample.branch > 0}
            yield from ((node, sample.at) for sample in firsts.values())

    def are_cut(self, point: Passage) -> bool:
        """Return whether a replica was promoted that need not have had what a node had written by then."""
        times, samples = self._times.get(point.node, []), self._samples.get(point.node, [])
        last = bisect_right(times, point.at) - 1
        if last < 0:
            return False
        history, after = samples[last].history, bisect_left(times, point.at)
        is_known = after < len(samples) and samples[after].history == history
        return self._is_cut(history, samples[after].offset if is_known else None)

    def _is_cut(self, history: str, offset: int | None) -> bool:
        """Follow what was promoted of it; an unknown offset is beyond every branch."""
        return any(
            offset is None or offset >= branch or self._is_cut(later, offset)
            for later, branch in self._branches[history]
            if later != history
        )


def _refuses(refusal: Refusal, run: Run, again: Run) -> bool:
    """Return whether it was this run whose ack was refused, and for a slot that moved."""
    is_its = run.who == "Go" and 0 < run.ended <= refusal.at <= again.began
    return is_its and any(f" {word}" in f" {refusal.why}" for word in _OF_MOVES)


def _explains(fault: Fault, run: Run, is_refused: bool) -> bool:
    end = run.ended or fault.ended
    return (fault.repeats or is_refused) and run.began <= fault.ended + _AFTER_S and end >= fault.began - _BEFORE_S


def _end(run: Run, zero: float) -> str:
    return f"{run.ended - zero:.3f}" if run.ended else "?"


def _is_near(fault: Fault, at: float) -> bool:
    return fault.began - _BEFORE_S <= at <= fault.ended + _AFTER_S


def _gap(times: Sequence[float], faults: Sequence[Fault]) -> object:
    """Return the longest time between two events that meets one of the faults."""
    met = (
        later - at
        for at, later in pairwise(sorted(times))
        if any(at <= fault.ended and later >= fault.began for fault in faults)
    )
    return round(max(met, default=0.0), 1) if times else ""

"""What became of tasks under a fault: what the ledger of the handlers says, judged as in the simulation of fastq."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tests.simulation.judge import Answered, Began, Ended, History, Sent, kept, ran_again

TASKS: Final = 60


class Fault(StrEnum):
    """What is struck; the value is what the table calls it."""

    CHILD = "SIGKILL of a child"
    WORKER = "SIGKILL of the worker"
    FROZEN = "SIGSTOP of the worker"
    CLIENTS = "CLIENT KILL TYPE normal"
    RESTART = "restart of Redis"
    FAIL_OVER = "fail-over of Redis"


class Event(NamedTuple):
    """A line of the ledger: a task has begun or ended; times are monotonic nanoseconds."""

    what: str
    id: str
    pid: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the tasks; ``waiting`` ones are still in Redis at the end.

    ``orphans_s`` is when the last of the ``orphans``, whose runs the fault had ended, began again, and ``done_s`` when
    the last of all tasks had run, in seconds after the fault. ``repeated`` are tasks that ran again though a run of
    theirs came to its end.
    """

    contender: str
    fault: Fault
    orphans: int = 0
    lost: int = 0
    waiting: int = 0
    repeated: int = 0
    orphans_s: float = 0.0
    done_s: float = 0.0
    restarts: int = 0
    failure: str = ""


def history_of(events: Sequence[Event]) -> History:
    """Return the ledger as a history of tasks that were all acknowledged and may run any number of times."""
    history = History()
    for number in range(TASKS):
        history.note(Sent(0.0, str(number), 0.0, len(events), "", keeps=False))
        history.note(Answered(0.0, str(number), is_acknowledged=True))
    for event in events:
        began = Began(event.at_ns / 1e9, event.id, str(event.pid), 0, "")
        ended = Ended(event.at_ns / 1e9, event.id, str(event.pid), "DONE", "", 0.0)
        history.note(began if event.what == "began" else ended)
    return history


def outcome_of(contender: str, fault: Fault, events: Sequence[Event], at_ns: int, left: int, restarts: int) -> Outcome:
    """Return what the ledger says, given how many tasks are left in Redis."""
    history, at_s = history_of(events), at_ns / 1e9
    missing = len(list(kept(history)))
    ended_s = [min(run.ended_s for run in runs) for runs in history.runs.values() if any(run.kind for run in runs)]
    again_s = list(_orphans(history, at_s))
    return Outcome(
        contender,
        fault,
        orphans=len(again_s),
        lost=max(0, missing - left),
        waiting=min(left, missing),
        repeated=len({task_id for task_id, before, _ in ran_again(history) if before.kind}),
        orphans_s=max(again_s, default=at_s) - at_s,
        done_s=max(0.0, max(ended_s, default=at_s) - at_s),
        restarts=restarts,
    )


def _orphans(history: History, at_s: float) -> Iterator[float]:
    """Yield for each run that the fault ended, or held up until its task ran elsewhere, when it last ran again."""
    for runs in history.runs.values():
        before = [run for run in runs if run.began_s <= at_s]
        after_s = [run.began_s for run in runs[len(before) :]]
        if before and before[-1].ended_s > min(after_s, default=sys.float_info.max):
            yield max(after_s, default=at_s)

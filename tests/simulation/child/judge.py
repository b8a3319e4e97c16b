"""What must hold of a run: each submission has one end, which is its own and agrees with what its task has seen."""

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastq.pool.main.protocol import CancelOutcome, Event
from fastq.pool.shared import layout
from fastq.pool.shared.event_kind import NOT_BEGUN, EventKind
from fastq.pool.shared.memory import read_header
from tests.simulation.child import baton

if TYPE_CHECKING:
    from tests.simulation.child.scenario import Scenario

E = EventKind
PATIENT_S = 0.2
"""A grace within which each task ends."""
BY_ITSELF = {E.DONE, E.RESULT, E.BROKEN, E.SKIP_RETRY}


def judge(run: "Scenario") -> list[str]:
    """Return a line for each promise that is broken."""
    found = [f"task {number}: {text}" for number in run.submissions for text in _of_task(run, number)]
    return found + list(_of_children(run))


def _of_task(run: "Scenario", number: int) -> Iterator[str]:
    noted, events = run.ledger[number], run.events.get(number, [])
    ends = [event for event in events if event.kind < E.WRITTEN]
    is_withdrawn = number in run.withdrawn
    if len(ends) != (0 if is_withdrawn else 1):
        yield f"it has {len(ends)} ends{' although it was withdrawn' * is_withdrawn}: {[one.kind.name for one in ends]}"
        return
    written = [event.data.split(b" ")[1] for event in events if event.kind is E.WRITTEN]
    rules = [
        (noted.begun > 1, f"it began {noted.begun} times"),
        (len(noted.told) > 1, f"it was told {len(noted.told)} times: {noted.told}"),
        (written != [b"%d" % one for one in range(1, len(written) + 1)], f"its results came as {written}"),
        (len(written) < noted.wrote, f"{noted.wrote} results were written and {len(written)} came"),
        (bool(ends) and events[-1] is not ends[-1], "something came after its end"),
        *((not _is_own(number, event), f"it is told {event.data[:20]!r}, which is another's") for event in events),
    ]
    yield from (text for is_broken, text in rules if is_broken)
    if not is_withdrawn and ends[0].kind is not E.RETURNED:
        yield from _of_end(run, number, ends[0].kind, ends[0].data)
    elif noted.begun:
        yield "it began although it was given back"


def _is_own(number: int, event: Event) -> bool:
    carries = event.kind in (E.WRITTEN, E.PROGRESS, E.CHECKPOINT, E.RESULT, E.SKIP_RETRY)
    return not carries or event.data.startswith(f"{number} ".encode())


def _of_end(run: "Scenario", number: int, kind: EventKind, data: bytes) -> Iterator[str]:
    """Compare the end of a task with what was done to it, and with what it has seen."""
    noted, is_begun = run.ledger[number], run.ledger[number].begun > 0
    was_canceled = CancelOutcome.TOLD in run.cancels.get(number, [])
    is_stopped = any(deed.what == "stop" for deed in run.deeds)
    of_killed = {E.RERUN, E.CRASHED, E.SKIP_RETRY}
    rules = [
        (not is_begun and kind in BY_ITSELF, f"{kind.name} although it never began"),
        (kind is E.TIMEOUT and not run.plans[number].timeout_s, "its time was up although it has no limit"),
        (is_begun and (kind, data) == (E.TIMEOUT, NOT_BEGUN), "it began although it says that it did not"),
        (kind is E.CANCELED and not was_canceled, "it was canceled by nobody"),
        (was_canceled and kind not in {E.CANCELED, *of_killed}, f"it was told to end, and ended as {kind.name}"),
        (kind is E.ABORTED and not is_stopped, "it was aborted though nobody stopped the pool"),
        ("TaskTimeout" in noted.told and kind not in {E.TIMEOUT, *of_killed}, f"timed out, it ended as {kind.name}"),
        (bool(noted.told) and kind in BY_ITSELF - of_killed, f"told {noted.told}, it ended as {kind.name}"),
        (kind is E.CRASHED and run.is_peaceful and run.config.timeout_grace >= 1, f"it crashed by itself: {data!r}"),
    ]
    yield from (text for is_broken, text in rules if is_broken)
    if kind in BY_ITSELF:
        yield from _by_itself(run, number, kind, data)


def _by_itself(run: "Scenario", number: int, kind: EventKind, data: bytes) -> Iterator[str]:
    """Compare the end of a task that ended by itself with its plan."""
    last = run.plans[number].steps[-1][0] if run.plans[number].steps else ""
    due = {"raise": E.BROKEN, "answer": E.RESULT, "skip": E.SKIP_RETRY}.get(last, E.DONE)
    if run.ledger[number].left != 1:
        yield f"{kind.name} although its code ended {run.ledger[number].left} times"
    if kind is not due:
        yield f"it should have ended as {due.name}, and ended as {kind.name}: {data[-300:]!r}"
    elif kind is E.RESULT and len(data) < run.plans[number].steps[-1][1]:
        yield f"its result has {len(data)} bytes"


def _of_children(run: "Scenario") -> Iterator[str]:
    """Tell what is left in the pool, and in children that live and are at rest."""
    if run.pool.pending or run.pool.submissions():
        yield f"the pool has {run.pool.pending} tasks left"
    if any(deed.what == "stop" for deed in run.deeds):
        return
    if run.is_peaceful and run.config.timeout_grace >= PATIENT_S and run.processes.killed:
        yield f"main killed {run.processes.killed} although all of their tasks end once they are told"
    for process in run.processes.served:
        if not baton.is_dead(process):
            yield from (f"process {process} is at rest, and {text}" for text in _of_child(run, process))


def _of_child(run: "Scenario", process: int) -> Iterator[str]:
    memory = run.processes.served[process].memory
    count = read_header(run.processes.served[process]).rows
    rows = [_word(memory, layout.SLOTS_AT + row * layout.ROW_WIDTH) for row in range(count)]
    tasks = _word(memory, layout.TASK_TAIL_AT) - _word(memory, layout.TASK_HEAD_AT)
    results = _word(memory, layout.RESULT_TAIL_AT) - _word(memory, layout.RESULT_HEAD_AT)
    log = run.processes.loggers[process].handlers[0].lock
    rules = [
        (any(rows), f"its rows are {rows}"),
        (tasks + results > 0, f"its rings have {tasks} bytes of tasks and {results} of results"),
        (run.processes.locks[process].locked(), "the app's lock is taken"),
        (log is not None and log.locked(), "the lock of its log is taken"),  # type: ignore[attr-defined]  # the baton's
    ]
    yield from (text for is_broken, text in rules if is_broken)


def _word(memory: memoryview, at: int) -> int:
    return int(struct.unpack_from("=Q", memory, at)[0])

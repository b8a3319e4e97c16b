"""What Redis and the history count adds up to what has happened."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tests.simulation.happenings import Acted, Counted, Remembered
from tests.simulation.judge import CHARGED, DONE, History, Run

BEAT_S: Final = 30.0
"""Within so long a server that is well has added to the history what it has counted."""
LOSING: Final = (
    "kill",
    "stop",
    "cut",
    "lossy",
    "slow",
    "partition",
    "stall",
    "restart",
    "loading",
    "busy",
    "fail-over",
)
"""Faults after which it may not be known whether Redis has counted, or nobody is left who could count again."""
FORGOTTEN_S: Final = 60.0
"""For so long a server may keep a task in mind that has ended: that it was canceled, say."""
DEAFENING: Final = ("stop", "partition")
FEW: Final = 2
"""It may keep longer what it has heard or shown last."""


def memory(history: History) -> Iterator[str]:
    """A server forgets tasks that have ended; one that stood still, or heard nothing, hears of their end later."""
    by_server = defaultdict(list)
    for one in history.all_of(Remembered):
        times_s = [run.ended_s for run in history.runs.get(one.id, ()) if run.kind]
        times_s += [act.at_s for act in history.all_of(Acted) if act.id == one.id]
        deaf_s = [fault.until_s for fault in history.struck if fault.who == one.server and fault.kind in DEAFENING]
        if times_s and max(times_s + deaf_s) < one.at_s - FORGOTTEN_S:
            by_server[one.server].append(f"{one.id} ({one.way})")
    for server, kept in by_server.items():
        if len(kept) > FEW:
            yield f"{server} remembers {', '.join(kept)}"


def _failed_without_a_run(history: History) -> int:
    """Return how many tasks may have failed though no run of theirs did.

    They were canceled before they began, or archived as their server or their call was lost: those stay in the archive,
    or one that may run once has been deleted since.
    """
    by_id: defaultdict[str, list[Run]] = defaultdict(list)
    for name, of_task in history.runs.items():
        by_id[name.partition("#")[0]] += of_task
    last = {task_id: max(of_task, key=lambda run: run.began_s).kind for task_id, of_task in by_id.items() if of_task}
    archived = [task_id for task_id, places in history.places.items() if places == ["archived"]]
    found = sum(last.get(task_id) not in CHARGED for task_id in archived)
    found += sum(one.what == "cancel" for one in history.all_of(Acted))
    found += sum(run.kind == "RERUN" for of_task in history.runs.values() for run in of_task)
    for act in history.all_of(Acted):
        if act.what in ("delete", "forget") and history.sent[act.id].max_retry == 0:
            of_task = history.runs.get(act.id, [])
            found += all(run.kind not in CHARGED and history.may_be_unwritten(run) for run in of_task)
    return found


def counters(history: History) -> Iterator[str]:
    """Each end that was written is counted once, and no other; a server that is struck may lose what it has counted."""
    if history.rolled_back:
        return
    runs = [run for of_task in history.runs.values() for run in of_task]
    unrun = _failed_without_a_run(history)
    for counted in history.all_of(Counted):
        kinds = {"done": DONE, "failed": CHARGED, "processed": (*DONE, *CHARGED)}[counted.what]
        ended = [run for run in runs if run.kind in kinds]
        most = len(ended) + (unrun if counted.what != "done" else 0)
        leased = [run for run in ended if run.last_owner == run.server]  # without a lease no end is written
        if counted.where == "history":
            least = sum(not history.is_struck(run.server, run.began_s, run.ended_s + BEAT_S, LOSING) for run in leased)
        else:
            least = sum(not history.may_be_unwritten(run) for run in leased)
        if not least <= counted.number <= most:
            yield f"{counted.where} counts {counted.number} {counted.what}, not {least} to {most}"

"""What inspectors have done holds."""

from collections.abc import Iterator
from typing import Final

from tests.simulation.happenings import Acted, Paused
from tests.simulation.judge import History, describe

HEARD_S: Final = 8.0
"""Within so long a handler that is told to end has ended, be it by the end of its child."""
BACK_S: Final = 10.0
"""Within so long a server listens again that was cut off."""
SENT_S: Final = 0.5
LONGEST_S: Final = 12.0
"""No queue is paused for longer."""


def canceled(history: History) -> Iterator[str]:
    """A run that is canceled ends, unless its server or the wires are struck, or its call has others to run."""
    for act in history.all_of(Acted):
        for run in history.runs[act.id]:
            is_running = act.what == "cancel" and act.is_done and run.began_s < act.at_s < run.ended_s - HEARD_S
            is_dead = history.is_struck(run.server, run.began_s, act.at_s, ("kill",))
            if not is_running or is_dead or history.is_among_others(run):
                continue
            if not any(
                history.is_struck(one, act.at_s - BACK_S, act.at_s + HEARD_S) for one in (run.server, "inspector")
            ):
                yield f"{act.id} went on after its cancellation at {act.at_s:.3f}: {describe(history, act.id)}"


def deleted(history: History) -> Iterator[str]:
    """A task that was deleted is nowhere, and never begins again."""
    for act in history.all_of(Acted):
        if act.what not in ("delete", "forget") or not act.is_done or act.id in history.rolled_back:
            continue
        if history.places.get(act.id):
            yield f"{act.id} was deleted at {act.at_s:.3f}: {describe(history, act.id)}"
        # Redis may carry it out a moment after it was sent, and a server may be told of a task a moment after that.
        late = [run for run in history.runs[act.id] if run.began_s > act.at_s + SENT_S]
        if late and history.is_quiet(act.at_s, late[0].began_s):
            yield f"{act.id} began after it was deleted at {act.at_s:.3f}: {describe(history, act.id)}"


def paused(history: History) -> Iterator[str]:
    """Nobody takes a task of a queue that is paused."""
    for one in history.all_of(Paused):
        may_be_lost = any(
            fault.kind == "fail-over" and fault.at_s <= one.at_s + LONGEST_S and fault.until_s >= one.at_s
            for fault in history.struck
        )
        if one.taken and not may_be_lost:
            yield f"{', '.join(one.taken)} of queue {one.queue} began while it was paused at {one.at_s:.3f}"

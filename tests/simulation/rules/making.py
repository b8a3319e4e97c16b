"""What schedulers and aggregators make: one task for a tick, one for the tasks of a group."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from tests.simulation.happenings import Collected, Grouped, Ticked
from tests.simulation.judge import History

LATE_S: Final = 2.0


def ticks(history: History) -> Iterator[str]:
    """A tick is enqueued once, by however many schedulers."""
    ids = defaultdict(set)
    for one in history.all_of(Ticked):
        if (history.runs.get(one.id) or history.places.get(one.id)) and one.id not in history.rolled_back:
            ids[one.name, one.due_s].add(one.id)
    for (name, due_s), found in ids.items():
        if len(found) > 1:
            yield f"{name} of {due_s:.0f} came {len(found)} times: {', '.join(sorted(found))}"


def ticks_come(history: History) -> Iterator[str]:
    """No tick is left out while nothing fails."""
    seen = {one.due_s: one.at_s for one in history.all_of(Ticked) if history.runs.get(one.id)}
    dues_s = sorted(seen)
    period_s = min((after - before for before, after in pairwise(dues_s)), default=0.0)
    for before, after in pairwise(dues_s):
        if after - before > period_s and history.is_quiet(seen[before], seen[after]):
            yield f"no tick between {before:.0f} and {after:.0f}"


def groups(history: History) -> Iterator[str]:
    """Each task of a group is in exactly one task that was made of them."""
    batches = defaultdict(list)
    for made in history.all_of(Collected):
        for member in made.members:
            batches[member].append(made.id)
    for one in history.all_of(Grouped):
        made_of = batches[one.id]
        if one.id in history.rolled_back:
            continue
        if len(made_of) > 1:
            yield f"{one.id} is in {len(made_of)} tasks: {', '.join(made_of)}"
        if one.is_acknowledged and not made_of:
            yield f"{one.id} of a group is in no task"
        if one.is_acknowledged is False and made_of:
            yield f"{one.id} was refused, and is in {made_of}"

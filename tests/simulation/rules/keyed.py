"""What is promised of tasks that are enqueued by key: the newest is run last, and none comes after a newer one.

A server that stood still may begin, for a moment, what others have run meanwhile; that counts for nothing here.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.happenings import Keyed
from tests.simulation.judge import History, Run


def _by_key(history: History) -> Iterator[tuple[str, list[Keyed], list[tuple[int, Run]]]]:
    """Yield each key with what was sent, and its runs with a lease in order, each with the number of what it ran."""
    sent = defaultdict(list)
    for one in history.all_of(Keyed):
        sent[one.key].append(one)
    for key, all_sent in sent.items():
        if key not in history.rolled_back:
            runs = [(one.number, run) for one in all_sent for run in history.runs.get(f"{key}#{one.number}", ())]
            owned = [(number, run) for number, run in runs if run.owner == run.server]
            yield key, all_sent, sorted(owned, key=lambda pair: pair[1].began_s)


def newest(history: History) -> Iterator[str]:
    """The last run of a key is of the newest that was stored, or of one of which that is not known."""
    for key, sent, runs in _by_key(history):
        stored = [one.number for one in sent if one.is_stored]
        if stored and (not runs or runs[-1][0] < stored[-1]):
            yield f"{key}#{stored[-1]} is the newest, and the last run is of {runs[-1][0] if runs else 'none'}"


def in_turn(history: History) -> Iterator[str]:
    """No run of a key is of something older than the run before it."""
    for key, sent, runs in _by_key(history):
        known = {one.number for one in sent if one.is_stored}
        for (before, _), (after, run) in pairwise([pair for pair in runs if pair[0] in known]):
            if after < before:
                yield f"{key}#{after} ran at {run.began_s:.3f}, after {key}#{before}"

"""Compares the two databases, and brings Go's to what fastq left where they differ on purpose."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.keyspace import RANKS, Cells, Difference, GoldenStep, Place, Window, differences_between, snapshot

OF_SERVERS = ("asynq:servers", "asynq:workers", "asynq:fastq:")
"""Only Go's side has a whole server."""
OUTCOME = Place("outcome", "")


@dataclass(frozen=True)
class Pair:
    """The two databases."""

    theirs: Any
    ours: Any

    def run(self, commands: Sequence[tuple[Any, ...]]) -> None:
        """Send commands to both."""
        for db in (self.theirs, self.ours):
            for command in commands:
                db.execute_command(*command)

    def compare(self, window: Window) -> tuple[dict[Place, Difference], Cells]:
        """Return where they differ, and what fastq's holds; then make Go's equal to fastq's.

        So one step's difference is not the next one's, too. Members whose scores agree to the second may be in another
        order; that is no difference, but is levelled out as well.
        """
        theirs, ours = (_without_servers(snapshot(db)) for db in (self.theirs, self.ours))
        ranks = [place for place in theirs.keys() & ours.keys() if place.part == RANKS]
        reordered = {place.key for place in ranks if theirs[place] != ours[place]}
        unordered = [{**cells, **{place: _sorted(cells[place]) for place in ranks}} for cells in (theirs, ours)]
        step = GoldenStep("", 0, "", unordered[0], (), (window,))
        differences = differences_between(step, unordered[1], [window])
        if differences or reordered:
            self._level(reordered | {place.key for place in differences})
        return differences, ours

    def _level(self, keys: set[str]) -> None:
        for key in keys:
            names = {*self.theirs.keys(_pattern(key)), *self.ours.keys(_pattern(key))}
            for name in names:
                copy_key(self.ours, self.theirs, name)


def copy_key(source: Any, target: Any, name: bytes) -> None:
    """Copy a key with its time to live; one that is not there goes in the target, too."""
    content = source.dump(name)
    if content is None:
        target.delete(name)
    else:
        target.restore(name, max(source.pttl(name), 0), content, replace=True)


def _pattern(key: str) -> str:
    """Return a pattern for Redis; what a queue or id has in it that patterns mean otherwise is not used here."""
    return key.replace("<day>", "*").replace("<uuid>", "*")


def _sorted(value: Any) -> Any:
    return tuple(sorted(value))


def _without_servers(cells: Cells) -> Cells:
    return {place: value for place, value in cells.items() if not place.key.startswith(OF_SERVERS)}

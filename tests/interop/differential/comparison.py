"""Compares the two databases, and brings Go's to what fastq left where they differ on purpose."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.keyspace import RANKS, Cells, Difference, GoldenStep, Place, Window, differences_between, snapshot

OF_SERVERS = (b"asynq:servers", b"asynq:workers", b"asynq:fastq:")
"""Only Go's side has a whole server."""
OUTCOME = Place("outcome", "")


@dataclass(frozen=True)
class Pair:
    """The two databases."""

    theirs: Any
    ours: Any

    def run(self, commands: Sequence[tuple[Any, ...]]) -> None:
        """Send commands to both."""
        for db in (self.theirs, self.ours) if commands else ():
            pipeline = db.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            pipeline.execute()

    def compare(self, window: Window) -> tuple[dict[Place, Difference], Cells]:
        """Return where they differ, and what fastq's holds; then make Go's equal to fastq's.

        So one step's difference is not the next one's, too. Members whose scores agree to the second may be in another
        order; that is no difference, but is levelled out as well.
        """
        theirs, ours = (snapshot(db, without=OF_SERVERS) for db in (self.theirs, self.ours))
        one, other = _of_unlike_keys(theirs, ours)
        ranks = [place for place in one.keys() & other.keys() if place.part == RANKS]
        reordered = {place.key for place in ranks if one[place] != other[place]}
        unordered = [{**cells, **{place: _sorted(cells[place]) for place in ranks}} for cells in (one, other)]
        step = GoldenStep("", 0, "", unordered[0], (), (window,))
        differences = differences_between(step, unordered[1], [window])
        if differences or reordered:
            self._level(reordered | {place.key for place in differences})
        return differences, ours

    def _level(self, keys: set[str]) -> None:
        names = {name for key in keys for name in self._names(key)}
        for name, (content, left_ms) in zip(names, _dumped(self.ours, names), strict=True):
            if content is None:
                self.theirs.delete(name)
            else:
                self.theirs.restore(name, max(left_ms, 0), content, replace=True)

    def _names(self, key: str) -> set[bytes]:
        """Return the keys that a place names; what a queue or id has in it that patterns mean is not used here."""
        pattern = key.replace("<day>", "*").replace("<uuid>", "*")
        return {key.encode()} if pattern == key else {*self.theirs.keys(pattern), *self.ours.keys(pattern)}


def _dumped(db: Any, names: Iterable[bytes]) -> Iterator[tuple[bytes | None, int]]:
    """Yield the content of keys, ``None`` of those that are not there, and the milliseconds that each has to live."""
    pipeline = db.pipeline(transaction=False)
    for name in names:
        pipeline.dump(name).pttl(name)
    told = iter(pipeline.execute())
    return zip(told, told, strict=True)


def _of_unlike_keys(one: Cells, other: Cells) -> list[Cells]:
    """Return the cells of both of the keys in which any is not the same to the last bit: they are looked at closely."""
    keys = {place.key for place in one.keys() | other.keys() if one.get(place) != other.get(place)}
    return [{place: value for place, value in cells.items() if place.key in keys} for cells in (one, other)]


def _sorted(value: Any) -> Any:
    return tuple(sorted(value))

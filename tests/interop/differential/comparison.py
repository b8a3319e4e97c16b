"""Compares the two databases, and brings Go's to what fastq left where they differ on purpose."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tests.keyspace
from tests.interop.differential.operation import Operation, Outcome
from tests.keyspace import Cells, Difference, GoldenStep, Place, Window, differences_between, snapshot

__all__ = ["Intended", "IntendedEntry", "Pair"]

OF_SERVERS = ("asynq:servers", "asynq:workers")
"""Only Go's side has a whole server."""
RANKS = "members by rank"
OUTCOME = Place("outcome", "")


@dataclass(frozen=True)
class IntendedEntry:
    """Allow a difference after some operations, in all places that a pattern matches.

    ``go`` and ``fastq`` say what is there: ``something``, ``nothing``, ``anything``; for an outcome, that itself.
    """

    row: str
    operations: tuple[str, ...]
    place: str
    go: str
    fastq: str

    def allows(self, operation: Operation, place: Place, difference: Difference) -> bool:
        return (
            any(re.fullmatch(pattern, operation.name) for pattern in self.operations)
            and re.fullmatch(self.place, f"{place.key} {place.part}".rstrip(), re.DOTALL) is not None
            and _is(self.go, difference.golden)
            and _is(self.fastq, difference.found)
        )


def _is(wanted: str, value: object) -> bool:
    kinds = {"anything": True, "nothing": value is None, "something": value is not None}
    return kinds.get(wanted, value == wanted)


def _entries() -> list[IntendedEntry]:
    path = Path(tests.keyspace.__file__).with_name("differences.toml")
    listed = tomllib.loads(path.read_text("utf-8"))["differential"]
    return [IntendedEntry(**{**entry, "operations": tuple(entry["operations"])}) for entry in listed]


@dataclass
class Intended:
    """Hold the entries of differences.toml for this suite, and how often each was needed."""

    entries: list[IntendedEntry] = field(default_factory=_entries)
    used: Counter[IntendedEntry] = field(default_factory=Counter)

    def unexplained(self, operation: Operation, differences: Mapping[Place, Difference]) -> dict[Place, Difference]:
        left = {}
        for place, difference in differences.items():
            allowing = [entry for entry in self.entries if entry.allows(operation, place, difference)]
            self.used.update(allowing)
            if not allowing:
                left[place] = difference
        return left

    def unused(self) -> list[IntendedEntry]:
        return [entry for entry in self.entries if not self.used[entry]]


@dataclass(frozen=True)
class Pair:
    """Be the two databases."""

    theirs: Any
    ours: Any

    def compare(self, window: Window, outcomes: tuple[Outcome, Outcome]) -> tuple[dict[Place, Difference], Cells]:
        """Return where they differ, the outcomes included, and what fastq's holds; then make Go's equal to fastq's.

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
        if outcomes[0] != outcomes[1]:
            differences[OUTCOME] = Difference(str(outcomes[0]), str(outcomes[1]))
        return differences, ours

    def _level(self, keys: set[str]) -> None:
        for key in keys:
            names = {*self.theirs.keys(_any_day(key)), *self.ours.keys(_any_day(key))}
            for name in names:
                copy_key(self.ours, self.theirs, name)


def copy_key(source: Any, target: Any, name: bytes) -> None:
    """Copy a key with its time to live; one that is not there goes in the target, too."""
    content = source.dump(name)
    if content is None:
        target.delete(name)
    else:
        target.restore(name, max(source.pttl(name), 0), content, replace=True)


def _any_day(key: str) -> str:
    """Return a pattern for Redis; what a queue or id has in it that patterns mean otherwise is not used here."""
    return key.replace("<day>", "*")


def _sorted(value: Any) -> Any:
    return tuple(sorted(value))


def _without_servers(cells: Cells) -> Cells:
    return {place: value for place, value in cells.items() if not place.key.startswith(OF_SERVERS)}

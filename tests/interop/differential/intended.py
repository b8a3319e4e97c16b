"""What differs on purpose: the entries of tests/differences.toml for this suite, each as narrow as its reason."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tests.keyspace
from tests.interop.differential.operation import Operation
from tests.keyspace import Cells, Difference, Place

OF_A_TASK = re.compile(r"(asynq:\{.*\}:)(t|unique):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Step:
    """An operation, its ending in fastq, and the keyspace before it."""

    operation: Operation
    outcome: str
    before: Cells

    def state_of_owner(self, place: Place) -> str:
        """Return which state the task had of which the place is, or which held the lock; "" without one."""
        found = OF_A_TASK.fullmatch(place.key)
        if found is None:
            return ""
        task_id = found[3] if found[2] == "t" else self.before.get(Place(place.key, "string"), "")
        return str(self.before.get(Place(f"{found[1]}t:{task_id}", "state"), ""))


@dataclass(frozen=True)
class IntendedEntry:
    """Allow a difference after some operations, in all places that a pattern matches; see differences.toml.

    ``was`` is the state that the task must have had of which the place is, or whose lock it is; ``outcome`` is how the
    operation must have ended in fastq; both are patterns, too.
    """

    row: str
    operations: tuple[str, ...]
    place: str
    go: str
    fastq: str
    was: str = ""
    outcome: str = ""

    def allows(self, step: Step, place: Place, difference: Difference) -> bool:
        operation = step.operation
        return (
            self.is_about(operation.name)
            and re.fullmatch(self._pattern(operation), f"{place.key} {place.part}".rstrip(), re.DOTALL) is not None
            and _is(self.go, difference.golden)
            and _is(self.fastq, difference.found)
            and (not self.was or re.fullmatch(self.was, step.state_of_owner(place)) is not None)
            and (not self.outcome or re.fullmatch(self.outcome, step.outcome) is not None)
        )

    def is_about(self, name: str) -> bool:
        """Return whether it may allow anything after operations of this name."""
        return any(re.fullmatch(pattern, name) for pattern in self.operations)

    def _pattern(self, operation: Operation) -> str:
        pattern = self.place
        for name in ("queue", "task_id", "lock"):
            pattern = pattern.replace(f"<{name}>", re.escape(getattr(operation, name)))
        return pattern


def _is(wanted: str, value: object) -> bool:
    kinds = {"anything": True, "nothing": value is None, "something": value is not None}
    return kinds.get(wanted, value == wanted)


def _entries() -> list[IntendedEntry]:
    path = Path(tests.keyspace.__file__).with_name("differences.toml")
    listed = tomllib.loads(path.read_text("utf-8"))["differential"]
    return [IntendedEntry(**{**entry, "operations": tuple(entry["operations"])}) for entry in listed]


@dataclass
class Intended:
    """The entries, and how often each was needed."""

    entries: list[IntendedEntry] = field(default_factory=_entries)
    used: Counter[IntendedEntry] = field(default_factory=Counter)
    _by_name: dict[str, list[IntendedEntry]] = field(default_factory=dict)

    def _about(self, name: str) -> list[IntendedEntry]:
        """Return the entries for operations of a name; there are few names, and many steps."""
        if name not in self._by_name:
            self._by_name[name] = [entry for entry in self.entries if entry.is_about(name)]
        return self._by_name[name]

    def unexplained(self, step: Step, differences: Mapping[Place, Difference]) -> dict[Place, Difference]:
        left = {}
        entries = self._about(step.operation.name) if differences else []
        for place, difference in differences.items():
            allowing = [entry for entry in entries if entry.allows(step, place, difference)]
            self.used.update(allowing)
            if not allowing:
                left[place] = difference
        return left

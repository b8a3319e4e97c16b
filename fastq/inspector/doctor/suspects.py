"""Suspects in queues; each is seen twice before it is reported."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

MOST_REMEMBERED: Final = 10_000
"""The most suspects remembered per kind and queue; above that, the report says "at least"."""


class Kind(StrEnum):
    """The kinds of suspects."""

    DANGLING = "ids without task"
    MISPLACED = "ids out of place"
    UNLEASED = "active without lease"
    INACTIVE = "leases without active task"
    EXPIRED = "expired leases"
    OVERDUE_SET = "overdue aggregation sets"
    LOST_TASK = "tasks in no list"
    LEFTOVER = "hashes without message"
    LOST_LOCK = "locks without task"
    UNKNOWN_KEY = "unknown keys"
    UNLISTED = "unlisted queues"
    REMAINS = "remains of queues"
    LIMIT = "limits of unlisted queues"
    WRONG_TYPE = "keys of a wrong type"
    PARKED = "tasks between queues"
    FOLLOW_UP = "follow-ups without a run"
    UNDECODABLE = "undecodable messages"


KEY_KINDS: Final = frozenset(
    {Kind.LOST_TASK, Kind.LEFTOVER, Kind.LOST_LOCK, Kind.UNKNOWN_KEY, Kind.UNLISTED, Kind.REMAINS, Kind.LIMIT}
)
"""The kinds that are found by scanning all keys."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A suspicious task id or key, with the list or set in which it was found; ``detail`` is for people."""

    kind: Kind
    queue: str
    place: str
    name: str
    detail: str = field(default="", compare=False)


@dataclass
class Survey:
    """The results of a walk. A second walk counts only suspects that the first walk has found, too."""

    among: Collection[Suspect] | None = None
    suspects: dict[Suspect, None] = field(default_factory=dict)
    counts: Counter[tuple[Kind, str]] = field(default_factory=Counter)
    ids_looked_at: int = 0
    keys_looked_at: int = 0
    is_partial: bool = False
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    """The checks and queues that Redis did not let fastq examine, and why."""

    def suspect(self, suspect: Suspect) -> None:
        """Record a suspect, if it is not recorded yet."""
        if suspect in self.suspects or (self.among is not None and suspect not in self.among):
            return
        of_its_kind = suspect.kind, suspect.queue
        self.counts[of_its_kind] += 1
        if self.counts[of_its_kind] <= MOST_REMEMBERED:
            self.suspects[suspect] = None

    def of_kind(self, kind: Kind) -> dict[str, list[Suspect]]:
        """Return the suspects of a kind, by queue."""
        found: dict[str, list[Suspect]] = {}
        for suspect in self.suspects:
            if suspect.kind is kind:
                found.setdefault(suspect.queue, []).append(suspect)
        return found

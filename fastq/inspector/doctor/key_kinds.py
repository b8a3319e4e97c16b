"""Classifies keys of asynq and of fastq by their names."""

import re
from enum import Enum, auto
from typing import Final, NamedTuple

__all__ = ["KeyKind", "NamedKey", "name_key"]


class KeyKind(Enum):
    """The purpose of a key."""

    TASK = auto()
    LOCK = auto()
    PLACE = auto()
    """A list or set of ids, or of groups: a queue that has one has tasks."""
    ASIDE = auto()
    """A counter, a mark: it may stay when the queue is gone."""
    SHARED = auto()
    """Belongs to no queue."""
    UNKNOWN = auto()


class NamedKey(NamedTuple):
    """A key, its purpose, its queue ("" if none), and the rest of its name, such as a task's id."""

    key: str
    kind: KeyKind
    queue: str
    rest: str


_OF_QUEUE: Final = re.compile(r"asynq:\{(?P<queue>.*?)\}:(?P<name>.*)", re.DOTALL)
_PLACES: Final = frozenset(
    {
        "pending",
        "active",
        "lease",
        "scheduled",
        "retry",
        "archived",
        "completed",
        "groups",
        "aggregation_sets",
        "moving",
    }
)
_ASIDE: Final = re.compile(
    r"paused|moved|archive_rule|scheduled_groups|(processed|failed)(:\d{4}-\d\d-\d\d)?|lost:\d{4}-\d\d-\d\d"
    r"|history:\d{4}-\d\d-\d\d(T\d\d)?|(tick|last_tick):.*|errors|error:[0-9a-f]{16}",
    re.DOTALL,
)
_SHARED: Final = re.compile(
    r"asynq:(queues|servers|workers|schedulers|scheduler_ticks"
    r"|(servers|workers|schedulers|fastq):\{.*\}|(scheduler_history|sema):.*)",
    re.DOTALL,
)


def name_key(key: str) -> NamedKey:
    """Classify a key that begins with ``asynq:``."""
    found = _OF_QUEUE.fullmatch(key)
    if found is None:
        return NamedKey(key, KeyKind.SHARED if _SHARED.fullmatch(key) else KeyKind.UNKNOWN, "", "")
    queue, name = found["queue"], found["name"]
    for prefix, kind in (("t:", KeyKind.TASK), ("unique:", KeyKind.LOCK), ("g:", KeyKind.PLACE)):
        if name.startswith(prefix):
            return NamedKey(key, kind, queue, name.removeprefix(prefix))
    if name in _PLACES:
        return NamedKey(key, KeyKind.PLACE, queue, name)
    return NamedKey(key, KeyKind.ASIDE if _ASIDE.fullmatch(name) else KeyKind.UNKNOWN, queue, name)

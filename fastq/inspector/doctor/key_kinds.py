"""Classifies keys of asynq and of fastq by their names."""

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from fastq.wire import keys


class KeyKind(Enum):
    """The purpose of a key."""

    TASK = auto()
    LOCK = auto()
    PLACE = auto()
    """A list or set of ids or of groups. A queue that has such a key has tasks."""
    ASIDE = auto()
    """A counter or a flag, which may remain after the queue was deleted."""
    SHARED = auto()
    """Belongs to no queue."""
    UNKNOWN = auto()


class NamedKey(NamedTuple):
    """A key, its purpose, its queue ("" if none), and the rest of its name, such as a task's id.

    ``is_own`` means that asynq does not know the key, and that it holds no tasks.
    """

    key: str
    kind: KeyKind
    queue: str
    rest: str
    is_own: bool = False


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
_ASIDE: Final = re.compile(r"paused|(processed|failed)(:\d{4}-\d\d-\d\d)?")
_OWN_ASIDE: Final = re.compile(keys.OWN_ASIDE, re.DOTALL)
_SHARED: Final = re.compile(
    r"asynq:(queues|servers|workers|schedulers|(servers|workers|schedulers):\{.*\}|(scheduler_history|sema):.*)",
    re.DOTALL,
)
_OWN_SHARED: Final = re.compile(r"asynq:(scheduler_ticks|fastq:\{.*\}(:(signs|signers|takeovers))?)", re.DOTALL)


def name_key(key: str) -> NamedKey:
    """Classify a key that begins with ``asynq:``."""
    found = _OF_QUEUE.fullmatch(key)
    if found is None:
        is_own = _OWN_SHARED.fullmatch(key) is not None
        return NamedKey(key, KeyKind.SHARED if is_own or _SHARED.fullmatch(key) else KeyKind.UNKNOWN, "", "", is_own)
    queue, name = found["queue"], found["name"]
    for prefix, kind in (("t:", KeyKind.TASK), ("unique:", KeyKind.LOCK), ("g:", KeyKind.PLACE)):
        if name.startswith(prefix):
            return NamedKey(key, kind, queue, name.removeprefix(prefix))
    if name in _PLACES:
        return NamedKey(key, KeyKind.PLACE, queue, name)
    is_own = _OWN_ASIDE.fullmatch(name) is not None
    return NamedKey(key, KeyKind.ASIDE if is_own or _ASIDE.fullmatch(name) else KeyKind.UNKNOWN, queue, name, is_own)

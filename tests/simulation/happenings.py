"""What a history also has: who was told what, what was done by hand, ticks, counters. It knows nothing of fastq."""

from typing import NamedTuple


class Told(NamedTuple):
    """A handle learned how its task ended; ``is_written`` is whether Redis said so at that instant."""

    at_s: float
    id: str
    kind: str
    """Done, failed or gone."""
    result: str
    is_written: bool


class Wrote(NamedTuple):
    """A handler wrote a result, progress or a checkpoint; ``run`` names the run."""

    at_s: float
    id: str
    kind: str
    data: str


class Saved(NamedTuple):
    """A handler was told that its checkpoint is saved."""

    at_s: float
    id: str
    data: str


class Undone(NamedTuple):
    """A fail-over lost the write that had saved a checkpoint, or will lose it: it went to a former master."""

    at_s: float
    data: str


class Acted(NamedTuple):
    """An inspector did something with a task, was refused (False), or does not know (None).

    To forget a task is to delete it once it is not needed any more.
    """

    at_s: float
    id: str
    what: str
    is_done: bool | None


class Paused(NamedTuple):
    """A queue that was paused; ``taken`` are the tasks that servers took of it meanwhile."""

    at_s: float
    queue: str
    taken: tuple[str, ...]


class Ticked(NamedTuple):
    """A scheduler composed the task of a tick."""

    at_s: float
    name: str
    due_s: float
    id: str


class Grouped(NamedTuple):
    """A task was put into a group, or (None) may have been."""

    at_s: float
    id: str
    is_acknowledged: bool | None


class Collected(NamedTuple):
    """Tasks of a group went into one task; ``id`` is that task's, which has begun now."""

    at_s: float
    id: str
    members: tuple[str, ...]


class Counted(NamedTuple):
    """A number of ends that Redis has at the end: as a counter of all times, or as the sum of a history."""

    where: str
    what: str
    """Done, failed, or processed, which is both."""
    number: int


class Remembered(NamedTuple):
    """A server holds the id of a task, in memory; ``way`` leads there, by types."""

    at_s: float
    id: str
    server: str
    way: str


class Held(NamedTuple):
    """Somebody was given a token of a semaphore, and held it; None as the end if there was none."""

    at_s: float
    id: str
    until_s: float | None


class Keyed(NamedTuple):
    """A task was enqueued by key; ``number`` counts those of the key, of which one producer sends one after the other.

    ``is_stored`` is None where nobody knows. ``at_s`` is when it was answered.
    """

    at_s: float
    key: str
    number: int
    is_stored: bool | None


class Laned(NamedTuple):
    """A task is sent into a lane, or with "" into their queue without one; not ``is_own``: as a group, as Go does.

    ``deadline_s`` is the deadline in Unix seconds that a client sends, None for none.
    """

    at_s: float
    id: str
    lane: str
    is_own: bool
    priority: int = 0
    deadline_s: int | None = None


class Rested(NamedTuple):
    """A handler asked for a rest of the lane of its task, from its end on."""

    at_s: float
    id: str
    after_s: float


class Left(NamedTuple):
    """A key of lanes that is there at the end, and the ids or lanes in it."""

    key: str
    members: tuple[str, ...]


Happening = (
    Told
    | Wrote
    | Saved
    | Undone
    | Acted
    | Paused
    | Ticked
    | Grouped
    | Collected
    | Counted
    | Remembered
    | Held
    | Keyed
    | Laned
    | Rested
    | Left
)


class Limited(NamedTuple):
    """Redis has another limit, from now on; 0 is no limit. The names are those of people: a lane, "*", "pool:*", "".

    ``order`` is "strict", "lifo", "deadline" or ""; None if the rule only pauses, so that of each lane holds.
    """

    at_s: float
    name: str
    concurrency: int
    interval_s: float
    burst: int
    is_paused: bool
    is_there: bool
    order: str | None = ""


class Placed(NamedTuple):
    """A task of the queue with lanes has a lease, or has none any more."""

    at_s: float
    id: str
    is_taken: bool


class Waiting(NamedTuple):
    """These tasks wait in a lane, from now on."""

    at_s: float
    lane: str
    ids: tuple[str, ...]


class Switched(NamedTuple):
    """Another Redis is the master; it may lack the last writes."""

    at_s: float


class Changing(NamedTuple):
    """Somebody begins to change a limit, or knows that it is done; it may have been the same before."""

    at_s: float
    is_on: bool


InRedis = Limited | Placed | Waiting | Switched | Changing
"""What Redis was seen to have after each command, of the queue with lanes."""

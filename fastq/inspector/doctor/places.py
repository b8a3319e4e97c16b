"""The lists and sets of a queue that hold task ids, and a walk through each of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fastq.broker.inspect.examine import Stretch, examine_list, examine_set
from fastq.broker.inspect.keyspace import key_types
from fastq.broker.inspect.queues import group_sizes
from fastq.broker.inspect.tasks import container
from fastq.broker.operation import Flow, Operation, together
from fastq.broker.operations.aggregate import AggregationSet
from fastq.broker.transport.replies import scored
from fastq.common.states import TaskState
from fastq.wire import keys

LISTS: Final = (TaskState.PENDING, TaskState.ACTIVE)
SETS: Final = (TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED, TaskState.COMPLETED)
OVERDUE_S: Final = 180
"""How long after its deadline a set is overdue. Servers return a set to its group earlier; Go's check every 60 s."""
MOST_SETS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """A list or sorted set of ids, and the state of its tasks; ``group`` is the group's name for a set of a group."""

    queue: str
    key: str
    state: TaskState
    group: str = ""

    @property
    def name(self) -> str:
        """Return a readable name, without the queue."""
        return self.key.removeprefix(keys.queue_prefix(self.queue)).removeprefix("g:")

    def examine(self, start: str, *, repair: bool = False) -> Operation[Stretch]:
        """Examine the stretch that begins at ``start``, "0" at first."""
        if self.state in LISTS:
            return examine_list(self.queue, self.state, start, repair=repair)
        return examine_set(self.queue, self.key, self.state, start, group=self.group, repair=repair)


@dataclass(frozen=True, slots=True)
class Places:
    """The lists and sets of a queue that can be walked, the keys of a wrong type, and the overdue sets."""

    places: list[Place]
    wrong: dict[str, str]
    overdue: list[AggregationSet]
    has_parked: bool
    """Whether tasks are being moved between this queue and another one."""
    has_follow_ups: bool
    """Whether tasks were enqueued by key while a task with that key ran."""


def find_places(queue: str, now_s: int) -> Flow[Places]:
    """Find the lists and sets of a queue: one for each state, the groups, and the aggregation sets."""
    expected = {container(queue, state): ("list", state) for state in LISTS}
    expected |= {container(queue, state): ("zset", state) for state in SETS}
    others = {keys.lease(queue): "zset", keys.groups(queue): "set", keys.aggregation_sets(queue): "zset"}
    others |= {keys.moving(queue): "zset", keys.again(queue): "hash"}
    wanted = {key: kind for key, (kind, _) in expected.items()} | others
    found = dict(zip(wanted, (yield from together(*key_types(list(wanted)))), strict=True))
    wrong = {key: found[key] for key, kind in wanted.items() if found[key] not in (kind, "none")}
    places = [Place(queue, key, state) for key, (kind, state) in expected.items() if found[key] == kind]
    if found[keys.groups(queue)] == "set":
        sizes = yield from group_sizes(queue)
        places += [
            Place(queue, keys.group(queue, name), TaskState.AGGREGATING, name)
            for name, size in sizes.items()
            if size and is_sendable(name)
        ]
    overdue: list[AggregationSet] = []
    if found[keys.aggregation_sets(queue)] == "zset":
        sets, overdue = yield from _sets(queue, now_s)
        places += sets
    return Places(places, wrong, overdue, found[keys.moving(queue)] == "zset", found[keys.again(queue)] == "hash")


def _sets(queue: str, now_s: int) -> Flow[tuple[list[Place], list[AggregationSet]]]:
    reply: list[Any] = yield Operation(
        "ZRANGE", (keys.aggregation_sets(queue),), (0, MOST_SETS - 1, "WITHSCORES"), idempotent=True
    )
    places, overdue = [], []
    for key, score in scored(reply):
        one = AggregationSet.of_key(queue, key.decode(errors="replace"))
        if one is None or one.key.encode() != key:
            continue
        if score < now_s - OVERDUE_S:
            overdue.append(one)
        if not math.isinf(score):  # at infinity, the set's tasks were aggregated and are being deleted
            places.append(Place(queue, one.key, TaskState.AGGREGATING))
    return places, overdue


def walk(place: Place, see: Callable[[Stretch], bool], *, repair: bool = False) -> Flow[int]:
    """Go through a list or set until ``see`` returns False; returns the number of ids dropped."""
    start: str | None = "0"
    dropped = 0
    while start is not None:
        stretch: Stretch = yield place.examine(start, repair=repair)
        dropped += stretch.dropped
        start = stretch.following if see(stretch) else None
    return dropped


def is_sendable(name: str) -> bool:
    """Return whether a name read from Redis is valid UTF-8, and so can be sent to Redis again."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)

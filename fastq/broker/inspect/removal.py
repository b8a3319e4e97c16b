"""Deletes a queue with all its keys, in pieces, while producers may continue."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from fastq.broker.inspect.bulk import BulkResult, delete_all, delete_some
from fastq.broker.inspect.keyspace import glob_of
from fastq.broker.inspect.queues import GroupPage, list_groups
from fastq.broker.inspect.tasks import STATES, container, containers
from fastq.broker.operation import Flow, Operation, scripted, together
from fastq.broker.operations.enqueue import forget_registered
from fastq.broker.operations.walk import Source
from fastq.common.states import TaskState
from fastq.wire import keys
from fastq.wire.history import HOUR_S, MINUTES_KEPT_S

KEYS_A_CALL: Final = 1000
HOURS_OF_MINUTES: Final = MINUTES_KEPT_S // HOUR_S + 1


class CloseOutcome(NamedTuple):
    """Whether a queue was paused for deletion, and what it contained at that moment.

    ``groups`` counts group names, ``sets`` counts groups that are being aggregated.
    """

    closed: bool
    sizes: dict[TaskState, int]
    groups: int
    sets: int


def close_queue(queue: str, now_s: int, *, force: bool) -> Operation[CloseOutcome]:
    """Pause a queue that has no tasks; with ``force``, a queue that has no active tasks."""
    script_keys = (*_containers(queue)[:-1], keys.paused(queue))
    return scripted("close_queue", script_keys, (now_s, int(force)), _parse_closing)


def _containers(queue: str) -> tuple[str, ...]:
    return (*containers(queue), keys.groups(queue), keys.aggregation_sets(queue), keys.lease(queue))


def _parse_closing(reply: list[int]) -> CloseOutcome:
    closed, *sizes, groups, sets = reply
    return CloseOutcome(bool(closed), dict(zip(STATES, sizes, strict=True)), groups, sets)


def delete_contents(queue: str) -> Flow[None]:
    """Delete the tasks of a closed queue.

    The states from which a forwarder moves tasks come first, the states to which it moves them after that.
    """
    for state in (TaskState.SCHEDULED, TaskState.RETRY):
        yield from delete_all(Source(queue, container(queue, state), state))
    yield from _delete_groups(queue)
    for key, group in (yield from find_groups(queue)).items():
        if not group.is_listed:
            yield from delete_all(Source(queue, key, TaskState.AGGREGATING))
    for state in (TaskState.PENDING, TaskState.ARCHIVED, TaskState.COMPLETED):
        yield from delete_all(Source(queue, container(queue, state), state))


def _delete_groups(queue: str) -> Flow[None]:
    sets: list[bytes] = yield Operation("ZRANGE", (keys.aggregation_sets(queue),), (0, -1), idempotent=True)
    for name in sets:
        key = name.decode("utf-8", "surrogateescape")
        yield from delete_all(Source(queue, key, TaskState.AGGREGATING))
        yield Operation("ZREM", (keys.aggregation_sets(queue),), (name,), int, idempotent=True)
    cursor = "0"
    while True:
        page: GroupPage = yield list_groups(queue, cursor)
        yield from _delete_some_groups(queue, page.sizes)
        cursor = page.cursor
        if cursor == "0":
            return


def _delete_some_groups(queue: str, sizes: Mapping[str, int]) -> Flow[None]:
    """Delete groups with their tasks: small ones in one round trip, the rest of each big one separately.

    Locks that only messages name are left to ``sweep_queue``.
    """
    yield from unlist_groups(queue, [group for group, size in sizes.items() if not size])
    sources = [
        Source(queue, keys.group(queue, group), TaskState.AGGREGATING, group) for group, size in sizes.items() if size
    ]
    results: list[BulkResult] = yield from together(*(delete_some(source) for source in sources))
    for source, taken in zip(sources, results, strict=True):
        if taken.ids < sizes[source.group]:
            yield from delete_all(source)


def unlist_groups(queue: str, groups: list[str]) -> Flow[None]:
    """Take empty groups off the list of a queue's groups."""
    if groups:
        args = (keys.group_prefix(queue), *groups)
        yield scripted("unlist_groups", (keys.groups(queue),), args, int, idempotent=True)


class FoundGroup(NamedTuple):
    """The number of tasks in a group or in an aggregation set, and whether the queue lists it."""

    size: int
    is_listed: bool


def find_groups(queue: str) -> Flow[dict[str, FoundGroup]]:
    """Scan all keys of Redis for the groups and aggregation sets of a queue; asynq leaves some of them unlisted."""
    prefix = keys.group_prefix(queue)
    script_keys = (keys.groups(queue), keys.aggregation_sets(queue))
    found: dict[str, FoundGroup] = {}
    cursor = "0"
    while True:
        args = (prefix, glob_of(prefix), cursor, KEYS_A_CALL)
        reply: list[Any] = yield scripted("find_groups", script_keys, args, idempotent=True)
        found.update(_parse_groups(reply[1:]))
        cursor = reply[0].decode()
        if cursor == "0":
            return found


def _parse_groups(words: list[Any]) -> Iterator[tuple[str, FoundGroup]]:
    for key, size, is_listed in zip(words[::3], words[1::3], words[2::3], strict=True):
        yield key.decode("utf-8", "surrogateescape"), FoundGroup(size, bool(is_listed))


def sweep_queue(queue: str) -> Flow[int]:
    """Scan all keys of Redis, and delete the keys of a queue that none of its tasks needs; returns how many."""
    prefix = keys.queue_prefix(queue)
    script_keys = (*_containers(queue), keys.paused(queue))
    swept: SweepPage = SweepPage("0", 0)
    deleted = 0
    while True:
        args = (prefix, glob_of(prefix), swept.cursor, KEYS_A_CALL)
        swept = yield scripted("sweep_queue", script_keys, args, _parse_sweep, idempotent=True)
        deleted += swept.deleted
        if swept.cursor == "0":
            return deleted


def keys_of_queue(queue: str) -> list[str]:
    """Return the keys of a queue whose first task came less than a day ago: of counters, today's and yesterday's.

    Keys of tasks, groups, lanes, locks and tracebacks are not among them.
    """
    now = datetime.now(UTC)
    counters = (keys.processed, keys.failed, keys.lost, keys.history_hours)
    return [
        *_containers(queue),
        keys.paused(queue),
        keys.processed_total(queue),
        keys.failed_total(queue),
        keys.errors(queue),
        *(key_of(queue, day) for day in (now, now - timedelta(days=1)) for key_of in counters),
        *(keys.history_minutes(queue, now - timedelta(hours=ago)) for ago in range(HOURS_OF_MINUTES)),
    ]


class SweepPage(NamedTuple):
    """SCAN's cursor, and the number of keys that the call has deleted."""

    cursor: str
    deleted: int


def _parse_sweep(reply: list[Any]) -> SweepPage:
    return SweepPage(reply[0].decode(), reply[1])


def forget_queue(queue: str) -> Flow[None]:
    """Resume a queue, and take it off the list if no task arrived meanwhile."""
    left: int = yield Operation("EXISTS", _containers(queue), (), int, idempotent=True)
    delist = () if left else (Operation("SREM", (keys.all_queues(),), (queue,), int, idempotent=True),)
    yield from together(Operation("DEL", (keys.paused(queue),), (), int, idempotent=True), *delist)
    forget_registered(queue)

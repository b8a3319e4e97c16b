"""Deletes a queue with all its keys, in pieces, while producers may go on."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fastq import keys
from fastq.broker.inspect_bulk import Source, Taken, delete_all, delete_some
from fastq.broker.inspect_queues import GroupPage, list_groups
from fastq.broker.inspect_tasks import container
from fastq.broker.operation import Flow, Operation, together
from fastq.broker.scripts import load_script
from fastq.states import TaskState

__all__ = ["Closing", "close_queue", "delete_contents", "forget_queue", "sweep_queue", "unlist_groups"]

KEYS_A_CALL: Final = 1000
GLOB_SPECIAL: Final = re.compile(r"[*?\[\]\\^]")


class Closing(NamedTuple):
    """Tell whether a queue was paused to be deleted, and what was in it then.

    ``groups`` counts names, ``sets`` groups that are being aggregated.
    """

    closed: bool
    sizes: dict[TaskState, int]
    groups: int
    sets: int


_STATES: Final = (
    TaskState.PENDING,
    TaskState.ACTIVE,
    TaskState.SCHEDULED,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
)


def close_queue(queue: str, now_s: int, *, force: bool) -> Operation[Closing]:
    """Pause a queue that has no tasks; with ``force`` one that has no active ones."""
    script_keys = (*_containers(queue)[:-1], keys.paused(queue))
    return Operation("close_queue", load_script("close_queue"), script_keys, (now_s, int(force)), _parse_closing)


def _containers(queue: str) -> tuple[str, ...]:
    return (
        *(container(queue, state) for state in _STATES),
        keys.groups(queue),
        keys.aggregation_sets(queue),
        keys.lease(queue),
    )


def _parse_closing(reply: list[int]) -> Closing:
    closed, *sizes, groups, sets = reply
    return Closing(bool(closed), dict(zip(_STATES, sizes, strict=True)), groups, sets)


def delete_contents(queue: str) -> Flow[None]:
    """Delete the tasks of a closed queue; first those that a forwarder might move, and whither."""
    for state in (TaskState.SCHEDULED, TaskState.RETRY):
        yield from delete_all(Source(queue, container(queue, state), state))
    yield from _delete_groups(queue)
    for state in (TaskState.PENDING, TaskState.ARCHIVED, TaskState.COMPLETED):
        yield from delete_all(Source(queue, container(queue, state), state))


def _delete_groups(queue: str) -> Flow[None]:
    sets: list[bytes] = yield Operation("ZRANGE", None, (keys.aggregation_sets(queue),), (0, -1), idempotent=True)
    for name in sets:
        key = name.decode("utf-8", "surrogateescape")
        yield from delete_all(Source(queue, key, TaskState.AGGREGATING))
        yield Operation("ZREM", None, (keys.aggregation_sets(queue),), (name,), int, idempotent=True)
    cursor = "0"
    while True:
        page: GroupPage = yield list_groups(queue, cursor)
        yield from _delete_some_groups(queue, page.sizes)
        cursor = page.cursor
        if cursor == "0":
            return


def _delete_some_groups(queue: str, sizes: Mapping[str, int]) -> Flow[None]:
    """Delete groups with their tasks: small ones in one round trip, the rest of each big one by itself.

    Locks that only messages name are left to ``sweep_queue``.
    """
    yield from unlist_groups(queue, [group for group, size in sizes.items() if not size])
    sources = [
        Source(queue, keys.group(queue, group), TaskState.AGGREGATING, group) for group, size in sizes.items() if size
    ]
    results: list[Taken] = yield from together(*(delete_some(source) for source in sources))
    for source, taken in zip(sources, results, strict=True):
        if taken.ids < sizes[source.group]:
            yield from delete_all(source)


def unlist_groups(queue: str, groups: list[str]) -> Flow[None]:
    """Take groups off the list; those that have tasks come back when another joins."""
    if groups:
        yield Operation("SREM", None, (keys.groups(queue),), groups, int, idempotent=True)


def sweep_queue(queue: str) -> Flow[int]:
    """Go through all keys of Redis for those of a queue that no task of it needs, and delete them; returns how many."""
    prefix = keys.queue_prefix(queue)
    pattern = GLOB_SPECIAL.sub(r"\\\g<0>", prefix) + "*"
    script_keys = (*_containers(queue), keys.paused(queue))
    swept: Swept = Swept("0", 0)
    deleted = 0
    while True:
        args = (prefix, pattern, swept.cursor, KEYS_A_CALL)
        swept = yield Operation(
            "sweep_queue", load_script("sweep_queue"), script_keys, args, _parse_sweep, idempotent=True
        )
        deleted += swept.deleted
        if swept.cursor == "0":
            return deleted


class Swept(NamedTuple):
    """Hold SCAN's cursor, and how many keys were deleted on the way there."""

    cursor: str
    deleted: int


def _parse_sweep(reply: list[Any]) -> Swept:
    return Swept(reply[0].decode(), reply[1])


def forget_queue(queue: str) -> Flow[None]:
    """Resume a queue, and take it off the list if nothing came into it meanwhile."""
    left: int = yield Operation("EXISTS", None, _containers(queue), (), int, idempotent=True)
    delist = () if left else (Operation("SREM", None, (keys.all_queues(),), (queue,), int, idempotent=True),)
    yield from together(Operation("DEL", None, (keys.paused(queue),), (), int, idempotent=True), *delist)

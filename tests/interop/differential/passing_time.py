"""What only time does: tasks fall due, leases end, retentions and archives expire, counters reach their end.

Scores are set back in both databases, to the same second; servers that die are left out, too: what they took stays.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from fastq.wire import keys
from tests.interop.differential.goal import GROUPS, NOTHING, OK, QUEUES, Build, Goal
from tests.interop.differential.operation import TEND, Operation
from tests.interop.differential.state import State, TaskAt

MOST = 4
LEASE_GRACE_S = 30
ARCHIVE_S = 90 * 86_400
MAX_INT64 = 2**63 - 1
SET_ID = "01234567-89ab-cdef-0123-456789abcdef"
PLACES = {"scheduled": keys.scheduled, "retry": keys.retry, "completed": keys.completed, "archived": keys.archived}
ACTORS = {"forward": ("forwarder", "scheduled", "retry"), "expire": ("janitor", "completed")}

Commands = tuple[tuple[Any, ...], ...]


def time_goals() -> Iterator[Goal]:
    for verb, (actor, *places) in ACTORS.items():
        for place in places:
            name = f"{verb}_{place}"
            yield Goal(name, OK, due(name, actor, place))
            yield Goal(name, NOTHING, not_due(name, actor))
    for name, build in (("recover_tasks", recover), ("reclaim_group", reclaim)):
        yield Goal(name, OK, build)
        yield Goal(name, NOTHING, not_due(name, "recoverer"))


def tend(name: str, actor: str, queue: str, before: Commands = (), gone: tuple[str, ...] = ()) -> Operation:
    return Operation(name, TEND, (actor, queue), before=before, gone=gone)


def some(tasks: list[TaskAt], rng: Random, most: int = MOST) -> list[TaskAt]:
    """Choose a few of one queue; none if there are none."""
    if not tasks:
        return []
    queue = rng.choice(tasks).queue
    here = [task for task in tasks if task.queue == queue]
    return rng.sample(here, rng.randint(1, min(most, len(here))))


def set_back(tasks: list[TaskAt], rng: Random, seconds: int = 0) -> Commands:
    """Let scores be some seconds ago."""
    now_s = int(time.time())
    return tuple(
        ("ZADD", PLACES[task.state](task.queue), "XX", now_s - seconds - rng.randint(1, 1000), task.id)
        for task in tasks
    )


def states(tasks: list[TaskAt], state: str | None = None) -> tuple[str, ...]:
    return tuple(f"{keys.task(task.queue, task.id)}={state or task.state}" for task in tasks)


def due(name: str, actor: str, place: str) -> Build:
    def build(state: State, rng: Random) -> Operation | None:
        tasks = some([task for task in state.tasks if task.state == place], rng)
        return tend(name, actor, tasks[0].queue, set_back(tasks, rng), states(tasks)) if tasks else None

    return build


def not_due(name: str, actor: str) -> Build:
    return lambda _state, rng: tend(name, actor, rng.choice(QUEUES))


# Deaths -------------------------------------------------------------------------------------------------------------


def recover(state: State, rng: Random) -> Operation | None:
    """Let a server take tasks, and die; it is known by the end of their leases."""
    tasks = some([task for task in state.tasks if task.state == "pending" and task.queue not in state.paused], rng)
    if not tasks:
        return None
    ended_s = int(time.time()) - LEASE_GRACE_S - rng.randint(1, 1000)
    queue = tasks[0].queue
    taken = tuple(command for task in tasks for command in _taken(task, ended_s))
    return tend("recover_tasks", "recoverer", queue, taken, states(tasks, "active"))


def _taken(task: TaskAt, ended_s: int) -> Iterator[tuple[Any, ...]]:
    """Do what a dequeue does, with a lease that ended."""
    queue, key = task.queue, keys.task(task.queue, task.id)
    yield "LREM", keys.pending(queue), 0, task.id
    yield "LPUSH", keys.active(queue), task.id
    yield "HSET", key, "state", "active"
    yield "HDEL", key, "pending_since"
    yield "ZADD", keys.lease(queue), ended_s, task.id


def reclaim(state: State, rng: Random) -> Operation | None:
    """Let a server take a group to aggregate it, and die; its deadline tells."""
    found = [(queue, group) for queue in QUEUES for group in GROUPS if keys.group(queue, group) in state.keys]
    if not found:
        return None
    queue, group = rng.choice(found)
    one, left = keys.aggregation_set(queue, group, SET_ID), keys.aggregation_set(queue, group, "<uuid>")
    taken: Commands = (
        ("RENAME", keys.group(queue, group), one),
        ("SREM", keys.groups(queue), group),
        ("ZADD", keys.aggregation_sets(queue), int(time.time()) - rng.randint(1, 1000), one),
    )
    return tend("reclaim_group", "recoverer", queue, taken, (left, keys.aggregation_sets(queue)))


# What an operation meets on its way ---------------------------------------------------------------------------------


def trimming(name: str, build: Build) -> Build:
    """Let some of the queue's archived tasks be old before an operation that archives another."""

    def built(state: State, rng: Random) -> Operation | None:
        operation = build(state, rng)
        queue = "" if operation is None else operation.queue
        old = some([task for task in state.tasks if task.state == "archived" and task.queue == queue], rng)
        # One that is to be archived is to be another.
        if operation is None or not old:
            return None
        return replace(
            operation, name=name, before=set_back(old, rng, ARCHIVE_S), gone=tuple(keys.task(queue, t.id) for t in old)
        )

    return built


def at_its_end(name: str, build: Build, *, fails: bool) -> Build:
    """Let the counters that an operation raises be at the largest number that there is."""

    def built(state: State, rng: Random) -> Operation | None:
        operation = build(state, rng)
        if operation is None:
            return None
        counters = (keys.processed_total, keys.failed_total) if fails else (keys.processed_total,)
        full = tuple(("SET", key(operation.queue), MAX_INT64) for key in counters)
        return replace(operation, name=name, before=full)

    return built

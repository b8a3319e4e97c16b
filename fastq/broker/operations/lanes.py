"""Lanes: groups that are not aggregated, whose tasks are taken in turn and within limits; docs/internals/lanes.md.

Some scripts have a twin for queues with lanes, ``<name>_lanes``: it does the same, and also changes turns and places.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from fastq.broker.operation import Operation, scripted
from fastq.broker.scripts import SCRIPTS
from fastq.broker.twins import TWINS
from fastq.wire import keys

T = TypeVar("T")

RULES_CHANGED = "limits"
"""The message on a queue's ``due_channel`` that announces changed rules; all other messages on it are times."""


OF_SERVERS: Final = TWINS.keys() - {"done", "enqueue_tick", "park", "schedule"}
"""The twins that servers send in place of plain scripts; the other twins are called by their names."""
SWEEP: Final = 500


class Swept(NamedTuple):
    """The next cursor (0: the beginning), and how many lanes have got a turn."""

    cursor: int
    turns: int


def lane_keys(queue: str, without: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the keys that scripts need for the lanes of a queue, in their order."""
    all_keys = keys.groups(queue), keys.limits(queue), keys.turns(queue), keys.full(queue), keys.bell(queue)
    return tuple(key for key in all_keys if key not in without)


def in_lanes(operation: Operation[T], queue: str, lanes: Sequence[str] = ()) -> Operation[T]:
    """Return the twin of an operation for a queue with lanes; that of ``done`` is told the lane of each task."""
    assert (operation.name == "done") is bool(lanes), "only done is told lanes"
    twin = SCRIPTS[f"{operation.name}_lanes"]
    has_turns = TWINS[operation.name].has_turns
    more = lane_keys(queue, without=operation.keys) if has_turns else (keys.limits(queue),)
    args = (*operation.args, *lanes)
    return replace(operation, name=twin.name, keys=(*operation.keys, *more), args=args, script=twin)


def has_rules(queue: str) -> Operation[int]:
    """Count the limits of a queue: those of its lanes, its pools, all its lanes, and the queue as a whole."""
    return Operation("HLEN", (keys.limits(queue),), (), int, idempotent=True)


def sweep_lanes(queue: str, cursor: int) -> Operation[Swept]:
    """Look at about 500 groups from a ``cursor`` on, which is 0 at first; give a turn to each lane that has none."""
    return scripted(
        "sweep_lanes",
        lane_keys(queue),
        (keys.task_prefix(queue), cursor, SWEEP),
        lambda reply: Swept(int(reply[0]), reply[1]),
        idempotent=True,
    )


def forget_rates(queue: str) -> Operation[int]:
    """Forget how much of their rates the lanes of a queue have used."""
    return Operation("DEL", (keys.rates(queue),), (), int, idempotent=True)


def prune_rates(queue: str, cursor: int) -> Operation[int]:
    """Forget the arrival times that have passed, for about 500 lanes from a ``cursor`` on; returns the next cursor."""
    return scripted("prune_rates", (keys.rates(queue),), (cursor, SWEEP), int, idempotent=True)

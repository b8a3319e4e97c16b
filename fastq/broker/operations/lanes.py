"""Lanes: groups that nobody combines, whose tasks are taken by turns and within limits; docs/internals/lanes.md.

A script has a twin for queues with lanes, ``<name>_lanes``: the plain one, and what it means for turns and places.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from fastq.broker.operation import Operation
from fastq.broker.scripts import load_script
from fastq.wire import keys

T = TypeVar("T")

RULES_CHANGED = "limits"
"""What is published on a queue's ``due_channel``, where times are told otherwise, once its rules have changed."""


def lane_keys(queue: str, without: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the keys that scripts need for the lanes of a queue, in their order."""
    all_keys = keys.groups(queue), keys.limits(queue), keys.turns(queue), keys.full(queue), keys.bell(queue)
    return tuple(key for key in all_keys if key not in without)


def in_lanes(operation: Operation[T], queue: str) -> Operation[T]:
    """Return the twin of an operation for a queue with lanes."""
    twin = load_script(f"{operation.name}_lanes")
    more = lane_keys(queue, without=operation.keys)
    return replace(operation, name=twin.name, keys=(*operation.keys, *more), script=twin)

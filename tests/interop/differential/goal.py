"""What the generator must reach: an operation that ends in one way, and what builds it."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from tests.interop.differential.operation import Operation
from tests.interop.differential.state import State

OK, NOTHING = "ok", "nothing"
QUEUES = ("default", "low:очередь 2")
GROUPS = ("g1", "g:with:colons")
HOUR_S = 3600
Build: TypeAlias = Callable[[State, Random], Operation | None]


@dataclass(frozen=True, eq=False)
class Goal:
    """An operation that ends in one way; ``build`` makes one that should, if the state allows."""

    name: str
    ending: str
    build: Build


def always(operation: Operation) -> Build:
    return lambda _state, _rng: operation

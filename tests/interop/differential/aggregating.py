"""Chooses sequences about groups: many queues are filled, then their groups are aggregated, all in the same second."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, TypeAlias

from fastq.wire import keys
from tests.interop.differential.generator import Goals, Steps
from tests.interop.differential.goal import HOUR_S, NOTHING, OK, Goal
from tests.interop.differential.groups import NO_TASK, TYPE, Due, bundled
from tests.interop.differential.operation import ENQUEUE, TEND, Operation

QUEUES: Final = tuple(f"q{number}" for number in range(32))
GROUP: Final = "g"
LATER_S: Final = 1000
FAILURES: Final = ("TaskIDConflictError", "DuplicateTaskError", NO_TASK)
ANSWERS: Final[Sequence[dict[str, Any]]] = (
    {},
    {"max_retry": 1},
    {"process_in": HOUR_S},
    {"retention": HOUR_S},
    {"unique": HOUR_S},
    {"group": "again"},
    {"timeout": 30},
    {"queue": "elsewhere"},
)


@dataclass(frozen=True)
class Plan:
    """The plan for a queue: how its group is due, how that ends, and its tasks' payloads, oldest first."""

    queue: str
    goal: Goal
    payloads: tuple[bytes, ...]
    unique: tuple[bool, ...]


Rule: TypeAlias = Callable[[int], tuple[Due, Callable[[int], int]]]


def by_size(size: int) -> tuple[Due, Callable[[int], int]]:
    """Let it be due by its size alone: all its tasks are new, one more than a set may have."""
    return Due(max_size=max(1, size - 1)), lambda rank: LATER_S + rank


def by_delay(size: int) -> tuple[Due, Callable[[int], int]]:
    """Let its oldest task have waited for long, and the others be new."""
    return Due(max_delay_s=10), lambda rank: LATER_S + rank if rank else -LATER_S


def by_grace(size: int) -> tuple[Due, Callable[[int], int]]:
    """Let all tasks have waited; those that are more than a set may have stay."""
    return Due(max_size=size + 1), lambda rank: rank - LATER_S


def not_yet(size: int) -> tuple[Due, Callable[[int], int]]:
    return Due(max_size=size + 1, max_delay_s=10), lambda rank: LATER_S + rank


RULES: Final[dict[str, Rule]] = {
    "aggregate_by_size": by_size,
    "aggregate_by_delay": by_delay,
    "aggregate_by_grace": by_grace,
}
EARLY: Final = "aggregate_early"


def group_goals() -> Iterator[Goal]:
    for name in RULES:
        for ending in (OK, *FAILURES):
            yield Goal(name, ending, lambda _state, _rng: None)
    yield Goal(EARLY, NOTHING, lambda _state, _rng: None)


class GroupChooser(Goals):
    """Fill queues so that what is missing most is reached, and let a round of aggregators go through them."""

    def __init__(self, seed: int) -> None:
        super().__init__(list(group_goals()))
        self._rng = Random(seed)

    def coin(self) -> bool:
        return self._rng.random() < 0.5

    def sequence(self) -> Steps:
        plans = [self._plan(queue) for queue in QUEUES]
        for rank in range(max(len(plan.payloads) for plan in plans)):
            yield [enqueued(plan, rank) for plan in plans if rank < len(plan.payloads)]
        yield [beside(plan) for plan in plans]
        yield [self._round(plan) for plan in plans]
        yield [listed(plan) for plan in plans]

    def _plan(self, queue: str) -> Plan:
        weights = self.missing() or dict.fromkeys(self.goals, 1.0)
        goal = self._rng.choices(list(weights), list(weights.values()))[0]
        payloads = tuple(f"{rank}{self._rng.random()}".encode() for rank in range(self._rng.randint(1, 4)))
        return Plan(queue, goal, payloads, tuple(self._rng.random() < 0.3 for _ in payloads))

    def _round(self, plan: Plan) -> Operation:
        due, at = (RULES.get(plan.goal.name) or not_yet)(len(plan.payloads))
        due = replace(due, options=self._answer(plan))
        now_s, group = int(time.time()), keys.group(plan.queue, GROUP)
        ages = tuple(("ZADD", group, "XX", now_s + at(rank), f"id-{rank}") for rank in range(len(plan.payloads)))
        return Operation(plan.goal.name, TEND, ("aggregator", plan.queue), {"groups": due}, before=ages)

    def _answer(self, plan: Plan) -> dict[str, Any] | None:
        match plan.goal.ending:
            case "NoTask":
                return None
            case "TaskIDConflictError":
                return {"task_id": "taken"}
            case "DuplicateTaskError":
                return {"unique": HOUR_S}
        return self._rng.choice(ANSWERS)


def enqueued(plan: Plan, rank: int) -> Operation:
    unique = {"unique": HOUR_S} if plan.unique[rank] else {}
    options = {"group": GROUP, "queue": plan.queue, "task_id": f"id-{rank}", **unique}
    return Operation(
        "enqueue_group_unique" if unique else "enqueue_group", ENQUEUE, ("t", plan.payloads[rank]), options
    )


def beside(plan: Plan) -> Operation:
    """Enqueue a task that is no part of the group: one that waits, or whose id or lock the new one would need."""
    match plan.goal.ending:
        case "TaskIDConflictError":
            return Operation("enqueue", ENQUEUE, ("t", b"x"), {"queue": plan.queue, "task_id": "taken"})
        case "DuplicateTaskError":
            due, _ = RULES[plan.goal.name](len(plan.payloads))
            whole = bundled(plan.payloads[: due.max_size or None])
            options = {"queue": plan.queue, "task_id": "other", "unique": HOUR_S}
            return Operation("enqueue_unique", ENQUEUE, (TYPE, whole), options)
    return Operation("enqueue", ENQUEUE, ("t", b"x"), {"queue": plan.queue, "task_id": "other"})


def listed(plan: Plan) -> Operation:
    return Operation("groups", "groups", (plan.queue,))

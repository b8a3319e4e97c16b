"""Every operation and every way it may end: what the generator must reach, and how it tries to."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import Any, TypeAlias

from fastq.wire import keys
from tests.interop.differential.goal import GROUPS, HOUR_S, NOTHING, OK, QUEUES, Build, Goal, always
from tests.interop.differential.operation import BEGIN, CANCEL, END, ENQUEUE, Operation
from tests.interop.differential.passing_time import at_its_end, time_goals, trimming
from tests.interop.differential.reading import reading_goals
from tests.interop.differential.state import State, TaskAt

TYPE = "type:of é"
IDS = [f"id-{number}" if number % 2 else f"id:{number} é" for number in range(100, 130)]
HOW_MANY_ARE_KEPT = 0.8
"""Tasks of any kind with a retention; without, few would ever be completed."""

# Enqueueing ---------------------------------------------------------------------------------------------------------

OPTIONS: Mapping[str, Callable[[Random], dict[str, Any]]] = {
    "enqueue": lambda _: {},
    "enqueue_scheduled": lambda rng: {"process_in": HOUR_S * rng.randint(1, 99)},
    "enqueue_unique": lambda _: {"unique": HOUR_S},
    "enqueue_unique_scheduled": lambda rng: {"unique": HOUR_S, "process_in": HOUR_S * rng.randint(1, 99)},
    "enqueue_group": lambda rng: {"group": rng.choice(GROUPS)},
    "enqueue_group_unique": lambda rng: {"group": rng.choice(GROUPS), "unique": HOUR_S},
    "enqueue_group_scheduled": lambda rng: {"group": rng.choice(GROUPS), "process_in": HOUR_S * rng.randint(1, 99)},
    "enqueue_retention": lambda rng: {"retention": HOUR_S * rng.randint(1, 99)},
    "enqueue_headers": lambda rng: {"headers": {"trace": str(rng.random())}},
    "enqueue_deadline": lambda rng: {"deadline": datetime(rng.randint(2100, 2200), 1, 1, tzinfo=UTC)},
    "enqueue_timeout": lambda rng: {"timeout": rng.randint(30, 9000) / 2},
    "enqueue_past": lambda rng: {"process_at": datetime(rng.randint(2000, 2020), 1, 1, tzinfo=UTC)},
    "enqueue_max_retry": lambda rng: {"max_retry": rng.choice((0, 1, 5, -1))},
}


MIXED = [name for name in OPTIONS if name != "enqueue_past"]


def mixed(rng: Random) -> dict[str, Any]:
    """Take several kinds of options at once."""
    kinds = rng.sample(MIXED, rng.randint(2, 6))
    return {name: value for kind in kinds for name, value in OPTIONS[kind](rng).items()}


def enqueue_goals() -> Iterator[Goal]:
    for name, options_of in {**OPTIONS, "enqueue_mixed": mixed}.items():
        yield Goal(name, OK, enqueue(name, options_of, new_id))
        yield Goal(name, "TaskIDConflictError", enqueue(name, options_of, used_id))
        yield Goal(name, "ValueError", enqueue(name, options_of, bad))
        if "unique" in name:
            yield Goal(name, "DuplicateTaskError", enqueue(name, options_of, same_payload))
    name = "enqueue_unique_again"
    yield Goal(name, "TaskIDConflictError", enqueue(name, OPTIONS["enqueue_unique"], same_task))


Choice: TypeAlias = Callable[[State, Random], Mapping[str, Any] | None]


def enqueue(name: str, options_of: Callable[[Random], dict[str, Any]], choose: Choice) -> Build:
    def build(state: State, rng: Random) -> Operation | None:
        chosen = choose(state, rng)
        if chosen is None:
            return None
        given = {"type": TYPE, "payload": rng.choice((None, b"", b"p" + rng.randbytes(3))), **chosen}
        options = options_of(rng)
        if "unique" in options:  # one that no other has, unless it is to be a duplicate
            given["payload"] = chosen.get("payload", b"u" + chosen["task_id"].encode())
        type, payload = given.pop("type"), given.pop("payload")
        kept = {"retention": HOUR_S} if rng.random() < HOW_MANY_ARE_KEPT else {}
        return Operation(name, ENQUEUE, (type, payload), {**kept, **options, **given})

    return build


def new_id(state: State, rng: Random) -> Mapping[str, Any] | None:
    queue = rng.choice(QUEUES)
    used = {task.id for task in state.tasks}
    free = [each for each in IDS if each not in used and not locks(state, each)]
    return {"queue": queue, "task_id": rng.choice(free)} if free else None


def locks(state: State, task_id: str) -> list[str]:
    return [queue for queue in QUEUES if lock_of(queue, task_id) in state.keys]


@cache
def lock_of(queue: str, task_id: str) -> str:
    return keys.unique(queue, TYPE, b"u" + task_id.encode())


def used_id(state: State, rng: Random) -> Mapping[str, Any] | None:
    tasks = [task for task in state.tasks if task.queue not in locks(state, task.id)]
    if not tasks:
        return None
    task = rng.choice(tasks)
    return {"queue": task.queue, "task_id": task.id}


def same_task(state: State, rng: Random) -> Mapping[str, Any] | None:
    """Choose one whose id and lock are both taken."""
    tasks = [task for task in state.tasks if task.queue in locks(state, task.id)]
    if not tasks:
        return None
    task = rng.choice(tasks)
    return {"queue": task.queue, "task_id": task.id}


def bad(state: State, rng: Random) -> Mapping[str, Any]:
    wrong = rng.choice(({"type": " "}, {"queue": ""}, {"task_id": "\t"}, {"group": " "}, {"unique": 0.5}))
    return {"queue": rng.choice(QUEUES), "task_id": "bad", **wrong}


def same_payload(state: State, rng: Random) -> Mapping[str, Any] | None:
    free = [(queue, each) for each in IDS for queue in locks(state, each)]
    if not free:
        return None
    queue, each = rng.choice(free)
    return {"queue": queue, "task_id": "another", "payload": b"u" + each.encode()}


# The inspector ------------------------------------------------------------------------------------------------------

ALL = ("pending", "active", "scheduled", "retry", "archived", "completed", "aggregating")
TASK_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "run_task": ("scheduled", "retry", "archived", "completed", "aggregating"),
    "archive_task": ("pending", "scheduled", "retry", "completed", "aggregating"),
    "delete_task": ("pending", "scheduled", "retry", "archived", "completed", "aggregating"),
    "update_task_payload": ("scheduled",),
}
"""Action → the states in which it can be done."""
ALL_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "delete_all": ("pending", "scheduled", "retry", "archived", "completed", "aggregating"),
    "run_all": ("scheduled", "retry", "archived", "aggregating"),
    "archive_all": ("pending", "scheduled", "retry", "aggregating"),
}


def inspector_goals() -> Iterator[Goal]:
    for action, states in TASK_ACTIONS.items():
        yield Goal(action, OK, on_task(action, states))
        yield Goal(action, "TaskStateError", on_task(action, tuple(set(ALL) - set(states))))
        yield Goal(action, "TaskNotFoundError", on_none(action, known=True))
        yield Goal(action, "QueueNotFoundError", on_none(action, known=False))
    waiting = ("pending", "scheduled", "retry")
    yield Goal("archive_task_trimming", OK, trimming("archive_task_trimming", on_task("archive_task", waiting)))
    yield Goal("archive_all_tasks_trimming", OK, trimming("archive_all_tasks_trimming", archive_all_in_any_state))
    for action, states in ALL_ACTIONS.items():
        for state in states:
            name = f"{action}_{state}_tasks"
            yield Goal(name, OK, on_all(name, state))
            group = (GROUPS[0],) if state == "aggregating" else ()
            yield Goal(name, "QueueNotFoundError", always(Operation(name, name, ("nosuch", *group))))


def on_task(action: str, states: tuple[str, ...]) -> Build:
    def build(state: State, rng: Random) -> Operation | None:
        tasks = state.within(states)
        return task_call(action, rng.choice(sorted(tasks, key=str)), rng) if tasks else None

    return build


def on_none(action: str, *, known: bool) -> Build:
    def build(state: State, rng: Random) -> Operation | None:
        queues = state.queues if known else ["nosuch"]
        return task_call(action, TaskAt(rng.choice(queues), "none", ""), rng) if queues else None

    return build


def task_call(action: str, task: TaskAt, rng: Random) -> Operation:
    new = (b"new" + rng.randbytes(2),) if action == "update_task_payload" else ()
    return Operation(action, action, (task.queue, task.id, *new))


def on_all(name: str, place: str) -> Build:
    def build(state: State, rng: Random) -> Operation | None:
        tasks = state.within((place,))
        if not tasks:
            return None
        task = rng.choice(tasks)
        return Operation(name, name, (task.queue, task.group) if place == "aggregating" else (task.queue,))

    return build


def archive_all_in_any_state(state: State, rng: Random) -> Operation | None:
    found = sorted({task.state for task in state.within(ALL_ACTIONS["archive_all"])})
    if not found:
        return None
    place = rng.choice(found)
    return on_all(f"archive_all_{place}_tasks", place)(state, rng)


# Queues -------------------------------------------------------------------------------------------------------------


def queue_goals() -> Iterator[Goal]:
    for name, done, refused in (("pause_queue", runs, is_paused), ("unpause_queue", is_paused, runs)):
        yield Goal(name, OK, on_queue(name, done))
        yield Goal(name, "QueueStateError", on_queue(name, refused))
    for name, force in (("delete_queue", False), ("delete_queue_by_force", True)):
        options = {"force": force}
        yield Goal(name, OK, on_queue(name, is_empty if not force else is_idle, options))
        yield Goal(name, "QueueNotEmptyError", on_queue(name, is_busy if force else is_filled, options))
        yield Goal(name, "QueueNotFoundError", always(Operation(name, "delete_queue", ("nosuch",), options)))
    name = "delete_queue_of_kept_tasks"
    yield Goal(name, "QueueNotEmptyError", on_queue(name, has_only_kept_tasks, {"force": False}))


Condition: TypeAlias = Callable[[State, str], bool]


def on_queue(name: str, holds: Condition, options: Mapping[str, Any] | None = None) -> Build:
    def build(state: State, rng: Random) -> Operation | None:
        queues = [queue for queue in state.queues if holds(state, queue)]
        method = name.partition("_queue")[0] + "_queue"
        return Operation(name, method, (rng.choice(queues),), options or {}) if queues else None

    return build


def is_paused(state: State, queue: str) -> bool:
    return queue in state.paused


def runs(state: State, queue: str) -> bool:
    return queue not in state.paused


def is_busy(state: State, queue: str) -> bool:
    return state.held is not None and state.held.queue == queue


def is_idle(state: State, queue: str) -> bool:
    return not is_busy(state, queue)


def is_filled(state: State, queue: str) -> bool:
    return any(task.queue == queue and task.state not in ("completed", "aggregating") for task in state.tasks)


def has_only_kept_tasks(state: State, queue: str) -> bool:
    return not is_filled(state, queue) and not is_empty(state, queue)


def is_empty(state: State, queue: str) -> bool:
    return not state.sizes(queue)


# Handlers -----------------------------------------------------------------------------------------------------------

ENDINGS = {
    "ok": b"",
    "result": b"result \x00\xff data",
    "error": "boom ✗".encode(),
    "not_failure": b"not yet",
    "skip": b"bad input",
    "revoke": b"not wanted",
    "panic": b"oh no",
}


def handler_goals() -> Iterator[Goal]:
    yield Goal(BEGIN, OK, begin_one)
    yield Goal(BEGIN, NOTHING, begin_none)
    for outcome in ENDINGS:
        yield Goal(f"{END}_{outcome}", OK, end_in(outcome))
    for outcome in ("ok", "skip", "error"):
        name = f"{END}_{outcome}_at_the_last_number"
        yield Goal(name, OK, at_its_end(name, end_in(outcome), fails=outcome != "ok"))
    yield Goal(f"{END}_skip_trimming", OK, trimming(f"{END}_skip_trimming", end_in("skip")))
    yield Goal(CANCEL, OK, end_by_cancel)
    yield Goal("cancel_processing", OK, cancel_none)


def begin_one(state: State, rng: Random) -> Operation | None:
    queues = sorted({task.queue for task in state.tasks if task.state == "pending"} - state.paused)
    return None if state.held or not queues else Operation(BEGIN, BEGIN, (rng.choice(queues), True))


def begin_none(state: State, rng: Random) -> Operation | None:
    filled = {task.queue for task in state.tasks if task.state == "pending"} - state.paused
    queues = sorted(set(QUEUES) - filled)
    return None if state.held or not queues else Operation(BEGIN, BEGIN, (rng.choice(queues), False))


def end_in(outcome: str) -> Build:
    def build(state: State, rng: Random) -> Operation | None:
        task = state.held
        if task is None:
            return None
        return Operation(f"{END}_{outcome}", END, ((task.queue, task.id), outcome, ENDINGS[outcome]))

    return build


def end_by_cancel(state: State, rng: Random) -> Operation | None:
    task = state.held
    return Operation(CANCEL, CANCEL, (task.queue, task.id)) if task else None


def cancel_none(state: State, rng: Random) -> Operation:
    """Cancel what no handler has."""
    others = [task.id for task in state.tasks if task.state != "active"]
    return Operation("cancel_processing", "cancel_processing", (rng.choice([*others, "none"]),))


def all_goals() -> list[Goal]:
    """Return them in an order that is always the same."""
    from_clients = [*enqueue_goals(), *inspector_goals(), *queue_goals(), *reading_goals()]
    return [*from_clients, *handler_goals(), *time_goals()]

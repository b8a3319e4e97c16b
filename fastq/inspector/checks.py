"""Checks of an inspector's arguments, before anything is sent; each error names the value."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final

from fastq.common.durations import nanoseconds_of
from fastq.common.states import TaskState
from fastq.options import check_text

MAX_PAGE_SIZE: Final = 10_000
MAX_PAGE: Final = 10**12
MAX_PENDING: Final = 10**9


def check_queue(queue: object) -> str:
    """Return the name of a queue; a blank one is refused."""
    return check_text(queue, "queue")


def check_task_id(task_id: object) -> str:
    """Return a task's id; a blank one is refused."""
    return check_text(task_id, "task_id")


def check_state_name(state: object, allowed: Collection[TaskState] = tuple(TaskState)) -> TaskState:
    """Return a state if it is allowed."""
    with suppress(ValueError):
        known = TaskState(state)  # type: ignore[arg-type]  # any value that is not a state is refused, of whatever type
        if known in allowed:
            return known
    raise ValueError(f"state must be one of {', '.join(allowed)}, not {state!r}")


def check_states(states: Iterable[object], allowed: Sequence[TaskState]) -> list[TaskState]:
    """Return states in the order of ``allowed``; an empty selection is refused."""
    if isinstance(states, str):
        states = (states,)
    named = {check_state_name(state, allowed) for state in states}
    if not named:
        raise ValueError("states is empty; leave it out for all states")
    return [state for state in allowed if state in named]


def check_state(state: object, group: object) -> tuple[TaskState, str]:
    """Return a state and its group, which aggregating needs and no other state accepts."""
    known = check_state_name(state)
    if known is TaskState.AGGREGATING:
        return known, check_text(group, "group")
    if group is not None:
        raise ValueError(f"group={group!r} goes with the state aggregating only, not with {known.value}")
    return known, ""


def check_page(page: object, page_size: object) -> tuple[int, int]:
    """Return the start of a page, counted from 0, and its size."""
    number = check_count(page, "page", MAX_PAGE)
    size = check_count(page_size, "page_size", MAX_PAGE_SIZE)
    return (number - 1) * size, size


def check_count(value: object, name: str, most: int) -> int:
    """Return a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}: {value!r}")
    if not 1 <= value <= most:
        raise ValueError(f"{name} must be from 1 to {most}: {value!r}")
    return value


def check_timeout(timeout: object) -> float:
    """Return the longest time to wait, in seconds."""
    ns = nanoseconds_of(timeout, name="timeout")
    if ns < 0:
        raise ValueError(f"timeout must not be negative: {timeout!r}")
    return ns / 1_000_000_000

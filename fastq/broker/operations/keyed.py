"""Keyed: the operations for tasks whose ids are their keys, and the outcomes of putting one.

A task that is enqueued while a task with its key runs waits in the hash ``again``; a newer task replaces it there.
``put_again`` follows any operation that ends the run. It puts the waiting task into the queue, or gives its message to
the task of the run if that task waits for another attempt. It may be sent any number of times. Servers also send it for
tasks that are left in the hash, as after a run on a Go server.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from fastq.broker.operation import Operation, Word, scripted
from fastq.common.states import KeyOutcome, TaskState
from fastq.wire import keys

PUT_AGAIN_AT_MOST: Final = 200
MAX_BYTES: Final = 256_000


class KeyTerms(NamedTuple):
    """The terms for putting a task whose id is its key.

    ``mark`` is in the message of this task only. ``latest_s`` is the latest Unix second to run it at, 0 for none.
    """

    if_there: str
    mark: str
    latest_s: int = 0


class Found(NamedTuple):
    """The outcome of putting a task by its key.

    ``state`` is the state of an existing task with that key. That task runs at ``run_at_s``, 0 if at once or not known.
    ``is_repeat`` says that an earlier sending of the call had put the task.
    """

    outcome: KeyOutcome
    state: TaskState | None = None
    run_at_s: int = 0
    is_repeat: bool = False


_FIXED = {
    1: Found(KeyOutcome.PUT),
    5: Found(KeyOutcome.RERUN, TaskState.ACTIVE),
    6: Found(KeyOutcome.PUT, is_repeat=True),
    7: Found(KeyOutcome.RERUN, TaskState.ACTIVE, is_repeat=True),
}
_REPLACED = 3
_POSTPONED = 4

_Layout: TypeAlias = tuple[tuple[str, ...], list[Word]]


def keyed_keys(queue: str) -> tuple[str, ...]:
    """Return the keys of the scripts that put tasks by their keys."""
    return (keys.pending(queue), keys.scheduled(queue), keys.completed(queue), keys.archived(queue), keys.again(queue))


def found_of(code: int, more: bytes) -> Found | None:
    """Return the outcome in a script's reply; None if the id belongs to a task that cannot be replaced."""
    if (fixed := _FIXED.get(code)) is not None or code == 0:
        return fixed
    if code == _POSTPONED:
        return Found(KeyOutcome.POSTPONED, TaskState.SCHEDULED, int(float(more)))
    state = more.decode(errors="replace")
    outcome = KeyOutcome.REPLACED if code == _REPLACED else KeyOutcome.KEPT
    return Found(outcome, TaskState(state) if state in _STATES else None)


_STATES = {state.value for state in TaskState}


def put_again(queue: str, task_ids: Sequence[str | bytes], now_ns: int) -> Operation[int]:
    """Put the tasks that were enqueued by key while tasks with these ids ran; return how many.

    Tasks that exceed the bytes of a call are left to the recoverer's next look.
    """
    args: tuple[Word, ...] = (keys.task_prefix(queue), now_ns, keys.due_channel(queue), MAX_BYTES, *task_ids)
    return scripted("put_again", keyed_keys(queue), args, int, idempotent=True)


def list_again(queue: str) -> Operation[list[Any]]:
    """Return ids of tasks that are to run again: all, or 200 at random if there are more."""
    return Operation("HRANDFIELD", (keys.again(queue),), (PUT_AGAIN_AT_MOST,), list, idempotent=True)


def count_again(queue: str) -> Operation[int]:
    """Count the tasks that are to run once a task with their key has ended, or has just ended."""
    return Operation("HLEN", (keys.again(queue),), (), int, idempotent=True)

"""Examinations of a queue's lists, sets, leases, tasks and locks, a stretch per call.

Each call is atomic, so that tasks in motion are not suspected. With ``repair`` it repairs what it finds.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from fastq.broker.inspect.tasks import container, containers
from fastq.broker.operation import Operation, Word, scripted
from fastq.broker.operations.lease import id_word
from fastq.common.states import TaskState
from fastq.wire import keys

IDS_A_CALL: Final = 500
LEASES_A_CALL: Final = 500
FOLLOW_UPS_A_CALL: Final = 100
"""How many tasks one call reads; Redis reads the tasks' messages, too."""
TASKS_A_CALL: Final = 200
MAX_SEARCHED: Final = 20_000
"""Redis scans this many list elements in a ms or two, for each id that it looks for."""
KEEP_COMPLETED_S: Final = 86_400


class Stretch(NamedTuple):
    """The result of examining a stretch: where the next one begins, and how many ids were examined and dropped.

    ``following`` is None after the last stretch. ``found`` lists the ids with a fault, and the fault.
    """

    following: str | None
    looked_at: int
    dropped: int
    found: list[tuple[str, str]]


def examine_list(queue: str, state: TaskState, start: str, *, repair: bool = False) -> Operation[Stretch]:
    """Examine ids of pending or active, from the newest on.

    An id without a task is "none", an active task without a lease is "unleased".

    """

    def parse(reply: list[Any]) -> Stretch:
        looked_at, dropped, *found = reply
        following = str(int(start) + looked_at - dropped) if looked_at >= IDS_A_CALL else None
        return Stretch(following, looked_at, dropped, list(_pairs(found)))

    script_keys = (container(queue, state), keys.lease(queue))
    args = (keys.task_prefix(queue), state.value, start, IDS_A_CALL, int(repair))
    return scripted("examine_list", script_keys, args, parse, idempotent=True)


def examine_set(
    queue: str, key: str, state: TaskState, cursor: str, *, group: str = "", repair: bool = False
) -> Operation[Stretch]:
    """Examine ids of a sorted set as ``examine_list`` does; ``group`` is the group's name if the set is a group."""

    def parse(reply: list[Any]) -> Stretch:
        cursor, looked_at, dropped, *found = reply
        return Stretch(_following(cursor), looked_at, dropped, list(_pairs(found)))

    args = (keys.task_prefix(queue), state.value, group, cursor, IDS_A_CALL, int(repair))
    script_keys = (key, keys.groups(queue))
    return scripted("examine_set", script_keys, args, parse, idempotent=True)


def examine_leases(queue: str, cursor: str, expired_before_s: int) -> Operation[Stretch]:
    """Examine leases: "inactive" ones have a task that is not active, "expired" ones ended before the given second."""

    def parse(reply: list[Any]) -> Stretch:
        cursor, looked_at, *found = reply
        return Stretch(_following(cursor), looked_at, 0, list(_pairs(found)))

    script_keys = (keys.lease(queue), keys.active(queue))
    args = (cursor, LEASES_A_CALL, expired_before_s)
    return scripted("examine_leases", script_keys, args, parse, idempotent=True)


def examine_again(queue: str, cursor: str) -> Operation[Stretch]:
    """Examine the tasks that were enqueued by key during a run.

    A task is "over" if that run is over, so that ``put_again`` puts it, and "wrong" if the running task's key is no
    hash.
    """

    def parse(reply: list[Any]) -> Stretch:
        cursor, looked_at, *found = reply
        return Stretch(_following(cursor), looked_at, 0, list(_pairs(found)))

    args = (keys.task_prefix(queue), cursor, FOLLOW_UPS_A_CALL)
    return scripted("examine_again", (keys.again(queue),), args, parse, idempotent=True)


def examine_tasks(
    queue: str, task_ids: Sequence[str], now_s: int, *, read_ns: int = 0, most_archived: int | None = None
) -> Operation[list[tuple[str, str]]]:
    """Find tasks that are in no list; returns their ids and states, or "none" for a hash without a message.

    With ``most_archived`` the tasks are repaired. Hashes without a message are deleted, and completed tasks are kept
    for a day. The others are archived, or left as they are ("full") if the archive already has that many tasks. A
    pending list may be too long to be searched. A task that may be in it is "unsure", and left as it is. If the caller
    has read that list without finding the task, at ``read_ns``, an older task is not unsure.
    """
    script_keys = (
        *containers(queue),
        keys.lease(queue),
        keys.aggregation_sets(queue),
    )
    prefixes = (keys.task_prefix(queue), keys.group_prefix(queue))
    args: tuple[Word, ...] = (
        *prefixes,
        int(most_archived is not None),
        now_s,
        now_s + KEEP_COMPLETED_S,
        MAX_SEARCHED,
        read_ns,
        most_archived or 0,
        *map(id_word, task_ids),
    )
    return scripted("examine_tasks", script_keys, args, lambda reply: list(_pairs(reply)), idempotent=True)


def examine_lock(queue: str, lock: str, *, repair: bool = False) -> Operation[str | None]:
    """Examine a unique lock; returns the id of its task if the task is gone. A repair deletes such a lock."""
    return scripted(
        "examine_lock",
        (lock,),
        (keys.task_prefix(queue), int(repair)),
        lambda owner: None if owner is None else _text(owner),
        idempotent=True,
    )


def list_parked(queue: str) -> Operation[list[bytes]]:
    """Read ids of tasks parked between this queue and another, those of the oldest moves first, at most 1 000."""
    return Operation("ZRANGE", (keys.moving(queue),), (0, 999), idempotent=True)


def _following(cursor: bytes) -> str | None:
    return None if cursor == b"0" else cursor.decode()


def _pairs(words: Sequence[bytes]) -> Iterator[tuple[str, str]]:
    for task_id, what in zip(words[::2], words[1::2], strict=True):
        yield _text(task_id), what.decode(errors="replace")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")

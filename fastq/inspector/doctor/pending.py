"""All pending ids of a queue, read into memory, since Redis would block while it searches a long list for an id."""

from collections.abc import Callable
from typing import Final, NamedTuple

from fastq.broker.inspect.examine import MAX_SEARCHED, TASKS_A_CALL
from fastq.broker.inspect.tasks import list_ids_newest_first
from fastq.broker.operation import Flow
from fastq.common.states import TaskState

IDS_A_CALL: Final = 5_000
SEARCHED_A_CALL: Final = 100_000
SECOND_NS: Final = 1_000_000_000


class Pending(NamedTuple):
    """The ids that were pending; ``read_ns`` is when reading began, in Unix nanoseconds."""

    ids: set[bytes]
    is_whole: bool
    read_ns: int


def read_pending(queue: str, limit: int | None, now_s: Callable[[], int]) -> Flow[Pending]:
    """Read the ids, newest first, so that no id that remains in the list is missed. Reading stops after about ``limit``
    or ``MAX_SEARCHED`` ids, whichever is more.
    """
    found: set[bytes] = set()
    read_ns = now_s() * SECOND_NS
    start = 0
    while limit is None or start < max(limit, MAX_SEARCHED):
        ids: list[bytes] = yield list_ids_newest_first(queue, TaskState.PENDING, "", start, IDS_A_CALL)
        found.update(ids)
        start += len(ids)
        if len(ids) < IDS_A_CALL:
            return Pending(found, True, read_ns)
    return Pending(found, False, read_ns)


def tasks_a_call(pending: int) -> int:
    """Return how many tasks may be looked up per call, given the number of pending tasks."""
    if pending > MAX_SEARCHED:
        return TASKS_A_CALL  # such a list is not searched
    return max(1, min(TASKS_A_CALL, SEARCHED_A_CALL // max(1, pending)))

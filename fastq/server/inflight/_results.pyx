"""What every result passes on its way to Redis: picked out, put together by the write, taken apart into words.

Compiled, since the main process does this for every task; a result's fields are reached without a look-up by name.
"""

from cpython.tuple cimport PyTuple_GET_ITEM
from fastq.server.inflight._held cimport HeldTask
from libc.stdint cimport int64_t


cdef inline HeldTask task_of(result):
    return <HeldTask><object>PyTuple_GET_ITEM(result, 0)


cdef inline object write_of(result):
    return <object>PyTuple_GET_ITEM(result, 1)


def live(results: list[Result]) -> list[Result]:
    """Return the results of tasks that are still held."""
    return [result for result in results if task_of(result).held]


def by_disposition(results: list[Result]) -> dict[tuple[str, type], list[Result]]:
    """Put results together by queue and disposition, those of the oldest tasks first.

    Children are not equally fast. In this order LREM finds each task at the end of active, while the results of one
    child after the other would have it pass the other's tasks every time.
    """
    cdef HeldTask task
    cdef list group = None
    queue = kind = None
    groups = {}
    for result in results:
        task = task_of(result)
        write = write_of(result)
        if task.queue is not queue or type(write) is not kind:
            queue = task.queue
            kind = type(write)
            group = groups.setdefault((queue, kind), [])
        group.append(result)
    for group in groups.values():
        if not is_in_order(group):
            group.sort(key=seq_of)
    return groups


def seq_of(result) -> int:
    """Return the place of a result's task in the order in which its queue's tasks were taken."""
    return task_of(result).seq


cdef bint is_in_order(list results):
    cdef int64_t last = -1
    cdef int64_t seq
    for result in results:
        seq = task_of(result).seq
        if seq < last:
            return False
        last = seq
    return True


def most_steps(results: list[Result], span) -> int:
    """Return how many elements LREM passes at most to find all of these from the oldest end, one after the other.

    They are to be in order; of the held tasks between them nothing is known but that there are not more than ``span``
    says.
    """
    cdef int64_t first = span.first
    cdef int64_t others = span.held - 1
    cdef int64_t steps = 0
    cdef int64_t at = 0
    for result in results:
        steps += max(0, min(task_of(result).seq - first, others) - at)
        at += 1
    return steps


def dispositions(results: list[Result]) -> list[Disposition]:
    """Return what results are to become."""
    return [write_of(result) for result in results]

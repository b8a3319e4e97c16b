"""Plans the operations that write the ends of tasks: by queue and disposition, each call of bounded size.

LREM takes a task off active and costs 17 ns of Redis' time for each element that it passes. With many long tasks active
that adds up. So each search begins at the end of the list that is nearer by the task's age, and a call has no more
tasks than LREM finds in 2 ms. Done tasks, the usual case, are taken off together and need no such limit.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from fastq.broker.operation import Operation
from fastq.broker.operations.finish import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    Disposition,
    Done,
    FinishOutcome,
    Requeued,
    Terms,
)
from fastq.broker.operations.lease import Owner
from fastq.common.clock import at_unix_ns
from fastq.server.base.lane_queues import LaneQueues
from fastq.server.inflight.tasks import (
    InFlightTask,
    InFlightTasks,
    SeqRange,
    by_disposition,
    dispositions,
    most_steps,
    seq_of,
)

MAX_CALL_TASKS: Final = 500
MAX_CALL_BYTES: Final = 256_000
MAX_CALL_STEPS: Final = 2_000_000 // 17
NEAR_STEPS: Final = 200
"""Below this depth LREM is cheap: 500 tasks take 1.7 ms."""
LOOK_AT_MOST: Final = 16
"""The most tasks in flight, per ended task, that are visited to see whether all ended tasks are near the oldest end.

Mostly they are.
"""


class AckCall(NamedTuple):
    """An operation and the tasks whose ends it writes, in order."""

    operation: Operation[list[FinishOutcome]]
    tasks: list[InFlightTask]


_Parts = Iterator[tuple[int, list[InFlightTask]]]
"""For each call: the end of active at which the search begins, and the tasks."""


def plan_acks(
    ended: list[InFlightTask],
    tasks: InFlightTasks,
    owner: Owner,
    now_ns: int,
    *,
    checks_done: bool,
    lanes: LaneQueues | None = None,
) -> list[AckCall]:
    """Put ends by queue and disposition into operations of bounded size.

    With ``checks_done``, the ends of done tasks, too, are written only while their leases are ours.
    """
    now, done_owner = at_unix_ns(now_ns), owner if checks_done else None
    calls = []
    for (queue, kind), group in by_disposition(ended).items():
        seq_range = tasks.seq_range(queue)
        # The bound of one call also applies to a group that needs several calls, because one of them may need all the
        # steps.
        near = NEAR_STEPS * min(len(group), MAX_CALL_TASKS)
        is_near = most_steps(group, seq_range) <= near or (
            seq_range.size <= LOOK_AT_MOST * len(group) and tasks.steps_to(queue, group) <= near
        )
        by_lane = lanes is not None and (queue in lanes or queue in lanes.unknown)
        for side, part in _parts(kind, group, seq_range, is_near=is_near):
            lane_of = [task.view.group_key for task in part] if by_lane and kind is Done else None
            if lane_of and sum(map(len, lane_of)) > MAX_CALL_BYTES:
                lane_of = None  # the next look at full lanes finds the places free
            terms = Terms(queue, now_ns, now, owner, done_owner, side, lane_of)
            calls.append(AckCall(kind.operation(dispositions(part), terms), part))
    return calls


def _parts(kind: type[Disposition], group: list[InFlightTask], seq_range: SeqRange, *, is_near: bool) -> _Parts:
    """Yield the tasks of each call, with the end of active that is nearer to them."""
    if kind is Requeued:
        # The last first, because each call puts its tasks before those already requeued.
        in_order = sorted(group, key=seq_of)
        yield from ((OLDEST_FIRST, part) for part in reversed(list(_slices(in_order))))
    elif not is_near:
        for side, deep in _by_side(group, seq_range):
            tasks = [task for task, _ in deep]
            parts = _slices(tasks) if kind is Done else _bounded(tasks, [depth for _, depth in deep])
            yield from ((side, part) for part in parts)
    elif kind is Done:
        yield from ((OLDEST_FIRST, part) for part in _slices(group))
    else:
        yield from ((OLDEST_FIRST, part) for part in _bounded(group, [0] * len(group)))


def _slices(group: list[InFlightTask]) -> Iterator[list[InFlightTask]]:
    return (group[at : at + MAX_CALL_TASKS] for at in range(0, len(group), MAX_CALL_TASKS))


_Deep = tuple[InFlightTask, int]
"""A task, and how many elements of active LREM passes before it."""


def _by_side(group: list[InFlightTask], seq_range: SeqRange) -> Iterator[tuple[int, list[_Deep]]]:
    """Assign tasks to the nearer end of active, in the best order for the search.

    The tasks of other servers, which stand between ours in the list, are not counted, because nothing is known about
    them.
    """
    older: list[_Deep] = []
    newer: list[_Deep] = []
    others = len(group) - 1
    for at, task in enumerate(sorted(group, key=seq_of)):
        # Less the tasks of the group that are nearer to that end: LREM has removed them by then.
        before = max(0, min(task.seq - seq_range.first, seq_range.size - 1) - at)
        after = max(0, min(seq_range.last - task.seq, seq_range.size - 1) - (others - at))
        if before <= after:
            older.append((task, before))
        else:
            newer.append((task, after))
    yield OLDEST_FIRST, older
    yield NEWEST_FIRST, newer[::-1]


def _bounded(tasks: list[InFlightTask], depths: list[int]) -> Iterator[list[InFlightTask]]:
    sizes = [end.size() for end in dispositions(tasks)]
    begin = size = steps = 0
    if len(tasks) > MAX_CALL_TASKS or sum(sizes) > MAX_CALL_BYTES or sum(depths) > MAX_CALL_STEPS:
        for at, (its_size, depth) in enumerate(zip(sizes, depths, strict=True)):
            size += its_size
            steps += depth
            if at > begin and (at >= begin + MAX_CALL_TASKS or size > MAX_CALL_BYTES or steps > MAX_CALL_STEPS):
                yield tasks[begin:at]
                begin, size, steps = at, its_size, depth
    if tasks:
        yield tasks[begin:]

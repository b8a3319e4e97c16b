"""From results to the operations that write them: grouped by queue and outcome, each call bounded.

A task is taken off active by LREM, which costs 17 ns of Redis' time for each element that it passes. With many long
tasks active that adds up, so it looks from the end that is nearer by the task's age, and a call takes no more tasks
than it finds in 2 ms. Done tasks, of which there are most, are taken off together and need no such limit.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from fastq.broker.operation import Operation
from fastq.broker.operations.finish import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    Disposition,
    Done,
    Finish,
    Requeued,
    Terms,
)
from fastq.broker.operations.lease import Owner
from fastq.info import at_unix_ns
from fastq.server.inflight._results import by_disposition, dispositions, most_steps, seq_of
from fastq.server.inflight.held import HeldTasks, Span
from fastq.server.inflight.result import Result

__all__ = ["Batch", "Result", "Writer"]

MAX_CALL_TASKS: Final = 500
MAX_CALL_BYTES: Final = 256_000
MAX_CALL_STEPS: Final = 2_000_000 // 17
NEAR_STEPS: Final = 200
"""What so many elements cost, each, is not worth a thought: 500 tasks take 1.7 ms."""
LOOK_AT_MOST: Final = 16
"""Held tasks looked at for each result, to know whether one call finds them all from the oldest end: the usual case."""


class Batch(NamedTuple):
    """Pair an operation with the results it writes, in order."""

    operation: Operation[list[Finish]]
    results: list[Result]


class Writer:
    """Turn results into operations; with ``checks_done`` work that was done, too, is written only while it is ours."""

    def __init__(self, held: HeldTasks, owner: Owner, now_ns: int, *, checks_done: bool) -> None:
        self._held = held
        self._owner = owner
        self._now_ns = now_ns
        self._checks_done = checks_done

    def batches(self, results: list[Result]) -> list[Batch]:
        """Group results by queue and disposition into operations of bounded size."""
        now = at_unix_ns(self._now_ns)
        return [
            Batch(
                kind.operation(
                    dispositions(part), Terms(queue, self._now_ns, now, self._owner, self._checks_done, side)
                ),
                part,
            )
            for (queue, kind), group in by_disposition(results).items()
            for side, part in self._parts(queue, kind, group)
        ]

    def _parts(self, queue: str, kind: type[Disposition], group: list[Result]) -> Iterator[tuple[int, list[Result]]]:
        span = self._held.span(queue)
        # Of a larger group one call might have all the steps.
        near = NEAR_STEPS * min(len(group), MAX_CALL_TASKS)
        is_near = most_steps(group, span) <= near or (
            span.held <= LOOK_AT_MOST * len(group) and self._held.steps_to(queue, group) <= near
        )
        return _parts(kind, group, span, is_near=is_near)


def _parts(kind: type[Disposition], group: list[Result], span: Span, *, is_near: bool) -> Iterator[tuple[int, list[Result]]]:
    """Give results in the calls that write them, with the end of active that is nearer to each."""
    if kind is Requeued:
        # The last first: each call puts its tasks before the ones that were given back already.
        in_order = sorted(group, key=seq_of)
        yield from ((OLDEST_FIRST, part) for part in reversed(list(_slices(in_order))))
    elif not is_near:
        for side, deep in _by_side(group, span):
            parts = _slices([result for result, _ in deep]) if kind is Done else _bounded(deep)
            yield from ((side, part) for part in parts)
    elif kind is Done:
        yield from ((OLDEST_FIRST, part) for part in _slices(group))
    else:
        yield from ((OLDEST_FIRST, part) for part in _bounded([(result, 0) for result in group]))


def _slices(group: list[Result]) -> Iterator[list[Result]]:
    return (group[at : at + MAX_CALL_TASKS] for at in range(0, len(group), MAX_CALL_TASKS))


_Deep = tuple[Result, int]
"""A result, and how many elements of active LREM passes before its task."""


def _by_side(group: list[Result], span: Span) -> Iterator[tuple[int, list[_Deep]]]:
    """Give results to the end of active that is nearer, in the order in which they are best looked for.

    Of the tasks of other servers nothing is known; theirs lie among ours.
    """
    older: list[_Deep] = []
    newer: list[_Deep] = []
    others = len(group) - 1
    for at, result in enumerate(sorted(group, key=seq_of)):
        # Those of the group that are nearer to the end are gone by then.
        before = max(0, min(result.task.seq - span.first, span.held - 1) - at)
        after = max(0, min(span.last - result.task.seq, span.held - 1) - (others - at))
        if before <= after:
            older.append((result, before))
        else:
            newer.append((result, after))
    yield OLDEST_FIRST, older
    yield NEWEST_FIRST, newer[::-1]


def _bounded(deep: list[_Deep]) -> Iterator[list[Result]]:
    part: list[Result] = []
    size = steps = 0
    for result, depth in deep:
        weight = result.write.size()
        full = len(part) >= MAX_CALL_TASKS or size + weight > MAX_CALL_BYTES or steps + depth > MAX_CALL_STEPS
        if part and full:
            yield part
            part = []
            size = steps = 0
        part.append(result)
        size += weight
        steps += depth
    if part:
        yield part

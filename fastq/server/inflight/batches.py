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
    Completed,
    Done,
    Finish,
    Guard,
    Retried,
    archive,
    complete,
    finish_done,
    requeue,
    retry,
)
from fastq.broker.operations.lease import Owner
from fastq.info import at_unix_ns
from fastq.server.inflight._results import by_write, done_words, most_steps, seq_of
from fastq.server.inflight.held import HeldTasks, Span
from fastq.server.inflight.outcomes import Archived, Requeued, Write
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
    """Turn results into operations; ``done_guard`` is for work that was done, failed tasks are always guarded."""

    def __init__(self, held: HeldTasks, owner: Owner, done_guard: Guard, now_ns: int) -> None:
        self._held = held
        self._guard = Guard(owner)
        self._done_owner = done_guard.owner
        self._now_ns = now_ns
        self._now = at_unix_ns(now_ns)

    def batches(self, results: list[Result]) -> list[Batch]:
        """Group results by queue and outcome into operations of bounded size."""
        return [
            Batch(self._operation(queue, kind, side, part), part)
            for (queue, kind), group in by_write(results).items()
            for side, part in self._parts(queue, kind, group)
        ]

    def _parts(self, queue: str, kind: type[Write], group: list[Result]) -> Iterator[tuple[int, list[Result]]]:
        span = self._held.span(queue)
        # Of a larger group one call might have all the steps.
        near = NEAR_STEPS * min(len(group), MAX_CALL_TASKS)
        is_near = most_steps(group, span) <= near or (
            span.held <= LOOK_AT_MOST * len(group) and self._held.steps_to(queue, group) <= near
        )
        return _parts(kind, group, span, is_near=is_near)

    def _operation(self, queue: str, kind: type[Write], side: int, results: list[Result]) -> Operation[list[Finish]]:
        if kind is Done:
            ids, locks = done_words(results)
            return finish_done(queue, ids, locks, self._now, self._done_owner, side)
        writes = [result.write for result in results]
        if kind is Completed:
            return complete(queue, [w for w in writes if isinstance(w, Completed)], self._now, self._done_owner, side)
        if kind is Retried:
            return retry(queue, [w for w in writes if isinstance(w, Retried)], self._now, self._guard, side)
        if kind is Archived:
            archived = [(w.id, w.message) for w in writes if isinstance(w, Archived)]
            return archive(queue, archived, self._now, self._guard, side)
        return requeue(queue, [w.id for w in writes], self._now_ns, self._guard)


def _parts(kind: type[Write], group: list[Result], span: Span, *, is_near: bool) -> Iterator[tuple[int, list[Result]]]:
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
        weight = _weight(result.write)
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


def _weight(write: Write) -> int:
    """Return about how many bytes of a call a write takes."""
    match write:
        case Completed():
            return 200 + len(write.message) + len(write.result or b"")
        case Retried() | Archived():
            return 200 + len(write.message)
    return 100

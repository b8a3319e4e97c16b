"""Further operations with the ends of marked tasks: the next run of a task's key, and the early release of its lock."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from fastq.broker.operation import Operation
from fastq.broker.operations.finish import Archived, release_lock
from fastq.broker.operations.keyed import PUT_AGAIN_AT_MOST, put_again
from fastq.errors import BrokerError
from fastq.server.base.commands import Commands
from fastq.server.base.outage import is_shared
from fastq.server.inflight.questions import Questions
from fastq.server.inflight.tasks import InFlightTask, marked
from fastq.wire import keys
from fastq.wire.marks import EARLY_UNLOCK, Mark

KEYED: Final = Mark.KEYED.value
AT_START: Final = Mark.UNLOCK_AT_START.value

_log = logging.getLogger("fastq.acker")


def behind_ends(tasks: list[InFlightTask], now_ns: int) -> list[Operation[Any]]:
    """Return the operations that go behind the ends of tasks, in the same round trip."""
    by_queue = defaultdict[str, list[str]](list)
    for task in marked(tasks, KEYED):
        by_queue[task.queue].append(task.id)
    operations: list[Operation[Any]] = [
        put_again(queue, ids[at : at + PUT_AGAIN_AT_MOST], now_ns)
        for queue, ids in by_queue.items()
        for at in range(0, len(ids), PUT_AGAIN_AT_MOST)
    ]
    for task in marked(tasks, EARLY_UNLOCK):
        if isinstance(task.disposition, Archived) and has_lock(task.queue, task.view.unique_key):
            operations.append(release_lock(task.view.unique_key, task.id))
    return operations


def tell_refusals(results: Sequence[Any]) -> None:
    """Log the refused operations among those sent behind ends; an outage is logged for the ends themselves."""
    for error in results:
        if isinstance(error, BrokerError) and not is_shared(error):
            _log.warning("another run of a key, or the release of a lock, behind the end of a task: %s", error)


def has_lock(queue: str, lock: str) -> bool:
    """Return whether the key that a message names as its lock may be a lock; a message may name any key."""
    return lock.startswith(keys.queue_prefix(queue))


def without_locked(
    commands: Commands, questions: Questions, tasks: list[InFlightTask], begin: Callable[[InFlightTask], None]
) -> list[InFlightTask]:
    """Return the tasks that may begin at once; let the others begin once Redis has released their unique locks.

    The others stay in flight until then. A lock that Redis fails to release stays until its task ends.
    """
    locked = [
        task
        for task in marked(tasks, AT_START)
        if has_lock(task.queue, task.view.unique_key) and task.submission is not None and task.disposition is None
    ]
    if not locked:
        return tasks
    releasing = commands.begin([release_lock(task.view.unique_key, task.id) for task in locked])

    async def begin_one(task: InFlightTask) -> None:
        try:
            await asyncio.wait([releasing])
        finally:
            if task.in_flight and not task.ended:
                begin(task)

    for task in locked:
        questions.ask(task, begin_one(task))
    waiting = set(locked)
    return [task for task in tasks if task not in waiting]

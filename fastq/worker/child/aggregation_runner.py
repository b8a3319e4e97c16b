"""The runner of the app's group aggregator: a group and its tasks go in, the task that replaces them comes out.

The server keeps a pool of one child for it, which loads it by name. A request is a line of JSON and the
messages after it (``worker/shared/requests.py``). An answer is a line of JSON and, if there is one, the new task's
message.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import orjson

from fastq.enqueueing.producer import compose
from fastq.errors import InvalidMessageError
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.runner import Answer, RunnerMisuseError, TaskContext
from fastq.running import GroupedTask
from fastq.task import Task
from fastq.wire.codec import decode_task_message
from fastq.wire.messages import TaskMessage
from fastq.worker.child.hooks import ChildHooks, child_hooks_of, resolve_aggregator
from fastq.worker.shared.names import AppNameError
from fastq.worker.shared.report import describe_error, trace_of

AGGREGATOR_ERRORS: Final = (Exception, SystemExit)


GroupAggregator: TypeAlias = Callable[[str, Sequence[GroupedTask]], Task]
"""A function of a group's name and its tasks, oldest first, that returns the task to enqueue in their stead."""


def load(argument: str) -> "AggregationRunner":
    """Import the aggregator that the JSON argument names, and the app for its child hooks."""
    aggregator, app = orjson.loads(argument)
    try:
        return AggregationRunner(resolve_aggregator(aggregator), child_hooks_of(app))
    except AppNameError as error:
        raise RunnerMisuseError(str(error)) from error


class AggregationRunner:
    """The runner of the aggregator, one group at a time."""

    has_plain = True
    has_async = False
    description = ""

    def __init__(self, aggregator: GroupAggregator, child_hooks: ChildHooks = ((), ())) -> None:
        self._aggregator = aggregator
        self.child_start, self.child_stop = child_hooks

    def run(self, data: bytes, context: TaskContext) -> Answer:
        """Aggregate a group.

        The answer is FAILED, with a text, if the aggregator raised or returned an invalid object.
        """
        head, _, body = data.partition(b"\n")
        request: dict[str, Any] = orjson.loads(head)
        messages, reasons = _decoded(memoryview(body), request["sizes"])
        if reasons:
            return EventKind.RESULT, orjson.dumps({"unreadable": reasons})
        try:
            return EventKind.RESULT, self.combine(request["queue"], request["group"], messages)
        except AGGREGATOR_ERRORS as error:
            if context.is_forked:
                raise
            return EventKind.FAILED, orjson.dumps((describe_error(error), trace_of(error)))

    def run_async(self, data: bytes, context: TaskContext) -> Awaitable[Answer]:
        """Raise an error: the aggregator is a plain function."""
        raise NotImplementedError("the aggregator is a plain function")

    def combine(self, queue: str, group: str, messages: Sequence[TaskMessage]) -> bytes:
        """Call the aggregator, and return the answer that ``aggregation_answer`` decodes; its errors propagate."""
        task: object = self._aggregator(group, [GroupedTask(message) for message in messages])
        if not isinstance(task, Task):
            raise TypeError(f"the group aggregator must return a fastq.Task, not {task!r:.200}")
        # As in asynq, the new task goes to the queue of the combined tasks, whatever queue it names.
        batch, _ = compose(task, {"queue": queue}, time.time_ns())
        (new,) = batch.tasks
        if batch.keyed:
            raise ValueError(f"key={new.id!r}: the task that replaces a group takes no key, but may have a task_id")
        if batch.in_lane:  # in a queue without limits it would be a group, which comes here again
            raise ValueError(f"lane={new.group!r}: the task that replaces a group takes no lane")
        answer = {
            "task": {name: value for name, value in new._asdict().items() if name != "message"},
            "state": str(batch.state),
            "now_ns": batch.now_ns,
            "locks": {str(index): part.unique_key for index, part in enumerate(messages) if part.unique_key},
        }
        return orjson.dumps(answer) + b"\n" + new.message


def _decoded(body: memoryview, sizes: Sequence[int]) -> tuple[list[TaskMessage], dict[str, str]]:
    messages: list[TaskMessage] = []
    reasons: dict[str, str] = {}
    start = 0
    for index, size in enumerate(sizes):
        try:
            messages.append(decode_task_message(body[start : start + size]))
        except InvalidMessageError as error:
            reasons[str(index)] = str(error)
        start += size
    return messages, reasons

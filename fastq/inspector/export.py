"""The export of tasks as lines of JSON, exact to the byte; ``task_lines`` defines a line."""

from collections.abc import Iterable, Sequence
from typing import Final

from fastq.broker.operations.walk import Source, Walk
from fastq.common.clock import at_unix_ns
from fastq.common.states import TaskState
from fastq.inspector.checks import check_queue, check_states
from fastq.inspector.driver import Driver, Given, Stream, stream
from fastq.inspector.filters import TaskFilter
from fastq.inspector.progress import OnProgress, Progress, sizes_of
from fastq.inspector.queues import require_queue
from fastq.inspector.search import sources_of
from fastq.inspector.task_lines import lines_of
from fastq.options import check_text

# States are exported in this order, because tasks mostly change to a later state of the list. So a task whose state
# changes during the export comes twice rather than never.
EXPORTED: Final = (
    TaskState.SCHEDULED,
    TaskState.AGGREGATING,
    TaskState.PENDING,
    TaskState.ACTIVE,
    TaskState.RETRY,
    TaskState.COMPLETED,
    TaskState.ARCHIVED,
)


class ExportMethods(Driver):
    """The inspector's export."""

    @stream
    def export_tasks(
        self,
        queue: str,
        *,
        states: Iterable[TaskState | str] = EXPORTED,
        group: str | None = None,
        where: TaskFilter | None = None,
        progress: OnProgress | None = None,
    ) -> Stream[str]:
        """Yield tasks as lines of JSON for ``import_tasks``, exact to the byte, with readable fields in addition.

        200 tasks are read at a time, each time atomically. A task that changes its state meanwhile may come twice or
        not at all; if no task changes, each comes exactly once. ``group`` is for aggregating tasks. ``progress`` is
        called before each page; its ``done`` counts the lines yielded so far.
        """
        known = check_states(states, EXPORTED)
        if group is not None and known != [TaskState.AGGREGATING]:
            raise ValueError(f"group={check_text(group, 'group')!r} goes with the state aggregating only")
        where = where or TaskFilter()
        where.check(known)
        return self._export(check_queue(queue), known, group, where, progress or (lambda _: None))

    def _export(
        self, queue: str, states: Sequence[TaskState], group: str | None, where: TaskFilter, progress: OnProgress
    ) -> Stream[str]:
        yield from require_queue(queue)
        sources: list[Source] = yield from sources_of(queue, states, group)
        now = Progress((yield from sizes_of(*sources)))
        for source in sources:
            walk = Walk(source, with_locks=True)
            while (page := (yield walk.page())).tasks:
                walk.passed(page, page.tasks)
                progress(now)
                found = yield from lines_of(source, page, at_unix_ns(self._now_ns()), where.wants)
                now.done += len(found)
                yield Given([line for _, line in found])

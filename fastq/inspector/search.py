"""The search through all tasks of a state, some hundreds at a time."""

from collections.abc import Sequence
from typing import Final

from fastq.broker.inspect.queues import group_sizes
from fastq.broker.inspect.tasks import container
from fastq.broker.operation import Flow
from fastq.broker.operations.walk import Source, Walk, WalkedTask, WalkPage
from fastq.common.clock import at_unix_ns
from fastq.common.states import TaskState
from fastq.info import TaskInfo
from fastq.inspector.checks import check_queue, check_state
from fastq.inspector.driver import Driver, Given, Stream, stream
from fastq.inspector.filters import TaskFilter
from fastq.inspector.progress import OnProgress, Progress, sizes_of
from fastq.inspector.queues import require_queue
from fastq.inspector.task_lines import describe_listed
from fastq.inspector.tasks import Listing

ACTIVE_A_PAGE: Final = 200


class SearchMethods(Driver):
    """The inspector's search among the tasks of a state."""

    @stream
    def find_tasks(
        self,
        queue: str,
        state: TaskState | str,
        where: TaskFilter,
        *,
        group: str | None = None,
        progress: OnProgress | None = None,
    ) -> Stream[TaskInfo]:
        """Yield the tasks in a state that match a filter, the oldest first; at most one page is read ahead.
        ``progress`` is called after each page, with the number of tasks read so far. A task whose position changes
        meanwhile may come twice.
        """
        known, name = check_state(state, group)
        where.check([known])
        return self._find(_source(check_queue(queue), known, name), where, progress)

    def _find(self, source: Source, where: TaskFilter, progress: OnProgress | None) -> Stream[TaskInfo]:
        yield from require_queue(source.queue)
        now = Progress((yield from sizes_of(source)))

        def looked_at(infos: Sequence[TaskInfo], count: int) -> Given[TaskInfo]:
            now.done += count
            if progress is not None:
                progress(now)
            return Given([info for info in infos if where.wants(info)])

        if source.state is TaskState.ACTIVE:  # active tasks are few, and their leases are stored elsewhere
            listing = Listing(source.queue, source.state, "")
            ids = yield from listing.ids()
            while now.done < len(ids):
                some = ids[now.done : now.done + ACTIVE_A_PAGE]
                yield looked_at(*(yield from listing.read_some(some, self._now_ns())))
            return
        walk = Walk(source)
        while (page := (yield walk.page())).tasks:
            walk.passed(page, page.tasks)
            yield looked_at([info for _, info in described(source, page, self._now_ns())], len(page.tasks))


def described(source: Source, page: WalkPage, now_ns: int) -> list[tuple[WalkedTask, TaskInfo]]:
    """Return the tasks of a page that are really in the state, with their descriptions."""
    now = at_unix_ns(now_ns)
    found = ((task, describe_listed(source.queue, source.state, task, now)) for task in page.tasks)
    return [(task, info) for task, info in found if info is not None]


def sources_of(queue: str, states: Sequence[TaskState], group: str | None = None) -> Flow[list[Source]]:
    """Return the lists and sets of tasks in some states; for aggregating, all groups or the given group."""
    sources: list[Source] = []
    for state in states:
        names = [""]
        if state is TaskState.AGGREGATING:
            names = [group] if group is not None else sorted((yield from group_sizes(queue)))
        sources += [_source(queue, state, name) for name in names]
    return sources


def _source(queue: str, state: TaskState, group: str) -> Source:
    return Source(queue, container(queue, state, group), state, group)

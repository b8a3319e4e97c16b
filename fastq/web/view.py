"""The inspector as one user sees it: without the queues of others, and without what is redacted."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from fastq.errors import QueueNotFoundError
from fastq.info import TaskInfo
from fastq.inspector import AsyncInspector, QueueInfo, ServerInfo
from fastq.states import TaskState
from fastq.web.redaction import Redaction
from fastq.wire.messages import SchedulerEntry, WorkerInfo

__all__ = ["ALL_QUEUES", "View", "matches", "queue_of"]

ALL_QUEUES: Final = ("*",)
_QUEUE_OPTION: Final = re.compile(r'Queue\((".*")\)', re.DOTALL)


def matches(queue: str, globs: Sequence[str]) -> bool:
    """Return whether a queue's name matches one of some patterns."""
    return any(glob == "*" or fnmatchcase(queue, glob) for glob in globs)


@dataclass(frozen=True, slots=True)
class View:
    """Everything that is read for a user; ``globs`` are sets of patterns, and a queue is seen if it matches each."""

    inspector: AsyncInspector
    globs: tuple[tuple[str, ...], ...]
    redaction: Redaction

    @property
    def is_of_all(self) -> bool:
        """Whether all queues are seen."""
        return all("*" in globs for globs in self.globs)

    def sees(self, queue: str) -> bool:
        """Return whether a queue is seen."""
        return all(matches(queue, globs) for globs in self.globs)

    def require(self, queue: str) -> None:
        """Raise ``QueueNotFoundError`` unless a queue is seen."""
        if not self.sees(queue):
            raise QueueNotFoundError(queue)

    async def queues(self) -> list[str]:
        """List the queues, but not those whose name is no Unicode text: no request can name them."""
        return [queue for queue in await self.inspector.queues() if self.sees(queue) and _is_text(queue)]

    async def queue_info(self, queue: str) -> QueueInfo:
        """Describe a queue; the tasks in very many groups are estimated."""
        self.require(queue)
        return await self.inspector.get_queue_info(queue, estimate=True)

    async def queue_infos(self) -> list[QueueInfo]:
        """Describe the queues, by name; one that is deleted meanwhile is left out."""
        return await self.inspector.get_queue_infos(await self.queues(), estimate=True)

    async def servers(self) -> list[ServerInfo]:
        """List the servers of these queues, with their tasks in them."""
        found = []
        for server in await self.inspector.servers():
            queues = {queue: weight for queue, weight in server.queues.items() if self.sees(queue)}
            if queues or not server.queues:
                workers = tuple(self._worker(worker) for worker in server.active_workers if self.sees(worker.queue))
                seen = {worker.task_id for worker in workers}
                children = tuple(
                    replace(child, task_ids=tuple(each for each in child.task_ids if each in seen))
                    for child in server.children
                )
                found.append(replace(server, queues=queues, active_workers=workers, children=children))
        return found

    def _worker(self, worker: WorkerInfo) -> WorkerInfo:
        return replace(worker, task_payload=self.redaction.data(worker.task_payload))

    async def scheduler_entries(self) -> list[SchedulerEntry]:
        """List the periodic tasks of these queues."""
        return [
            replace(entry, task_payload=self.redaction.data(entry.task_payload))
            for entry in await self.inspector.scheduler_entries()
            if self.is_of_all or self.sees(queue_of(entry))
        ]

    async def task(self, queue: str, task_id: str) -> TaskInfo:
        """Describe a task."""
        self.require(queue)
        return self.redaction.task(await self.inspector.get_task_info(queue, task_id))

    async def tasks(self, queue: str, state: TaskState, **more: Any) -> list[TaskInfo]:
        """Read a page of tasks; the further arguments are those of ``list_tasks``."""
        self.require(queue)
        return [self.redaction.task(info) for info in await self.inspector.list_tasks(queue, state, **more)]


def _is_text(name: str) -> bool:
    return not any("\udc80" <= each <= "\udcff" for each in name)


def queue_of(entry: SchedulerEntry) -> str:
    """Return the queue of a periodic task, which is among its options as text; empty if that cannot be read."""
    for option in reversed(entry.enqueue_options):  # the last one counts
        if match := _QUEUE_OPTION.fullmatch(option):
            try:
                return str(json.loads(match[1]))
            except ValueError:
                return ""
    return "default"

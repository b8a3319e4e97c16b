"""AsyncInspector: what Inspector does, on an asyncio loop."""

from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import Any, Self

from fastq.broker.transport.open import AsyncRedis, open_async_broker
from fastq.clock import SystemClock
from fastq.info import TaskInfo
from fastq.inspector import actions, bulk, processes, queues, tasks
from fastq.inspector.checks import check_page
from fastq.inspector.named import DEFAULT_PAGE_SIZE, NamedByState
from fastq.inspector.records import ClusterNode, DailyStats, GroupInfo, QueueInfo, ServerInfo
from fastq.inspector.tasks import Listing
from fastq.states import TaskState
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry

__all__ = ["AsyncInspector"]


class AsyncInspector(NamedByState[Coroutine[Any, Any, list[TaskInfo]], Coroutine[Any, Any, int]]):
    """Look at what is in Redis and act on it from an asyncio program; as ``Inspector``, with every method awaitable.

    ``redis`` is as for ``AsyncClient``. A call that is canceled may have been carried out, wholly or in part.
    """

    def __init__(self, redis: str | AsyncRedis | None = None) -> None:
        self._broker = open_async_broker(redis)
        self._drive = self._broker.drive
        self._now_ns = SystemClock().unix_ns

    # Queues

    async def queues(self) -> list[str]:
        """List the names of all queues."""
        return await self._drive(queues.queues())

    async def get_queue_info(self, queue: str) -> QueueInfo:
        """Describe a queue; see ``Inspector.get_queue_info``."""
        return await self._drive(queues.get_queue_info(queue, self._now_ns()))

    async def history(self, queue: str, days: int) -> list[DailyStats]:
        """Read the counters of the last UTC days; see ``Inspector.history``."""
        return await self._drive(queues.history(queue, days, self._now_ns()))

    async def groups(self, queue: str) -> list[GroupInfo]:
        """List a queue's groups; see ``Inspector.groups``."""
        return await self._drive(queues.groups(queue))

    async def pause_queue(self, queue: str) -> None:
        """Let servers take nothing more from a queue; see ``Inspector.pause_queue``."""
        await self._drive(queues.pause(queue, self._now_ns()))

    async def unpause_queue(self, queue: str) -> None:
        """Let servers take tasks from a queue again; see ``Inspector.unpause_queue``."""
        await self._drive(queues.unpause(queue))

    async def delete_queue(self, queue: str, *, force: bool = False) -> None:
        """Delete a queue with all its keys; see ``Inspector.delete_queue``."""
        await self._drive(bulk.delete_queue(queue, self._now_ns(), force=force))

    # Tasks

    async def get_task_info(self, queue: str, task_id: str) -> TaskInfo:
        """Describe a task; see ``Inspector.get_task_info``."""
        return await self._drive(tasks.get_task_info(queue, task_id, self._now_ns()))

    async def list_tasks(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str | None = None,
        page: int = 1,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> list[TaskInfo]:
        """Read a page of the tasks in a state; see ``Inspector.list_tasks``."""
        return await self._drive(Listing.of(queue, state, group).page(page, page_size, self._now_ns()))

    def iter_tasks(
        self, queue: str, state: TaskState | str, *, group: str | None = None, page_size: int = 100
    ) -> AsyncIterator[TaskInfo]:
        """Go through all tasks in a state with ``async for``; see ``Inspector.iter_tasks``."""
        listing = Listing.of(queue, state, group)
        check_page(1, page_size)
        return self._iterate(listing, page_size)

    async def _iterate(self, listing: Listing, page_size: int) -> AsyncIterator[TaskInfo]:
        for ids in listing.pieces(await self._drive(listing.ids()), page_size):
            for info in await self._drive(listing.read(ids, self._now_ns())):
                yield info

    async def delete_task(self, queue: str, task_id: str) -> None:
        """Delete a task; see ``Inspector.delete_task``."""
        await self._drive(actions.delete(queue, task_id))

    async def run_task(self, queue: str, task_id: str) -> None:
        """Move a task to pending; see ``Inspector.run_task``."""
        await self._drive(actions.run(queue, task_id, self._now_ns()))

    async def archive_task(self, queue: str, task_id: str) -> None:
        """Move a task to the archive; see ``Inspector.archive_task``."""
        await self._drive(actions.archive(queue, task_id, self._now_ns()))

    async def delete_all_tasks(self, queue: str, state: TaskState | str, *, group: str | None = None) -> int:
        """Delete all tasks in a state; see ``Inspector.delete_all_tasks``."""
        return await self._drive(bulk.delete_all_tasks(queue, state, group))

    async def run_all_tasks(self, queue: str, state: TaskState | str, *, group: str | None = None) -> int:
        """Move all tasks in a state to pending; see ``Inspector.run_all_tasks``."""
        return await self._drive(bulk.run_all_tasks(queue, state, group, self._now_ns()))

    async def archive_all_tasks(self, queue: str, state: TaskState | str, *, group: str | None = None) -> int:
        """Move all tasks in a state to the archive; see ``Inspector.archive_all_tasks``."""
        return await self._drive(bulk.archive_all_tasks(queue, state, group, self._now_ns()))

    async def update_task_payload(self, queue: str, task_id: str, payload: Any) -> None:
        """Give a scheduled task another payload; see ``Inspector.update_task_payload``."""
        await self._drive(actions.update_task_payload(queue, task_id, payload))

    async def cancel_processing(self, task_id: str, outcome: str | None = None, *, queue: str | None = None) -> None:
        """Ask the server that runs a task to stop it; see ``Inspector.cancel_processing``."""
        await self._drive(actions.cancel(task_id, outcome, queue))

    # Servers, schedulers, cluster

    async def servers(self) -> list[ServerInfo]:
        """List the servers that are running; see ``Inspector.servers``."""
        return await self._drive(processes.servers(self._now_ns()))

    async def scheduler_entries(self) -> list[SchedulerEntry]:
        """List the periodic tasks of all running schedulers."""
        return await self._drive(processes.scheduler_entries(self._now_ns()))

    async def list_scheduler_enqueue_events(
        self, entry_id: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE
    ) -> list[SchedulerEnqueueEvent]:
        """Read a page of when an entry's task was enqueued; see ``Inspector.list_scheduler_enqueue_events``."""
        return await self._drive(processes.list_scheduler_enqueue_events(entry_id, page, page_size))

    async def cluster_key_slot(self, queue: str) -> int:
        """Return the slot of a Redis Cluster in which all keys of a queue are."""
        return processes.cluster_key_slot(queue)

    async def cluster_nodes(self, queue: str) -> list[ClusterNode]:
        """List the nodes of a Redis Cluster that have a queue's keys, the master first."""
        return await self._drive(processes.cluster_nodes(queue))

    async def close(self) -> None:
        """Close the connections of the running loop, unless they were given; may be called twice."""
        await self._broker.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

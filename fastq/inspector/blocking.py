"""Inspector: looks at what is in Redis and acts on it, with blocking sockets."""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from fastq.broker.transport.open import BlockingRedis, open_broker
from fastq.clock import SystemClock
from fastq.info import TaskInfo
from fastq.inspector import actions, bulk, processes, queues, tasks
from fastq.inspector.checks import check_page
from fastq.inspector.named import DEFAULT_PAGE_SIZE, NamedByState
from fastq.inspector.records import ClusterNode, DailyStats, GroupInfo, QueueInfo, ServerInfo
from fastq.inspector.tasks import Listing
from fastq.states import TaskState
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry

__all__ = ["Inspector"]


class Inspector(NamedByState[list[TaskInfo], int]):
    """Look at queues, tasks, servers and schedulers, and act on what is there; Go's and fastq's alike.

    ``redis`` is as for ``Client``. Safe to share among threads. Nothing keeps Redis busy for long, however many tasks
    there are: big work is done in pieces, so it is not atomic. A queue that is not listed in ``asynq:queues`` is a
    ``QueueNotFoundError``; bad input a ``ValueError`` or ``TypeError``, before anything is sent.
    """

    def __init__(self, redis: str | BlockingRedis | None = None) -> None:
        self._broker = open_broker(redis)
        self._drive = self._broker.drive
        self._now_ns = SystemClock().unix_ns

    # Queues

    def queues(self) -> list[str]:
        """List the names of all queues."""
        return self._drive(queues.queues())

    def get_queue_info(self, queue: str) -> QueueInfo:
        """Describe a queue: how many tasks in which states, its counters, latency, memory."""
        return self._drive(queues.get_queue_info(queue, self._now_ns()))

    def history(self, queue: str, days: int) -> list[DailyStats]:
        """Read how many tasks were processed and failed on each of the last UTC days, today first.

        Redis keeps 90 days; before them all are 0.
        """
        return self._drive(queues.history(queue, days, self._now_ns()))

    def groups(self, queue: str) -> list[GroupInfo]:
        """List a queue's groups and how many tasks wait in each; none if there is no such queue, as asynq does."""
        return self._drive(queues.groups(queue))

    def pause_queue(self, queue: str) -> None:
        """Let servers take nothing more from a queue; ``QueueStateError`` if it is paused already.

        As in asynq a queue may be paused before there is one.
        """
        self._drive(queues.pause(queue, self._now_ns()))

    def unpause_queue(self, queue: str) -> None:
        """Let servers take tasks from a queue again; ``QueueStateError`` if it is not paused."""
        self._drive(queues.unpause(queue))

    def delete_queue(self, queue: str, *, force: bool = False) -> None:
        """Delete a queue with all its keys; ``QueueNotEmptyError`` if it has tasks, of whatever state.

        With ``force`` its tasks are deleted, too, but for active ones, which are in the way. It is paused meanwhile.
        All keys of Redis are gone through, in pieces, for what was left over by others. What is enqueued into it in
        that time makes it a queue anew; with ``force`` it may be deleted. Where Redis fails on the way the queue stays
        paused, and what is left of it goes when this is called again. Clients of other processes list a queue
        every 10 s while they enqueue: until then one that they use again is not listed.
        """
        self._drive(bulk.delete_queue(queue, self._now_ns(), force=force))

    # Tasks

    def get_task_info(self, queue: str, task_id: str) -> TaskInfo:
        """Describe a task; ``TaskNotFoundError`` if the queue has none with this id."""
        return self._drive(tasks.get_task_info(queue, task_id, self._now_ns()))

    def list_tasks(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str | None = None,
        page: int = 1,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> list[TaskInfo]:
        """Read a page of the tasks in a state, ``page`` from 1 on; empty past the end.

        Oldest first: the longest waiting of pending and active, the lowest time of the others. ``group`` is for
        aggregating. A page is shorter than its size where tasks leave the state while it is read.
        """
        return self._drive(Listing.of(queue, state, group).page(page, page_size, self._now_ns()))

    def iter_tasks(
        self, queue: str, state: TaskState | str, *, group: str | None = None, page_size: int = 100
    ) -> Iterator[TaskInfo]:
        """Go through all tasks in a state, ``page_size`` a round trip, in the order of ``list_tasks``.

        The ids are read at the beginning, about 100 bytes each. A task comes once at most, and only if it is still in
        the state when its turn comes; so tasks may be deleted or moved on the way. Those that come later are left out.
        """
        listing = Listing.of(queue, state, group)
        check_page(1, page_size)
        return self._iterate(listing, page_size)

    def _iterate(self, listing: Listing, page_size: int) -> Iterator[TaskInfo]:
        for ids in listing.pieces(self._drive(listing.ids()), page_size):
            yield from self._drive(listing.read(ids, self._now_ns()))

    def delete_task(self, queue: str, task_id: str) -> None:
        """Delete a task and release its unique lock; ``TaskStateError`` while a server works on it."""
        self._drive(actions.delete(queue, task_id))

    def run_task(self, queue: str, task_id: str) -> None:
        """Move a task to pending, behind all others; ``TaskStateError`` if it is pending or active."""
        self._drive(actions.run(queue, task_id, self._now_ns()))

    def archive_task(self, queue: str, task_id: str) -> None:
        """Move a task to the archive; ``TaskStateError`` if it is active or there already."""
        self._drive(actions.archive(queue, task_id, self._now_ns()))

    def delete_all_tasks(self, queue: str, state: TaskState | str, *, group: str | None = None) -> int:
        """Delete all tasks in a state but active, with their unique locks; returns how many there were.

        As many as there are now, a few hundred a round trip; what comes meanwhile may stay.
        """
        return self._drive(bulk.delete_all_tasks(queue, state, group))

    def run_all_tasks(self, queue: str, state: TaskState | str, *, group: str | None = None) -> int:
        """Move all tasks in a state but pending and active to pending; returns how many there were."""
        return self._drive(bulk.run_all_tasks(queue, state, group, self._now_ns()))

    def archive_all_tasks(self, queue: str, state: TaskState | str, *, group: str | None = None) -> int:
        """Move all tasks in a state but active and archived to the archive; returns how many there were.

        The archive keeps the last 10 000 tasks, those beyond are deleted.
        """
        return self._drive(bulk.archive_all_tasks(queue, state, group, self._now_ns()))

    def update_task_payload(self, queue: str, task_id: str, payload: Any) -> None:
        """Give a scheduled task another payload, as ``Task`` takes it; ``TaskStateError`` for a task in another state.

        Its unique lock stays that of the payload it was made with, as in asynq.
        """
        self._drive(actions.update_task_payload(queue, task_id, payload))

    def cancel_processing(self, task_id: str, outcome: str | None = None, *, queue: str | None = None) -> None:
        """Ask the server that runs a task to stop it; nobody answers, so nothing tells whether it was running.

        ``outcome`` says what becomes of it then: "retry" (as asynq has it: archived if no attempt is left), "archive"
        or "delete"; Go's servers retry whatever it says. ``queue`` tells tasks apart that have the same id.
        """
        self._drive(actions.cancel(task_id, outcome, queue))

    # Servers, schedulers, cluster

    def servers(self) -> list[ServerInfo]:
        """List the servers that are running, Go's and fastq's, and what each is working on."""
        return self._drive(processes.servers(self._now_ns()))

    def scheduler_entries(self) -> list[SchedulerEntry]:
        """List the periodic tasks of all running schedulers."""
        return self._drive(processes.scheduler_entries(self._now_ns()))

    def list_scheduler_enqueue_events(
        self, entry_id: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE
    ) -> list[SchedulerEnqueueEvent]:
        """Read a page of when an entry's task was enqueued, the latest first; Redis keeps 1000 events an entry."""
        return self._drive(processes.list_scheduler_enqueue_events(entry_id, page, page_size))

    def cluster_key_slot(self, queue: str) -> int:
        """Return the slot of a Redis Cluster in which all keys of a queue are; computed here."""
        return processes.cluster_key_slot(queue)

    def cluster_nodes(self, queue: str) -> list[ClusterNode]:
        """List the nodes of a Redis Cluster that have a queue's keys, the master first."""
        return self._drive(processes.cluster_nodes(queue))

    def close(self) -> None:
        """Close the connections, unless they were given; may be called twice."""
        self._broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

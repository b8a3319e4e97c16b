"""The methods that asynq has once a state, under a name each: written once, for both inspectors."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from fastq.states import TaskState

__all__ = ["DEFAULT_PAGE_SIZE", "NamedByState"]

DEFAULT_PAGE_SIZE = 30

Infos = TypeVar("Infos")
Count = TypeVar("Count")


class NamedByState(ABC, Generic[Infos, Count]):
    """Name the methods that take a state; they return a list of ``TaskInfo`` or a number, or the awaitable of it."""

    @abstractmethod
    def list_tasks(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str | None = None,
        page: int = 1,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> Infos:
        """Read a page of the tasks in a state."""

    @abstractmethod
    def delete_all_tasks(self, queue: str, state: TaskState | str, *, group: str | None = None) -> Count:
        """Delete all tasks in a state."""

    @abstractmethod
    def run_all_tasks(self, queue: str, state: TaskState | str, *, group: str | None = None) -> Count:
        """Move all tasks in a state to pending."""

    @abstractmethod
    def archive_all_tasks(self, queue: str, state: TaskState | str, *, group: str | None = None) -> Count:
        """Move all tasks in a state to the archive."""

    def list_pending_tasks(self, queue: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE) -> Infos:
        """Read a page of the tasks that wait for a worker, the next one to run first."""
        return self.list_tasks(queue, TaskState.PENDING, page=page, page_size=page_size)

    def list_active_tasks(self, queue: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE) -> Infos:
        """Read a page of the tasks that servers work on, the one taken first at the front.

        ``is_orphaned`` tells that no server holds the task any more: its lease has ended, or it has none.
        """
        return self.list_tasks(queue, TaskState.ACTIVE, page=page, page_size=page_size)

    def list_scheduled_tasks(self, queue: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE) -> Infos:
        """Read a page of the tasks whose time is still to come, the next one due first."""
        return self.list_tasks(queue, TaskState.SCHEDULED, page=page, page_size=page_size)

    def list_retry_tasks(self, queue: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE) -> Infos:
        """Read a page of the tasks that wait for their next attempt, the next one due first."""
        return self.list_tasks(queue, TaskState.RETRY, page=page, page_size=page_size)

    def list_archived_tasks(self, queue: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE) -> Infos:
        """Read a page of the archived tasks, the one archived first at the front, as asynq does."""
        return self.list_tasks(queue, TaskState.ARCHIVED, page=page, page_size=page_size)

    def list_completed_tasks(self, queue: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE) -> Infos:
        """Read a page of the completed tasks that are kept, the one that is to go first at the front."""
        return self.list_tasks(queue, TaskState.COMPLETED, page=page, page_size=page_size)

    def list_aggregating_tasks(
        self, queue: str, group: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE
    ) -> Infos:
        """Read a page of the tasks that wait in a group, the one that joined first at the front."""
        return self.list_tasks(queue, TaskState.AGGREGATING, group=group, page=page, page_size=page_size)

    def delete_all_pending_tasks(self, queue: str) -> Count:
        """Delete all pending tasks with their unique locks; returns how many there were."""
        return self.delete_all_tasks(queue, TaskState.PENDING)

    def delete_all_scheduled_tasks(self, queue: str) -> Count:
        """Delete all scheduled tasks with their unique locks; returns how many there were."""
        return self.delete_all_tasks(queue, TaskState.SCHEDULED)

    def delete_all_retry_tasks(self, queue: str) -> Count:
        """Delete all retry tasks with their unique locks; returns how many there were."""
        return self.delete_all_tasks(queue, TaskState.RETRY)

    def delete_all_archived_tasks(self, queue: str) -> Count:
        """Delete all archived tasks with their unique locks; returns how many there were."""
        return self.delete_all_tasks(queue, TaskState.ARCHIVED)

    def delete_all_completed_tasks(self, queue: str) -> Count:
        """Delete all completed tasks with their unique locks; returns how many there were."""
        return self.delete_all_tasks(queue, TaskState.COMPLETED)

    def delete_all_aggregating_tasks(self, queue: str, group: str) -> Count:
        """Delete all tasks of a group with their unique locks; returns how many there were."""
        return self.delete_all_tasks(queue, TaskState.AGGREGATING, group=group)

    def run_all_scheduled_tasks(self, queue: str) -> Count:
        """Move all scheduled tasks to pending; returns how many there were."""
        return self.run_all_tasks(queue, TaskState.SCHEDULED)

    def run_all_retry_tasks(self, queue: str) -> Count:
        """Move all retry tasks to pending; returns how many there were."""
        return self.run_all_tasks(queue, TaskState.RETRY)

    def run_all_archived_tasks(self, queue: str) -> Count:
        """Move all archived tasks to pending; returns how many there were."""
        return self.run_all_tasks(queue, TaskState.ARCHIVED)

    def run_all_aggregating_tasks(self, queue: str, group: str) -> Count:
        """Move all tasks of a group to pending, each by itself; returns how many there were."""
        return self.run_all_tasks(queue, TaskState.AGGREGATING, group=group)

    def archive_all_pending_tasks(self, queue: str) -> Count:
        """Move all pending tasks to the archive, which keeps the last 10 000; returns how many there were."""
        return self.archive_all_tasks(queue, TaskState.PENDING)

    def archive_all_scheduled_tasks(self, queue: str) -> Count:
        """Move all scheduled tasks to the archive, which keeps the last 10 000; returns how many there were."""
        return self.archive_all_tasks(queue, TaskState.SCHEDULED)

    def archive_all_retry_tasks(self, queue: str) -> Count:
        """Move all retry tasks to the archive, which keeps the last 10 000; returns how many there were."""
        return self.archive_all_tasks(queue, TaskState.RETRY)

    def archive_all_aggregating_tasks(self, queue: str, group: str) -> Count:
        """Move all tasks of a group to the archive; returns how many there were."""
        return self.archive_all_tasks(queue, TaskState.AGGREGATING, group=group)

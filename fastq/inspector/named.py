"""The methods that asynq has once a state, under a name each: written once, for both inspectors."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from fastq.states import TaskState

__all__ = ["DEFAULT_PAGE_SIZE", "NamedByState"]

DEFAULT_PAGE_SIZE = 30

Infos = TypeVar("Infos")


class NamedByState(ABC, Generic[Infos]):
    """Name the methods that take a state: a list of ``TaskInfo`` or the awaitable of one is what they return."""

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

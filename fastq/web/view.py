"""Reads data for one user: leaves out queues that the user may not see, and redacts payloads."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from fastq.common.states import TaskState
from fastq.errors import QueueNotFoundError, TaskNotFoundError
from fastq.info import TaskHead
from fastq.inspector import AsyncInspector, QueueInfo, ServerInfo
from fastq.web.redaction import Redaction
from fastq.web.work import Turns
from fastq.wire.messages import ChildInfo, SchedulerEntry, WorkerInfo

ALL_QUEUES: Final = ("*",)
MOST_LISTED: Final = 4_000
"""How many bytes of each payload, result and error are read for a list."""
MOST_OF_PAGE: Final = 8_000_000
"""The most bytes of all payloads together, of all results and of all errors, that are read for a list in chunks."""
MOST_REDACTED: Final = 64_000
"""``MOST_LISTED`` if values are redacted. It is larger, since a payload that is cut cannot be redacted, and so is
hidden.
"""
MOST_OF_ONE: Final = 2_000_000
WORKING: Final = frozenset(("idle", "busy"))
UNKNOWN: Final = "unknown"
PIECE_BYTES: Final = 1_000_000
"""Only a few chunks larger than this are in memory at a time. A larger chunk has a single large task."""


class TooLargeError(Exception):
    """Raised when a payload is larger than a reply may contain."""


def matches(queue: str, globs: Sequence[str]) -> bool:
    """Return whether a queue's name matches one of some patterns."""
    return any(glob == "*" or fnmatchcase(queue, glob) for glob in globs)


@dataclass(frozen=True, slots=True)
class View:
    """All reading for a user. ``globs`` are sets of patterns; the user sees a queue if each set has a pattern that
    matches.

    Large payloads count against the limits of ``owner``: the user, or the address if there is no login.
    """

    inspector: AsyncInspector
    globs: tuple[tuple[str, ...], ...]
    redaction: Redaction
    turns: Turns
    owner: str = ""

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
        """List the visible queues, except those whose names are not UTF-8, since no request can name them."""
        return [queue for queue in await self.inspector.queues() if self.sees(queue) and _is_text(queue)]

    async def queue_info(self, queue: str) -> QueueInfo:
        """Describe a queue; with very many groups, the number of their tasks is estimated."""
        self.require(queue)
        return await self.inspector.get_queue_info(queue, estimate=True)

    async def queue_infos(self) -> list[QueueInfo]:
        """Describe the queues, by name; a queue that is deleted meanwhile is left out."""
        return await self.inspector.get_queue_infos(await self.queues(), estimate=True)

    async def servers(self) -> list[ServerInfo]:
        """List the servers of visible queues, with their running tasks of these queues."""
        found = []
        for server in await self.inspector.servers():
            queues = {queue: weight for queue, weight in server.queues.items() if self.sees(queue)}
            if queues or not server.queues:
                workers = await self._workers(server)
                seen = {worker.task_id for worker in workers}
                is_shared = len(queues) < len(server.queues)
                children = tuple(_child(child, seen, is_shared) for child in server.children)
                found.append(replace(server, queues=queues, active_workers=workers, children=children))
        return found

    async def _workers(self, server: ServerInfo) -> tuple[WorkerInfo, ...]:
        """Return the visible tasks that a server runs, with the beginnings of their payloads, redacted."""
        found = []
        async with self.turns as turns:
            for each in filter(lambda each: self.sees(each.queue), server.active_workers):
                found.append(replace(each, task_payload=self.redaction.data(each.task_payload)))
                await turns.breathe()
        return tuple(found)

    async def scheduler_entries(self) -> list[SchedulerEntry]:
        """List the periodic tasks of visible queues."""
        return [
            replace(entry, task_payload=self.redaction.data(entry.task_payload))
            for entry in await self.inspector.scheduler_entries()
            if self.is_of_all or self.sees(entry.queue)
        ]

    async def task(self, queue: str, task_id: str, most: int = MOST_OF_ONE) -> TaskHead:
        """Describe a task with at most ``most`` bytes of payload and result."""
        self.require(queue)
        [found] = await self.inspector.get_task_heads(queue, [task_id], most)
        if found is None:
            raise TaskNotFoundError(queue, task_id)
        return self.redaction.task(found)

    async def tasks(self, queue: str, state: TaskState, **more: Any) -> Sequence[TaskHead]:
        """Read a page of tasks with the beginnings of payloads; further arguments are as for ``list_tasks``."""
        self.require(queue)
        most = MOST_REDACTED if self.redaction.keys else MOST_LISTED
        heads = await self.inspector.list_task_heads(queue, state, most_bytes=most, **more)
        return await self._redacted(heads)

    async def _redacted(self, heads: Sequence[TaskHead]) -> Sequence[TaskHead]:
        if not self.redaction.is_needed:
            return heads
        found = []
        async with self.turns as turns:
            for head in heads:
                found.append(self.redaction.task(head))
                await turns.breathe()
        return found

    async def pieces(
        self, queue: str, state: TaskState, most: int, *, cuts: bool = True, **more: Any
    ) -> AsyncIterator[Sequence[TaskHead]]:
        """Read a page of tasks, and return it in chunks, with at most ``most`` bytes of each payload and result.
        Without ``cuts``, a task with a larger payload or result raises ``TooLargeError``.
        """
        self.require(queue)
        listed = min(MOST_LISTED, MOST_OF_PAGE // max(more["page_size"], 1))
        heads = await self.inspector.list_task_heads(queue, state, most_bytes=listed, **more)
        if not cuts and not self.redaction.hides:
            for head in heads:
                require_whole(head, most)
        return self._pieces(queue, heads, most)

    async def _pieces(
        self, queue: str, heads: Sequence[TaskHead], most: int
    ) -> AsyncGenerator[Sequence[TaskHead], None]:
        for some, size in _cut(heads, most):
            async with self.turns.large(self.owner) if size > PIECE_BYTES else nullcontext():
                ids = [head.id for head in some if head.is_cut]
                again = await self.inspector.get_task_heads(queue, ids, most) if ids else []
                found = {head.id: head for head in (*some, *filter(None, again))}
                yield await self._redacted([found[head.id] for head in some])


def require_whole(head: TaskHead, most: int) -> None:
    """Raise ``TooLargeError`` if a task has a payload or result of more than ``most`` bytes."""
    size = max(head.payload_size, head.result_size)
    if size > most:
        raise TooLargeError(
            f"task {head.id} has {size:,} bytes of payload or result, and a reply has at most {most:,} of each; "
            "its page has both as files"
        )


def _cut(heads: Sequence[TaskHead], most: int) -> Iterator[tuple[Sequence[TaskHead], int]]:
    """Cut a list of tasks into chunks of about a MB, each with the number of its bytes.

    At most ``most`` bytes are read of each payload, type, error and result, and of all headers of a task.
    """
    piece: list[TaskHead] = []
    size = 0
    for head in heads:
        own = min(head.cut_size or head.payload_size, 4 * most) + min(head.result_size, most)
        if piece and size + own > PIECE_BYTES:
            yield piece, size
            piece, size = [], 0
        piece.append(head)
        size += own
    if piece:
        yield piece, size


def _child(child: ChildInfo, seen: Collection[str], is_shared: bool) -> ChildInfo:
    """Return a worker process with only the tasks that the user sees. If the server also has queues that the user does
    not see, the user does not learn whether the process is busy with their tasks.
    """
    ids = tuple(each for each in child.task_ids if each in seen)
    if is_shared and not ids and child.state in WORKING:
        return replace(child, state=UNKNOWN, task_ids=())
    return replace(child, task_ids=ids)


def _is_text(name: str) -> bool:
    return not any("\udc80" <= each <= "\udcff" for each in name)

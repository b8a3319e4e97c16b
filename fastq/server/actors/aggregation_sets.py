"""Operations on a whole aggregation set: read it, delete it, give it back; each in calls of at most 500 tasks."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from fastq.broker.operations.aggregate import (
    STRETCH,
    AggregationSet,
    archive_members,
    delete_members,
    read_set,
    reclaim_set,
)
from fastq.broker.operations.lease import MAX_LISTED_BYTES, LeasedTask
from fastq.errors import InvalidMessageError
from fastq.server.base.commands import Commands
from fastq.wire.codec import view_task_message

MAX_SET_BYTES: Final = 64 * 1024 * 1024
"""The size of the messages, in bytes, from which on no further part of a set is read."""


class SetReader:
    """Reads a set of ``taken`` tasks in order and in parts; what is left after 64 MB goes back to the group."""

    def __init__(self, commands: Commands, one: AggregationSet, taken: int) -> None:
        self._commands = commands
        self._set = one
        self._left = taken
        self._bytes = 0
        self.members: list[LeasedTask] = []

    @property
    def is_done(self) -> bool:
        """Return whether everything was read."""
        return self._left <= 0

    async def read_part(self) -> None:
        """Read the next part: at most 500 tasks or 256 kB."""
        part = await self._commands.run(read_set(self._set, len(self.members)))
        self.members += part.tasks
        self._left -= part.dangling + len(part.tasks)
        self._bytes += sum(len(task.message) for task in part.tasks)
        if not part.tasks and not part.dangling:
            self._left = 0
        elif self._bytes >= MAX_SET_BYTES:
            await give_back(self._commands, self._set, len(self.members))
            self._left = 0


async def give_back(commands: Commands, one: AggregationSet, start: int = 0) -> int:
    """Give a set's tasks from rank ``start`` on back to their group; return how many, -1 if the set was aggregated."""
    moved = 0
    while True:
        part = await commands.run(reclaim_set(one, start))
        if part < 0:
            return part
        moved += part
        if part < STRETCH:
            return moved


async def delete_set(commands: Commands, one: AggregationSet, locks: Mapping[str, str]) -> None:
    """Delete a set that was aggregated: ``locks`` has the key of each task's unique lock, or ""."""
    pairs = iter(locks.items())
    while stretch := dict(islice(pairs, STRETCH)):
        await commands.run(delete_members(one, stretch))


async def archive_tasks(
    commands: Commands, one: AggregationSet, tasks: Iterable[tuple[str, bytes]], now_s: int
) -> None:
    """Archive tasks (id, message) of a set, in calls of 500 tasks or 256 kB; each call trims the archive."""
    part: list[tuple[str, bytes]] = []
    size = 0
    for task in tasks:
        if part and (len(part) == STRETCH or size + len(task[1]) > MAX_LISTED_BYTES):
            await commands.run(archive_members(one, part, now_s))
            part, size = [], 0
        part.append(task)
        size += len(task[1])
    if part:
        await commands.run(archive_members(one, part, now_s))


async def clear_away(commands: Commands, one: AggregationSet) -> None:
    """Delete what is left of an aggregated set, whichever server aggregated it."""
    left = 1
    while left > 0:
        part = await commands.run(read_set(one, 0))
        left = await commands.run(delete_members(one, {task.id: _lock_of(task) for task in part.tasks}))


def _lock_of(task: LeasedTask) -> str:
    try:
        return view_task_message(task.message).unique_key
    except InvalidMessageError:
        return ""

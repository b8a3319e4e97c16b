"""What is done with a whole aggregation set: read it, delete it, give it back; each in stretches of 500 tasks."""

from collections.abc import Mapping
from itertools import islice
from typing import Final

from fastq.broker.aggregate import STRETCH, AggregationSet, delete_members, read_set, reclaim_set
from fastq.broker.lease import LeasedTask
from fastq.codec import view_task_message
from fastq.errors import InvalidMessageError
from fastq.server.commands import Commands

__all__ = ["clear_away", "delete_set", "give_back", "read_members"]

MAX_SET_BYTES: Final = 64 * 1024 * 1024
"""Messages that are aggregated at once at most; the task that made it more is the last one."""


async def read_members(commands: Commands, one: AggregationSet, taken: int) -> list[LeasedTask]:
    """Read the tasks of a set of ``taken``, in order; what is beyond 64 MB goes back to the group."""
    members: list[LeasedTask] = []
    ghosts = size = 0
    while len(members) + ghosts < taken:
        part = await commands.run(read_set(one, len(members)))
        if not part.tasks and not part.ghosts:
            break
        ghosts += part.ghosts
        members += part.tasks
        size += sum(len(task.message) for task in part.tasks)
        if size >= MAX_SET_BYTES:
            await give_back(commands, one, len(members))
            break
    return members


async def give_back(commands: Commands, one: AggregationSet, start: int = 0) -> bool:
    """Give the tasks of a set back to their group, from a rank on; False if the set was aggregated."""
    while True:
        moved = await commands.run(reclaim_set(one, start))
        if moved < STRETCH:
            return moved >= 0


async def delete_set(commands: Commands, one: AggregationSet, locks: Mapping[str, str]) -> None:
    """Delete a set that was aggregated: ``locks`` has the key of each task's unique lock, or ""."""
    pairs = iter(locks.items())
    while stretch := dict(islice(pairs, STRETCH)):
        await commands.run(delete_members(one, stretch))


async def clear_away(commands: Commands, one: AggregationSet) -> None:
    """Delete what is left of a set that was aggregated, whoever did it."""
    left = 1
    while left > 0:
        part = await commands.run(read_set(one, 0))
        left = await commands.run(delete_members(one, {task.id: _lock_of(task) for task in part.tasks}))


def _lock_of(task: LeasedTask) -> str:
    try:
        return view_task_message(task.message).unique_key
    except InvalidMessageError:
        return ""

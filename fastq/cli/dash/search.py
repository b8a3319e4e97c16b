"""The search for tasks by id, type, payload or error, in bounded parts."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fastq.errors import TaskNotFoundError
from fastq.info import TaskInfo
from fastq.inspector import AsyncInspector
from fastq.inspector.jobs import Place

STRETCH: Final = 200
MOST_TASKS: Final = 5_000
MOST_BYTES: Final = 16_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """The tasks found, and the range of positions, from 0, that was searched; ``at_end`` means that no task comes after
    it.

    ``size`` is the page size. ``elsewhere`` is the task whose id was searched, if it is in another state.
    """

    infos: Sequence[TaskInfo]
    start: int
    end: int
    at_end: bool
    size: int
    elsewhere: TaskInfo | None = None


async def read_page(inspector: AsyncInspector, place: Place, start: int, size: int) -> Found:
    """Read the page that contains a position."""
    page = start // size + 1
    infos = await inspector.list_tasks(place.queue, place.state, group=place.group, page=page, page_size=size)
    first = (page - 1) * size  # a page that lost tasks while it was read is short, but need not be the last
    return Found(infos, first, first + len(infos), at_end=not infos, size=size)


async def search(
    inspector: AsyncInspector, place: Place, text: str, start: int, wanted: int, note: Callable[[Found], None]
) -> Found:
    """Search from a position on, until enough tasks are found, the end is reached, or 5,000 tasks or 16 MB are read.
    ``note`` is called with the results so far. If the text is a complete id, its task is found in any state.
    """
    named = await _named(inspector, place, text) if start == 0 else None
    here = named is not None and named.state is place.state and (place.group or "") == named.group
    infos = [named] if named is not None and here else []
    elsewhere = None if here else named
    start -= start % STRETCH
    end, taken, at_end = start, 0, False
    while not at_end and len(infos) < wanted and end - start < MOST_TASKS and taken < MOST_BYTES:
        some = await read_page(inspector, place, end, STRETCH)
        infos += [info for info in some.infos if _matches(info, text) and not (named and info.id == named.id)]
        taken += sum(len(info.payload) for info in some.infos)
        at_end = some.at_end
        end += 0 if at_end else STRETCH
        note(Found(list(infos), start, end, at_end, STRETCH, elsewhere))
    return Found(infos, start, end, at_end, STRETCH, elsewhere)


async def _named(inspector: AsyncInspector, place: Place, text: str) -> TaskInfo | None:
    with suppress(TaskNotFoundError, ValueError):
        return await inspector.get_task_info(place.queue, text)
    return None


def _matches(info: TaskInfo, text: str) -> bool:
    wanted = text.casefold()
    if any(wanted in part.casefold() for part in (info.id, info.type, info.last_err)):
        return True
    return wanted in info.payload.decode(errors="replace").casefold()

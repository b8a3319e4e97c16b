"""The position in a list of tasks: a page, or the results of a search and its progress."""

from collections.abc import Callable

from fastq.cli.dash.desk import Desk
from fastq.cli.dash.search import Found, read_page, search
from fastq.info import TaskInfo
from fastq.inspector.jobs import Place
from fastq.text.human import clean, number


class Finder:
    """The position in a list of tasks; ``total`` is its last known length, ``found`` is None before a result."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.text = ""
        self.total = 0
        self.found: Found | None = None
        self._starts = [0]

    async def look(self, desk: Desk, size: int, note: Callable[[], None]) -> None:
        """Read a page, or search for the text; ``note`` is called during the search."""

        def keep(found: Found) -> None:
            self.found = found
            note()

        place = self.place
        self.total = await desk.inspector.count_tasks(place.queue, place.state, group=place.group)
        if self.text:
            found = await search(desk.inspector, self.place, self.text, self._starts[-1], size, keep)
        else:
            found = await read_page(desk.inspector, self.place, self._starts[-1], size)
            self._starts[-1] = found.start
        self.found = found

    def search(self, text: str) -> None:
        """Search for a text from the beginning; a blank text ends the search."""
        self.text = text.strip()
        self._starts, self.found = [0], None

    def turn(self, by: int) -> bool:
        """Go to the next or previous page; return False at the end, or if the last read is pending."""
        if by < 0 and len(self._starts) > 1:
            self._starts.pop()
        elif by > 0 and (start := self._next) is not None:
            self._starts.append(start)
        else:
            return False
        return True

    @property
    def _next(self) -> int | None:
        """Where the next page or part of a search starts; pages can be turned faster than they are read."""
        found, start = self.found, self._starts[-1]
        if found is None or (found.start == start and not self._has_more):
            return None
        if self.text:
            return found.end if found.start == start else None
        start += found.size
        return start if start < self.total else None

    def info(self, task_id: str | None) -> TaskInfo | None:
        """Return a task of the current results, None if it is not among them."""
        infos = self.found.infos if self.found else ()
        return next((info for info in infos if info.id == task_id), None)

    @property
    def _has_more(self) -> bool:
        found = self.found
        if found is None:
            return False
        return not found.at_end and (found.end if self.text else found.start + found.size) < self.total

    def __str__(self) -> str:
        """Return the range of positions that are shown or were searched, counted from 1, and their total."""
        found = self.found
        if found is None:
            return "…"
        end = min(found.end, self.total) if self.text else found.end
        looked = f"{number(min(found.start + 1, max(end, 1)))}-{number(end)} of {number(max(self.total, end))}"
        if not self.text:
            return looked if found.infos else f"0 of {number(self.total)}"
        more = "; n continues" if self._has_more else ""
        other = f"; the task of this id is {found.elsewhere.state}" if found.elsewhere else ""
        return f"{number(len(found.infos))} match '{clean(self.text)}' in {looked}{more}{other}"

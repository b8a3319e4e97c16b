"""Pages that are updated while they are open: Redis is read once for all viewers of the same page. A page is watched
while somebody has it open. A poller renders it every second or two, and sends its viewers the parts that have changed,
and of a table only the changed rows. The poller ends when no page is open.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from typing import Any, Final, TypeAlias

TICK_S: Final = 1.0
KEEP_ALIVE_S: Final = 15.0
MOST_VIEWERS: Final = 500
MOST_OF_A_USER: Final = 100
LIFE_S: Final = 600.0
"""After this time a stream ends. The browser then connects again, and the user's rights are checked again."""
REST: Final = 3
"""The poller pauses for at least this many times the duration of its last round."""
_ROW: Final = re.compile(r"<tr data-key=.*?</tr>", re.DOTALL)
_TIME: Final = re.compile(r"(<time [^>]*>)[^<]*")

Render: TypeAlias = Callable[[], Awaitable[Mapping[str, str]]]
"""Renders a page; returns its parts by name, or raises ``TroubleError``."""


class TroubleError(Exception):
    """Raised when a page cannot be rendered now; the text is for its viewers."""


@dataclass(eq=False, slots=True)
class _Viewer:
    """One open stream, and the changes that were not sent on it yet."""

    user: str
    parts: dict[str, str]
    trouble: str = ""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    sent: dict[str, str] = field(default_factory=dict)

    def take(self) -> str:
        """Return the next event."""
        self.wake.clear()
        now = datetime.now(UTC).isoformat()
        if self.trouble:
            return _event("trouble", {"text": self.trouble, "now": now})
        whole, self.parts = self.parts, {}
        parts = {name: changed(html, self.sent.get(name, "")) for name, html in whole.items()}
        self.sent.update(whole)
        return _event("parts", {"parts": parts, "now": now})


@dataclass(eq=False, slots=True)
class _Watched:
    """A page that somebody has open: its parts as they were last rendered, and its viewers."""

    render: Render
    ticks: int
    """The number of ticks between two renderings."""
    parts: dict[str, str] = field(default_factory=dict)
    viewers: set[_Viewer] = field(default_factory=set)
    trouble: str = ""

    async def renew(self) -> None:
        """Render the page, and pass the changed parts to its viewers."""
        before = self.trouble
        try:
            parts, self.trouble = dict(await self.render()), ""
        except TroubleError as error:
            parts, self.trouble = self.parts, str(error)
        changed = {name: html for name, html in parts.items() if _lasting(html) != _lasting(self.parts.get(name, ""))}
        self.parts = parts
        if changed or self.trouble != before:
            for viewer in self.viewers:
                viewer.parts.update(changed)
                viewer.trouble = self.trouble
                viewer.wake.set()


class Live:
    """The watched pages of a site, and their poller."""

    def __init__(self) -> None:
        self._pages: dict[object, _Watched] = {}
        self._poller: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def viewers(self) -> int:
        """The number of open streams."""
        return sum(len(page.viewers) for page in self._pages.values())

    def is_full(self, user: str) -> bool:
        """Return whether a user may open no more streams; ``user`` is empty if there is no login."""
        own = sum(viewer.user == user for page in self._pages.values() for viewer in page.viewers)
        return self.viewers >= MOST_VIEWERS or (user != "" and own >= MOST_OF_A_USER)

    async def watch(self, key: object, render: Render, ticks: int = 1, user: str = "") -> AsyncIterator[str]:
        """Yield the events for one viewer of a page; all viewers with the same key share its rendering."""
        page = self._pages.setdefault(key, _Watched(render, ticks))
        viewer = _Viewer(user, dict(page.parts), page.trouble)
        if page.parts or page.trouble:
            viewer.wake.set()
        page.viewers.add(viewer)
        try:
            if self._poller is None or self._poller.done():
                self._poller = asyncio.get_running_loop().create_task(self._poll(), name="poller of fastq web")
            yield ": here\n\n"
            until_s = time.monotonic() + LIFE_S
            while not self._is_closed and time.monotonic() < until_s:
                try:
                    await asyncio.wait_for(viewer.wake.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield ": still here\n\n"
                else:
                    if not self._is_closed:
                        yield viewer.take()
        finally:
            page.viewers.discard(viewer)
            if not page.viewers and self._pages.get(key) is page:
                del self._pages[key]

    async def _poll(self) -> None:
        took_s = 0.0
        for tick in count(1):
            await asyncio.sleep(max(TICK_S, REST * took_s))
            if not self._pages:
                return
            began_s = time.monotonic()
            for page in list(self._pages.values()):
                if tick % page.ticks == 0:
                    await page.renew()
            took_s = time.monotonic() - began_s

    async def close(self) -> None:
        """End all streams; browsers connect again."""
        self._is_closed = True
        for page in self._pages.values():
            for viewer in page.viewers:
                viewer.wake.set()
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)


@lru_cache(maxsize=8)
def changed(html: str, before: str) -> str:
    """Return a part with ``<tr data-same="N">`` for each unchanged row; N is the row's number in ``before``."""
    known = {_lasting(row): at for at, row in reversed(list(enumerate(_ROW.findall(before))))}
    if not known:
        return html

    def shorten(match: re.Match[str]) -> str:
        at = known.get(_lasting(match[0]))
        return match[0] if at is None else f'<tr data-same="{at}"></tr>'

    return _ROW.sub(shorten, html)


def _lasting(html: str) -> str:
    """Return a part without the texts of its relative times, which browsers update themselves."""
    return _TIME.sub(r"\1", html)


def _event(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"

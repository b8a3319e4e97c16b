"""Drives the dashboard through its keys, and reads what stands on the screen, without fixed pauses."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

from textual.pilot import Pilot

from fastq.cli.dash.dashboard import Dash
from fastq.cli.dash.desk import Options
from fastq.cli.dash.view import View
from tests.waiting import PATIENCE_S

P = ParamSpec("P")

SMALL = (80, 24)
LIMIT_S = PATIENCE_S


class Driver:
    """A user of the dashboard."""

    def __init__(self, app: Dash, pilot: Pilot[Any]) -> None:
        self.app = app
        self._pilot = pilot

    @property
    def lines(self) -> list[str]:
        """Return the lines of the screen."""
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        """Return the screen as it is seen."""
        return "\n".join(self.lines)

    @property
    def is_looking(self) -> bool:
        """Return whether an answer of Redis is pending."""
        return self.app.is_looking or any(isinstance(view, View) and view.is_looking for view in self.app.screen_stack)

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        await self._pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Type a text."""
        await self._pilot.press(*text)

    async def resize(self, width: int, height: int) -> None:
        """Make the window another size."""
        await self._pilot.resize_terminal(width, height)

    async def sees(self, *parts: str, no: str = "\0") -> str:
        """Wait until all parts stand on the screen, and ``no`` does not; lines of a box count as one."""

        def is_seen(text: str) -> bool:
            unwrapped = " ".join(text.replace("│", " ").split())
            return all(part in text or part in unwrapped for part in parts) and no not in text

        return await self.until(is_seen, repr(parts))

    def row(self, word: str) -> str:
        """Return the one line with a word, single-spaced."""
        (line,) = [" ".join(line.split()) for line in self.lines if word in line]
        return line

    async def until(self, predicate: Callable[[str], bool], what: str = "") -> str:
        """Wait until something is true of the screen's text, and return that."""
        deadline_s = time.monotonic() + LIMIT_S
        while not predicate(text := self.text):
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not seen within {LIMIT_S:g} s: {what}\n{text}")
            await self._pilot.pause()
        return text


@asynccontextmanager
async def driven(url: str, size: tuple[int, int] = SMALL, **options: Any) -> AsyncIterator[Driver]:
    """Run the dashboard without a terminal."""
    app = Dash(Options(url, **options))
    try:
        async with app.run_test(size=size) as pilot:
            yield Driver(app, pilot)
    finally:
        await app.desk.close()


def on_a_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Make a coroutine function a test."""

    @functools.wraps(test)
    def run(*args: P.args, **named: P.kwargs) -> None:
        async def body() -> None:
            await test(*args, **named)

        asyncio.run(body())

    return run

"""Notices that the app's code has changed, for ``fastq-worker --reload``; the main process imports none of it."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

LOOK_EVERY_S: Final = 0.5
_SKIPPED: Final = frozenset({"__pycache__", "node_modules"})


async def watch_sources(directory: Path, changed: Callable[[], object]) -> None:
    """Call ``changed`` whenever a Python file below a directory is written, made or removed; runs until canceled.

    Hidden directories and virtual environments are passed over.
    """
    before = await asyncio.to_thread(_looks, directory)
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        now = await asyncio.to_thread(_looks, directory)
        if now != before:
            before = now
            changed()


def _looks(directory: Path) -> dict[str, tuple[int, int]]:
    """Return when each file was written, and its size."""
    found = {}
    for path in _sources(directory):
        with suppress(OSError):  # the file was removed meanwhile
            status = os.stat(path)
            found[path] = status.st_mtime_ns, status.st_size
    return found


def _sources(directory: Path) -> Iterator[str]:
    for place, inner, files in os.walk(directory):
        if "pyvenv.cfg" in files:
            inner.clear()
            continue
        inner[:] = [name for name in inner if not name.startswith(".") and name not in _SKIPPED]
        yield from (os.path.join(place, file) for file in files if file.endswith(".py"))

"""Reloads the app, as SIGHUP asks: a new preloader imports it first, then children are replaced one by one.

If the import fails, everything stays as it is. Only the app's code is read again, not the settings.
"""

import asyncio
import logging
from collections.abc import Callable

from fastq.broker.transport.end_task import end_task
from fastq.log.setup import log_text
from fastq.pool.main.pool import ForkServer
from fastq.pool.main.protocol import PoolStartError

_log = logging.getLogger("fastq")


class Reloader:
    """The reloading of an app, one reload at a time."""

    def __init__(self, forks: ForkServer, app: str, on_reloaded: Callable[[], None]) -> None:
        self._forks = forks
        self._app = app
        self._on_reloaded = on_reloaded
        self._reloading: asyncio.Task[None] | None = None
        self._again = False
        self._is_stopped = False

    def reload(self) -> None:
        """Start a reload; if one is under way, repeat it, since the code may have changed after it was read."""
        if self._is_stopped:
            return
        self._again = True
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._reload(), name="fastq reload")

    async def _reload(self) -> None:
        while self._again:
            self._again = False
            _log.info("reloading: importing %s again", self._app)
            try:
                replaced = await self._forks.reload()
            except PoolStartError as error:
                text = f"{self._app} cannot be reloaded, the code loaded before stays in use: {error}"
                log_text(_log, logging.ERROR, text)
            else:
                _log.info("imported %s again; replacing its children one by one", self._app)
                replaced.add_done_callback(self._log_replaced)

    def _log_replaced(self, replaced: asyncio.Future[None]) -> None:
        if not replaced.cancelled():
            _log.info("reloaded: all children run the new code")
            self._on_reloaded()

    async def stop(self) -> None:
        """End reloading."""
        self._is_stopped = True
        if self._reloading is not None:
            await end_task(self._reloading)

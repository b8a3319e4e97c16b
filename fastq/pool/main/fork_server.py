"""The main process's side of the preloader, which all its pools share: starts it, asks for children, replaces it.

Wakes on messages of its preloader and on ``reload``, which imports the app in a new preloader. If that works, children
are forked from the new one, and the old one ends with its last child. If the import fails, the old one stays.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from typing import Protocol

from fastq.pool.main.config import PoolConfig
from fastq.pool.main.failures import Failures
from fastq.pool.main.preloader_client import PoolStartError, PreloaderClient, PreloaderEvents
from fastq.pool.shared.control import Frame

_YOUNG_S = 1.0  # a death so soon after the import, before any child worked, is a failed start
_EXIT_S = 0.5
_SLOW_IMPORT_S = 2.0
_MAX_UNANSWERED = 16  # orders: a socket has room for a few hundred, but the kernel limits the descriptors in transit


class ForkUser(Protocol):
    """An owner of forked children."""

    def on_frame(self, frame: Frame) -> None:
        """Handle a message about one of this user's children."""

    def on_lost(self, preloader: PreloaderClient) -> bool:
        """Give up the children of a dead preloader; return whether any of them has worked."""

    def on_room(self) -> None:
        """Order the children that had to wait: the preloader has answered an order."""

    def on_up(self, preloader: PreloaderClient) -> None:
        """Switch to another preloader, which has imported the app anew."""

    def on_failed(self, error: PoolStartError) -> None:
        """Give up: no preloader can be started any more."""


class ForkServer:
    """The current preloader, and the older ones that still have children."""

    def __init__(self, config: PoolConfig, on_notice: Callable[[str], None], on_info: Callable[[str], None]) -> None:
        self.config = config
        self._on_notice = on_notice
        self._on_info = on_info
        self._preloader = self._new_preloader()
        self._next: PreloaderClient | None = None  # the one that is importing the app
        self._retired: dict[PreloaderClient, asyncio.Future[None]] = {}
        self._users: list[ForkUser] = []
        self._children: dict[int, tuple[ForkUser, PreloaderClient]] = {}
        self._number = 0
        self._unanswered: set[int] = set()  # the numbers of ordered children that the preloader has not mentioned yet
        self._failures = Failures()
        self._changing = asyncio.Lock()
        self._loaded_s = 0.0
        self._is_closed = False
        self._background: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int:
        """Return the process id of the current preloader, 0 before the start."""
        return self._preloader.pid

    def pids(self) -> set[int]:
        """Return the process ids of all preloaders."""
        return {preloader.pid for preloader in (self._preloader, self._next, *self._retired) if preloader is not None}

    async def join(self, user: ForkUser) -> None:
        """Let a user order children; the first user waits for the import.

        Raises ``PoolStartError`` when the import fails.
        """
        self._users.append(user)
        if not self._preloader.pid:
            async with self._changing:
                if not self._preloader.pid:  # a reload may have started it
                    self._up(await self._load(self._preloader))

    def leave(self, user: ForkUser) -> None:
        """Forget a user, whose children are all gone."""
        if user in self._users:
            self._users.remove(user)

    # Children -----------------------------------------------------------------------------------------------------

    @property
    def takes_orders(self) -> bool:
        """Return whether children can be ordered now."""
        return not self._is_closed and self._preloader.is_up and len(self._unanswered) < _MAX_UNANSWERED

    def next_number(self) -> int:
        """Return a number for the next child."""
        self._number += 1
        return self._number

    def order(
        self, user: ForkUser, number: int, fds: list[int], config: PoolConfig, device: str = ""
    ) -> PreloaderClient | None:
        """Order a child of ``config`` with a device; return the preloader that will fork it, None if none can now."""
        preloader = self._preloader
        if not preloader.order(number, fds, config, device):
            return None
        self._children[number] = (user, preloader)
        self._unanswered.add(number)
        return preloader

    def forget(self, number: int) -> None:
        """Forget a dead child; a preloader that was replaced ends with its last child."""
        _, preloader = self._children.pop(number, (None, self._preloader))
        self._unanswered.discard(number)
        self._end_if_childless(preloader)

    def settle(self) -> None:
        """Forget failed starts: a child of the preloader works."""
        self._failures.clear()

    # Replacing ----------------------------------------------------------------------------------------------------

    async def reload(self) -> asyncio.Future[None]:
        """Import the app in a new preloader and switch to it; the future is done when no old child is left.

        Raises ``PoolStartError`` when that fails; then nothing changes.
        """
        async with self._changing:
            old = self._preloader
            self._up(await self._replace())
            gone = self._retired[old] = asyncio.get_running_loop().create_future()
        self._end_if_childless(old)
        return gone

    async def _replace(self) -> Frame:
        preloader = self._next = self._new_preloader()
        try:
            loaded = await self._load(preloader)
        except BaseException:
            await preloader.stop(0)
            raise
        finally:
            self._next = None
        self._preloader = preloader
        return loaded

    async def _load(self, preloader: PreloaderClient) -> Frame:
        """Let a preloader import the app; log it if it takes long."""
        text = f"importing {self.config.name} …"
        slow = asyncio.get_running_loop().call_later(_SLOW_IMPORT_S, self._on_info, text)
        try:
            return await preloader.start()
        finally:
            slow.cancel()

    def _new_preloader(self) -> PreloaderClient:
        return PreloaderClient(self.config, PreloaderEvents(self._on_frame, self._on_lost))

    def _up(self, loaded: Frame) -> None:
        self._loaded_s = time.monotonic()
        for text in filter(None, loaded.text("findings").split("\n")):
            self._on_notice(f"{self.config.name}: {text}")
        for user in self._users:
            user.on_up(self._preloader)

    def _end_if_childless(self, preloader: PreloaderClient) -> None:
        if preloader in self._retired and not any(one is preloader for _, one in self._children.values()):
            self._spawn(self._end(preloader))

    async def _end(self, preloader: PreloaderClient) -> None:
        await preloader.stop(_EXIT_S)
        gone = self._retired.pop(preloader, None)
        if gone is not None and not gone.done():
            gone.set_result(None)

    # News ---------------------------------------------------------------------------------------------------------

    def _on_frame(self, frame: Frame) -> None:
        number = frame.number("child")
        child = self._children.get(number)
        if child is None:
            for fd in frame.fds:
                os.close(fd)
            return
        is_answer = number in self._unanswered
        self._unanswered.discard(number)
        child[0].on_frame(frame)
        if is_answer:
            for user in list(self._users):
                user.on_room()

    def _on_lost(self, preloader: PreloaderClient) -> None:
        text = f"the preloader (process {preloader.pid}) died; its children are replaced"
        have_worked = [user.on_lost(preloader) for user in self._users]
        if preloader is not self._preloader:
            self._on_notice(text)  # its children are replaced by children of the current preloader in any case
            return
        if time.monotonic() - self._loaded_s < _YOUNG_S and not any(have_worked):
            self._failed(text)
        else:
            self._on_notice(text)
        self._spawn(self._restart(preloader))

    async def _restart(self, preloader: PreloaderClient) -> None:
        await preloader.stop(0)
        async with self._changing:
            while preloader is self._preloader and not self._is_closed:
                await asyncio.sleep(self._failures.wait_s)
                try:
                    self._up(await self._replace())
                except PoolStartError as error:
                    self._failed(str(error))

    def _failed(self, text: str) -> None:
        """Count a failed start. Give up after too many; until then, log when the next start is made."""
        self._failures.count()
        if not self._failures.are_too_many:
            self._on_notice(f"{text}\nretrying in {self._failures.wait_s:.1f} s")
            return
        self._is_closed = True
        self._on_notice(text)
        for user in list(self._users):
            user.on_failed(PoolStartError(text))

    # Stop ---------------------------------------------------------------------------------------------------------

    def _spawn(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def stop(self) -> None:
        """End the preloaders; their users have stopped."""
        self._is_closed = True
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for preloader in (self._preloader, *self._retired):
            await preloader.stop(_EXIT_S)

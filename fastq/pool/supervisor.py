"""Orders children, hears of their end, has them judged, sees to it that their seats are taken again.

Wakes on the fork server's word, on a child's first words, on a child's end (pidfd), and at the pool's tick. If their
preloader dies, children are killed, and their tasks resolved; if it is replaced by choice, so are they, one by one.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastq.pool._dispatcher import Dispatcher
from fastq.pool._feed import Event
from fastq.pool._ring import now_ns
from fastq.pool.config import PoolConfig
from fastq.pool.control import ChannelClosedError, Frame
from fastq.pool.descriptors import check_descriptors
from fastq.pool.failures import Failures
from fastq.pool.fork_server import ForkServer
from fastq.pool.handle import Handle, State, Surroundings
from fastq.pool.link import Link, PoolStartError
from fastq.pool.processes import describe_status, open_pidfd, rss_of
from fastq.pool.seats import Seats, dismiss
from fastq.pool.verdicts import judge

__all__ = ["Reports", "Supervisor"]

_REPORT_WAIT_S = 2.0  # for the preloader's word on a child that is known to be dead: how it died matters most on a
# machine that is short of everything
_LAST_REPORT_WAIT_S = 0.5  # the same at the end, which is to be quick
_YOUNG_S = 1.0  # ready for less than this, and then dead without a task: it did not really start
_CLOCK_S = 0.01  # by which a timer may come too early
_EXIT_WAIT_S = 5.0  # for a child that was told to exit
_DEAF_NS = 30_000_000_000  # for one that runs nothing to look at what it was given: stopped, or stuck in the kernel


@dataclass(frozen=True, slots=True)
class Reports:
    """Say whom the supervisor tells what."""

    on_resolved: Callable[[list[Event]], None]
    on_change: Callable[[], None]  # a child came or went
    on_notice: Callable[[str], None]
    on_info: Callable[[str], None]
    on_failed: Callable[[PoolStartError], None]
    on_description: Callable[[str], None]


class Supervisor:
    """Own the seats and every handle."""

    def __init__(
        self,
        config: PoolConfig,
        surroundings: Surroundings,
        dispatcher: Dispatcher,
        reports: Reports,
        forks: ForkServer,
    ) -> None:
        self._config = config
        self._surroundings = surroundings
        self._dispatcher = dispatcher
        self._reports = reports
        self._forks = forks
        self._handles: dict[int, Handle] = {}
        self._failures = Failures()
        self._closed = False
        self._refill: asyncio.TimerHandle | None = None
        self._has_stop = False  # children have something to do before they exit
        self._has_begun = False  # every seat has had a child that was ready
        self.seats = Seats(config.processes, dispatcher, self._order, reports.on_info)
        self.only_async = False
        self.description = ""

    @property
    def handles(self) -> list[Handle]:
        """Return every child that is not dead."""
        return list(self._handles.values())

    async def start(self) -> None:
        """Have the app imported and order the children; they get ready one by one (``on_change``).

        Raises ``PoolStartError`` when the app cannot be imported, or descriptors would not do for so many children.
        """
        if refusal := _refusal(self._config):
            raise PoolStartError(refusal)
        await self._forks.join(self)
        self.seats.fill()

    # Orders -------------------------------------------------------------------------------------------------------

    def _order(self) -> Handle | None:
        """Order one more child; ``None`` when that must wait."""
        if not self._forks.takes_orders or self._closed or self._failures.wait_s:
            return None
        try:
            handle = Handle.create(self._forks.next_number(), self._config)
        except OSError as error:
            self._failed(f"no worker process can be started: {error}")
            return None
        fds = handle.order_fds(self._surroundings)
        handle.link = self._forks.order(self, handle.number, fds, self._config)
        if handle.link is None:
            handle.close()
            return None
        handle.ordered()
        self._handles[handle.number] = handle
        asyncio.get_running_loop().add_reader(handle.channel, self._on_words, handle)
        return handle

    # News ---------------------------------------------------------------------------------------------------------

    def _on_words(self, handle: Handle) -> None:
        """Hear a new child: it is ready, or says why not."""
        frame = None
        with contextlib.suppress(ChannelClosedError):
            frame = handle.channel.poll()
            if frame is None:
                return
        asyncio.get_running_loop().remove_reader(handle.channel)
        if frame is None or handle.state is not State.STARTING:
            return  # its end is reported by others
        if frame.op in ("failed", "unfit"):
            self._on_failure(handle, frame)
            return
        if not handle.pid:  # the preloader's own word is still under way, or the preloader stuck
            self._watch(handle, frame.number("pid"), open_pidfd(frame.number("pid")))
        refusal = _too_small(self._config, frame.number("rss"))
        if refusal:
            handle.text = f": {refusal}"
            handle.kill()
            if not self._has_begun:  # later it is a failed start among others
                self._reports.on_failed(PoolStartError(refusal))
            return
        if not handle.is_outdated:
            self.only_async = bool(frame.body.get("has_async")) and not frame.body.get("has_plain")
            self.description = frame.text("description")
            self._reports.on_description(self.description)
        self._has_stop = bool(frame.body.get("has_stop"))
        handle.state, handle.since_s = State.READY, time.monotonic()
        self._dispatcher.add(handle.feed)
        self.seats.fill()
        self.seats.recycle()
        self._has_begun = self._has_begun or self.seats.all_ready
        self._reports.on_change()

    def _on_failure(self, handle: Handle, frame: Frame) -> None:
        handle.text = f"\n{frame.text('text')}"
        if frame.op == "failed" and not self.description:  # none was ever ready: the app, not the moment, is at fault
            self._closed = True
            is_misuse = bool(frame.number("is_misuse"))
            self._reports.on_failed(PoolStartError(frame.text("text"), is_misuse=is_misuse))

    def on_frame(self, frame: Frame) -> None:
        """Hear the preloader: a child was forked, or has ended."""
        handle = self._handles[frame.number("child")]
        if frame.op == "forked":
            self._on_forked(handle, frame)
        elif frame.op == "unforked":
            handle.text = f"\n{frame.text('text')}"
            self._bury(handle)
        elif frame.op == "exited":
            handle.status = frame.number("status")
            handle.peak_rss = frame.number("peak_rss")
            self._bury(handle)

    def _on_forked(self, handle: Handle, frame: Frame) -> None:
        if not handle.pid:
            pid = frame.number("pid")
            self._watch(handle, pid, frame.fds[0] if frame.fds else open_pidfd(pid))
        else:
            for fd in frame.fds:
                os.close(fd)
        if handle.state is State.KILLED:  # before its number was known
            handle.state = State.STARTING
            handle.kill(handle.blamed)

    def _watch(self, handle: Handle, pid: int, pidfd: int) -> None:
        handle.pid, handle.pidfd = pid, pidfd
        if pidfd >= 0:
            asyncio.get_running_loop().add_reader(pidfd, self._on_end, handle)

    def _on_end(self, handle: Handle) -> None:
        """Know from the kernel that a child is dead; the preloader is to say how."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(handle.pidfd)
        handle.report_timer = loop.call_later(0 if handle.is_orphan else _REPORT_WAIT_S, self._bury, handle)

    def on_lost(self, link: Link) -> bool:
        """Give up the children of a dead preloader; return whether any of them has worked."""
        orphans = [handle for handle in self.handles if handle.link is link]
        have_worked = any(handle.feed.finished for handle in orphans)
        for handle in orphans:
            handle.is_orphan = True
            if handle.pid:
                handle.kill()
            if not handle.pid or handle.report_timer:  # one that was forked has died of its lifeline
                self._bury(handle)
        return have_worked

    def on_room(self) -> None:
        """Order what could not be ordered before: the preloader has answered an order."""
        self.seats.fill()

    def on_up(self, link: Link) -> None:
        """Fill the seats from another preloader, and begin to replace the children of the one before."""
        for handle in self.handles:
            handle.is_outdated = handle.link is not link
        self.seats.fill()
        self.seats.recycle()

    def on_failed(self, error: PoolStartError) -> None:
        """Give up: there is no preloader any more."""
        self._closed = True
        self._reports.on_failed(error)

    # The end of a child -------------------------------------------------------------------------------------------

    def _bury(self, handle: Handle) -> None:
        """Resolve everything a dead child had, and see to its seat."""
        if handle.state is State.DEAD:
            return
        if handle.state is State.STARTING and not self._closed:
            self._hear_last_words(handle)
        loop = asyncio.get_running_loop()
        loop.remove_reader(handle.channel)
        if handle.report_timer is not None:
            handle.report_timer.cancel()
        if handle.pidfd >= 0:
            loop.remove_reader(handle.pidfd)
        events = judge(handle, self._dispatcher)
        failed = _failed_to_start(handle) and not events and not handle.is_orphan
        if handle.feed.finished:
            self._settled(handle)
        self._dispatcher.remove(handle.feed)
        handle.close()
        del self._handles[handle.number]
        self._forks.forget(handle.number)
        self.seats.leave(handle)
        if failed and not self._closed:
            self._failed(_why(handle))
        try:
            self.seats.fill()
        finally:
            self._reports.on_resolved(events)
            self._reports.on_change()

    def _hear_last_words(self, handle: Handle) -> None:
        """Learn why a child did not start; where this process has stood still, its end may be heard of first."""
        with contextlib.suppress(ChannelClosedError):
            if (frame := handle.channel.poll()) is not None and frame.op in ("failed", "unfit"):
                self._on_failure(handle, frame)

    def _failed(self, text: str) -> None:
        """Count a start that went wrong, and give up if that was one too many, else try again after a while."""
        if self._failures.wait_s:
            return  # it was started together with one that has failed already
        self._failures.count()
        if self._failures.are_too_many:
            self._closed = True
            self._reports.on_notice(text)
            self._reports.on_failed(PoolStartError(text))
            return
        wait_s = self._failures.wait_s
        self._reports.on_notice(f"{text}\nthe next try is in {wait_s:.1f} s")
        self._refill = asyncio.get_running_loop().call_later(wait_s + _CLOCK_S, self.seats.fill)

    def _settled(self, handle: Handle) -> None:
        """Note that a child works; at the start one of them does not make up for others that cannot start."""
        if self._has_begun:
            handle.is_settled = True
            self._failures.clear()
            self._forks.settle()

    # Tick ---------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Kill what is too slow to start, to begin a task or to exit; without a pidfd, look who is gone."""
        now = time.monotonic()
        for handle in self.handles:
            age = now - handle.since_s
            if handle.state is State.READY and age > _YOUNG_S and self._has_begun and not handle.is_settled:
                self._settled(handle)
            elif handle.state is State.STARTING and age > self._config.start_timeout:
                handle.text = f"\nit was not ready after {self._config.start_timeout} s"
                handle.kill()
            elif handle.state is State.READY and handle.feed.is_deaf(now_ns(), _DEAF_NS):
                self._reports.on_notice(f"worker process {handle.pid} is replaced: it has begun nothing for 30 s")
                handle.kill()
            elif handle.state is State.EXITING and age > _EXIT_WAIT_S:
                handle.kill()
            elif handle.is_orphan and handle.pidfd < 0 and not _exists(handle.pid):
                self._bury(handle)
        self.seats.fill()  # what could not be ordered before
        self.seats.recycle()

    # Stop ---------------------------------------------------------------------------------------------------------

    async def stop(self, within: float) -> None:
        """End every child; what still runs in them is resolved as their fate has it.

        ``within`` is for children that have nothing to do at their end; others have 5 s.
        """
        self._closed = True
        if self._refill is not None:
            self._refill.cancel()
        for handle in self.handles:
            if handle.feed.pending or handle.state is State.STARTING:
                handle.kill()
            elif handle.state is not State.KILLED:
                dismiss(handle)
        until = time.monotonic() + (_EXIT_WAIT_S if self._has_stop else within)
        while self._handles and time.monotonic() < until:
            await asyncio.sleep(0.002)
        for handle in self.handles:
            handle.kill()
        while self._handles and time.monotonic() < until + _LAST_REPORT_WAIT_S:
            await asyncio.sleep(0.002)
        for handle in self.handles:
            self._bury(handle)
        self._forks.leave(self)


def _refusal(config: PoolConfig) -> str:
    """Return what this system does not have for such a pool, if anything."""
    if config.memory_limit and not rss_of(os.getpid()):
        return "memory_limit: this system does not tell how large a process is"
    return check_descriptors(config.processes)


def _too_small(config: PoolConfig, rss: int) -> str:
    least = rss + (64 << 20)
    for name in ("max_memory_per_child", "memory_limit"):
        limit = getattr(config, name)
        if 0 < limit < least:
            return (
                f"{name} of {limit} bytes is too small: the app alone takes {rss}, "
                f"and with 64 MB to work in that makes {least}"
            )
    return ""


def _failed_to_start(handle: Handle) -> bool:
    if handle.feed.finished:
        return False
    young = handle.state is State.READY and time.monotonic() - handle.since_s < _YOUNG_S
    return handle.state is State.STARTING or young or handle.text != ""


def _why(handle: Handle) -> str:
    fate = "" if handle.status is None else f" with {describe_status(handle.status)}"
    return f"worker process {handle.pid} ended at its start{fate}{handle.text}"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

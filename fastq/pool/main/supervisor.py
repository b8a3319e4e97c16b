"""The supervisor: orders children, notices their ends, resolves their tasks, and fills their seats again.

Wakes on messages of the fork server, on the first message of a child, on the end of a child (pidfd), and at the pool's
tick. If a preloader dies, its children are killed and their tasks resolved. If it is replaced by a reload, its children
are replaced one by one.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastq.pool.main.census import Census, why_ended
from fastq.pool.main.child import Child, ChildState, SharedBell
from fastq.pool.main.child_queue import Event
from fastq.pool.main.config import PoolConfig
from fastq.pool.main.dead_child import resolve_dead_child
from fastq.pool.main.dispatcher import Dispatcher
from fastq.pool.main.failures import Failures
from fastq.pool.main.fork_server import ForkServer
from fastq.pool.main.preloader_client import PoolStartError, PreloaderClient
from fastq.pool.main.seats import Seats, dismiss
from fastq.pool.shared.control import ChannelClosedError, Frame
from fastq.pool.shared.descriptors import check_descriptors
from fastq.pool.shared.processes import describe_status, open_pidfd, rss_of
from fastq.pool.shared.ring import now_ns

# How long to wait for the preloader's report of a child that is known to be dead. It is long, because on a machine that
# is short of everything the cause of a death matters most.
_REPORT_WAIT_S = 2.0
_LAST_REPORT_WAIT_S = 0.5  # the same during shutdown, which must be quick
_YOUNG_S = 1.0  # a child that was ready for a shorter time and ended no task counts as a failed start
_CLOCK_S = 0.01  # how much too early a timer may fire
_EXIT_WAIT_S = 5.0  # for a child that was told to exit
_DEAF_NS = 30_000_000_000  # an idle child that reads no waiting task for so long is stopped, or stuck in the kernel


@dataclass(frozen=True, slots=True)
class Reports:
    """The callbacks of the supervisor."""

    on_resolved: Callable[[list[Event]], None]
    on_change: Callable[[], None]  # a child came or went
    on_notice: Callable[[str], None]
    on_info: Callable[[str], None]
    on_failed: Callable[[PoolStartError], None]
    on_description: Callable[[str], None]


class Supervisor:
    """The children of a pool, from order to death."""

    def __init__(
        self,
        config: PoolConfig,
        shared_bell: SharedBell,
        dispatcher: Dispatcher,
        reports: Reports,
        forks: ForkServer,
    ) -> None:
        self._config = config
        self._shared_bell = shared_bell
        self._dispatcher = dispatcher
        self._reports = reports
        self._forks = forks
        self._children: dict[int, Child] = {}
        self._failures = Failures()
        self.census = Census()
        self._closed = False
        self._refill: asyncio.TimerHandle | None = None
        self._patient_until_s = 0.0
        self._has_stop = False  # the app has functions that children call before they exit
        self._has_begun = False  # every seat has had a child that was ready
        self._stop_announced = False
        self.seats = Seats(config, dispatcher, self._order, reports.on_info)
        self.only_async = False
        self.description = ""

    @property
    def children(self) -> list[Child]:
        """Return every child that is not dead."""
        return list(self._children.values())

    async def start(self) -> None:
        """Wait for the import of the app and order the children, which become ready one by one (``on_change``).

        Raises ``PoolStartError`` when the app cannot be imported, or there are too few descriptors for the children.
        """
        if refusal := _refusal(self._config):
            raise PoolStartError(refusal)
        await self._forks.join(self)
        self._patient_until_s = time.monotonic() + self._config.start_patience
        self.seats.fill()

    # Orders -------------------------------------------------------------------------------------------------------

    def _order(self, device: str) -> Child | None:
        """Order one more child, with a device; return ``None`` if that must wait."""
        if not self._forks.takes_orders or self._closed or self._failures.wait_s:
            return None
        if self._failures and any(child.state is ChildState.STARTING for child in self.children):
            return None  # after a failed start children are ordered one by one: there may be no memory for all at once
        try:
            child = Child.create(self._forks.next_number(), self._config)
        except OSError as error:
            self._failed(f"no worker process can be started: {error}")
            return None
        fds = child.order_fds(self._shared_bell)
        child.preloader = self._forks.order(self, child.number, fds, self._config, device)
        if child.preloader is None:
            child.close()
            return None
        child.ordered()
        if self._stop_announced:
            child.queue.announce_stop()
        self._children[child.number] = child
        asyncio.get_running_loop().add_reader(child.channel, self._on_words, child)
        return child

    # News ---------------------------------------------------------------------------------------------------------

    def _on_words(self, child: Child) -> None:
        """Read the first message of a child: it is ready, or it reports why not."""
        frame = None
        with contextlib.suppress(ChannelClosedError):
            frame = child.channel.poll()
            if frame is None:
                return
        asyncio.get_running_loop().remove_reader(child.channel)
        if frame is None or child.state is not ChildState.STARTING:
            return  # the kernel or the preloader reports its end
        if frame.op in ("failed", "unfit"):
            self._on_failure(child, frame)
            return
        if not child.pid:  # the preloader's message is still under way, or the preloader is stuck
            self._watch(child, frame.number("pid"), open_pidfd(frame.number("pid")))
        refusal = _too_small(self._config, frame.number("rss"))
        if refusal:
            child.text = f": {refusal}"
            child.kill()
            if not self._has_begun:  # after the start of the pool, it is a failed start like others
                self._reports.on_failed(PoolStartError(refusal))
            return
        if not child.is_outdated:
            self.only_async = bool(frame.body.get("has_async")) and not frame.body.get("has_plain")
            self.description = frame.text("description")
            self._reports.on_description(self.description)
        self._has_stop = bool(frame.body.get("has_stop"))
        child.state, child.since_s = ChildState.READY, time.monotonic()
        self._dispatcher.add(child.queue)
        self.seats.fill()
        self.seats.recycle()
        self._has_begun = self._has_begun or self.seats.all_ready
        self._reports.on_change()

    def _on_failure(self, child: Child, frame: Frame) -> None:
        child.text = f"\n{frame.text('text')}"
        child.failed_hook = frame.text("hook")
        if frame.op == "failed" and not self.description:  # no child was ever ready: this is the app's fault
            self._closed = True
            self._reports.on_failed(PoolStartError.of_frame(frame, self._config.name))

    def on_frame(self, frame: Frame) -> None:
        """Handle the preloader's message that a child was forked or has ended."""
        child = self._children[frame.number("child")]
        if frame.op == "forked":
            self._on_forked(child, frame)
        elif frame.op == "unforked":
            child.text = f"\n{frame.text('text')}"
            self._bury(child)
        elif frame.op == "exited":
            child.status = frame.number("status")
            child.peak_rss = frame.number("peak_rss")
            self._bury(child)

    def _on_forked(self, child: Child, frame: Frame) -> None:
        if not child.pid:
            pid = frame.number("pid")
            self._watch(child, pid, frame.fds[0] if frame.fds else open_pidfd(pid))
        else:
            for fd in frame.fds:
                os.close(fd)
        if child.state is ChildState.KILLED:  # it was killed before its pid was known
            child.state = ChildState.STARTING
            child.kill(child.blamed)

    def _watch(self, child: Child, pid: int, pidfd: int) -> None:
        child.pid, child.pidfd = pid, pidfd
        if pidfd >= 0:
            asyncio.get_running_loop().add_reader(pidfd, self._on_end, child)

    def _on_end(self, child: Child) -> None:
        """Note the kernel's report that a child is dead, and wait for the preloader's report of how it died."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(child.pidfd)
        child.report_timer = loop.call_later(0 if child.is_orphan else _REPORT_WAIT_S, self._bury, child)

    def on_lost(self, preloader: PreloaderClient) -> bool:
        """Give up the children of a dead preloader; return whether any of them has worked."""
        orphans = [child for child in self.children if child.preloader is preloader]
        have_worked = any(child.queue.finished for child in orphans)
        for child in orphans:
            child.is_orphan = True
            if child.pid:
                child.kill()
            if not child.pid or child.report_timer:  # a child that was forked has been killed by its lifeline
                self._bury(child)
        return have_worked

    def on_room(self) -> None:
        """Order the children that had to wait: the preloader has answered an order."""
        self.seats.fill()

    def on_up(self, preloader: PreloaderClient) -> None:
        """Fill the seats from another preloader, and begin to replace the children of the old one."""
        self._failures.try_now()
        for child in self.children:
            child.is_outdated = child.preloader is not preloader
        self.seats.fill()
        self.seats.recycle()

    def on_failed(self, error: PoolStartError) -> None:
        """Give up: there is no preloader any more."""
        self._closed = True
        self._reports.on_failed(error)

    # The end of a child -------------------------------------------------------------------------------------------

    def _bury(self, child: Child) -> None:
        """Resolve all tasks of a dead child, and fill its seat again."""
        if child.state is ChildState.DEAD:
            return
        if child.state is ChildState.STARTING and not self._closed:
            self._hear_last_words(child)
        loop = asyncio.get_running_loop()
        loop.remove_reader(child.channel)
        if child.report_timer is not None:
            child.report_timer.cancel()
        if child.pidfd >= 0:
            loop.remove_reader(child.pidfd)
        self.census.ended[why_ended(child, was_closed=self._closed)] += 1
        events = resolve_dead_child(child, self._dispatcher)
        failed = _failed_to_start(child) and not events and not child.is_orphan
        if child.queue.finished:
            self._settled(child)
        self._dispatcher.remove(child.queue)
        child.close()
        del self._children[child.number]
        self._forks.forget(child.number)
        self.seats.leave(child, has_failed=failed)
        if failed and not self._closed:
            self._failed(_why(child), is_unfit=bool(child.failed_hook))
        try:
            self.seats.fill()
        finally:
            self._reports.on_resolved(events)
            self._reports.on_change()

    def _hear_last_words(self, child: Child) -> None:
        """Read why a child did not start.

        If this process was suspended, it may see the child's end before the reason.
        """
        with contextlib.suppress(ChannelClosedError):
            if (frame := child.channel.poll()) is not None and frame.op in ("failed", "unfit"):
                self._on_failure(child, frame)

    def _failed(self, text: str, *, is_unfit: bool = False) -> None:
        """Count a failed start; give up after too many, otherwise try again after the back-off.

        A failed ``child_start`` is tried for longer: what it needs, such as a database, may still come.
        """
        if self._failures.wait_s:
            return  # a child that was started together with it has failed already
        self._failures.count()
        is_patient = is_unfit and time.monotonic() < self._patient_until_s
        if self._failures.are_too_many and not is_patient:
            self._closed = True
            self._reports.on_failed(PoolStartError(text))
            return
        wait_s = self._failures.wait_s
        most = "" if self._has_begun or not is_patient else f", for {self._config.start_patience:g} s (--start-timeout)"
        self._reports.on_notice(f"{text.rstrip()}\nretrying in {wait_s:.1f} s{most}")
        self._refill = asyncio.get_running_loop().call_later(wait_s + _CLOCK_S, self.seats.fill)

    def _settled(self, child: Child) -> None:
        """Note that a child works; until all seats were ready once, this proves nothing about the other children."""
        if self._has_begun:
            child.is_settled = True
            self._failures.clear()
            self._forks.settle()

    # Tick ---------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Kill children that are too slow to start, to begin a task or to exit; without pidfds, look for dead ones."""
        now = time.monotonic()
        for child in self.children:
            age = now - child.since_s
            if child.state is ChildState.READY and age > _YOUNG_S and self._has_begun and not child.is_settled:
                self._settled(child)
            elif child.state is ChildState.STARTING and age > self._config.start_timeout:
                child.text = f"\nit was not ready after {self._config.start_timeout} s"
                child.kill()
            elif child.state is ChildState.READY and child.queue.is_deaf(now_ns(), _DEAF_NS):
                self._reports.on_notice(f"worker process {child.pid} is replaced: it has started no task for 30 s")
                child.kill()
            elif child.state is ChildState.EXITING and age > _EXIT_WAIT_S:
                child.kill()
            elif child.is_orphan and child.pidfd < 0 and not _exists(child.pid):
                self._bury(child)
        self.seats.fill()  # with children that could not be ordered earlier
        self.seats.recycle()

    # Stop ---------------------------------------------------------------------------------------------------------

    def announce_stop(self) -> None:
        """Let the tasks of all children see that they should come to an end."""
        self._stop_announced = True
        for child in self.children:
            child.queue.announce_stop()

    async def stop(self, within: float) -> None:
        """End every child, and resolve the tasks that still run by how their children die.

        Children have ``within`` seconds to exit, or 5 s if they have stop functions.
        """
        self._closed = True
        if self._refill is not None:
            self._refill.cancel()
        for child in self.children:
            if child.queue.pending or child.state is ChildState.STARTING:
                child.kill()
            elif child.state is not ChildState.KILLED:
                dismiss(child)
        until = time.monotonic() + (_EXIT_WAIT_S if self._has_stop else within)
        while self._children and time.monotonic() < until:
            await asyncio.sleep(0.002)
        for child in self.children:
            child.kill()
        while self._children and time.monotonic() < until + _LAST_REPORT_WAIT_S:
            await asyncio.sleep(0.002)
        for child in self.children:
            self._bury(child)
        self._forks.leave(self)


def _refusal(config: PoolConfig) -> str:
    """Return why this system cannot run such a pool, "" if it can."""
    if config.memory_limit and not rss_of(os.getpid()):
        return "memory_limit: this system does not report the memory of a process"
    return check_descriptors(config.processes)


def _too_small(config: PoolConfig, rss: int) -> str:
    least = rss + (64 << 20)
    for name in ("max_memory_per_child", "memory_limit"):
        limit = getattr(config, name)
        if 0 < limit < least:
            return (
                f"{name} of {limit} bytes is too small: the app alone takes {rss}, "
                f"so with 64 MB of working memory it must be at least {least}"
            )
    return ""


def _failed_to_start(child: Child) -> bool:
    if child.queue.finished:
        return False
    young = child.state is ChildState.READY and time.monotonic() - child.since_s < _YOUNG_S
    return child.state is ChildState.STARTING or young or child.text != ""


def _why(child: Child) -> str:
    if child.failed_hook:
        hook = f"the app's lifespan or child_start {child.failed_hook!r}"
        return f"worker process {child.pid} takes no tasks, because {hook} failed:{child.text}"
    fate = "" if child.status is None else f" with {describe_status(child.status)}"
    return f"worker process {child.pid} ended while starting{fate}{child.text}"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

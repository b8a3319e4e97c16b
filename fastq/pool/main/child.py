"""One child as the main process sees it: its segment, its queue, its control socket and its state.

A child takes two descriptors in the main process: the socket and the pidfd.
"""

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

from fastq.pool.main.child_queue import ChildQueue, Submission
from fastq.pool.main.config import PoolConfig
from fastq.pool.main.preloader_client import PreloaderClient
from fastq.pool.main.wakeup import Wakeup
from fastq.pool.shared.control import Channel
from fastq.pool.shared.layout import Layout
from fastq.pool.shared.memory import Segment, write_header
from fastq.pool.shared.processes import kill_group, send_signal
from fastq.pool.shared.ring import Memory
from fastq.pool.shared.signals import SOFT_SIGNAL


class ChildState(Enum):
    """The phase of a child's life."""

    STARTING = auto()
    """Ordered, but not yet reported as ready."""
    READY = auto()
    """Able to take tasks, which it gets if its queue is open."""
    LEAVING = auto()
    """Given no more tasks; told to exit once the results of all its tasks are read."""
    EXITING = auto()
    """Told to exit."""
    KILLED = auto()
    """The main process has sent SIGKILL; the end of the child is not known yet."""
    DEAD = auto()
    """Gone; each task that it had is resolved."""


@dataclass(frozen=True, slots=True)
class SharedBell:
    """The bell that all children share, and the descriptor that rings it."""

    bell: Segment
    ring: Wakeup


class Child:
    """A child, from the order to fork it until all its tasks are resolved."""

    def __init__(self, number: int, config: PoolConfig, shape: Layout) -> None:
        self.number = number
        self.state = ChildState.STARTING
        self.since_s = time.monotonic()  # when it got its present state
        self.pid = 0
        self.pidfd = -1
        self.blamed: Submission | None = None  # the task because of which the main process killed the child
        self.is_settled = False  # it has ended a task, or been ready for a while
        self.preloader: PreloaderClient | None = None  # the one that forked it
        self.is_outdated = False  # another preloader is in charge, so the child will be replaced
        self.is_too_big = False  # it has grown above memory_limit, so it will be replaced
        self.why_replaced = ""  # in one word, since it leaves
        self.is_orphan = False  # its preloader is dead and cannot report how it ended
        self.peak_rss = 0
        self.rss = 0  # at the last look
        self.report_timer: asyncio.TimerHandle | None = None  # limits the wait for the preloader's report of its end
        self.status: int | None = None
        self.text = ""  # why it could not start
        self.failed_hook = ""  # the function of child_start that has raised
        self.segment = Segment.create(shape.size)
        write_header(self.segment, shape)
        try:
            self.channel, self._far_channel = Channel.pair()
        except OSError:
            self.segment.close_fd()
            raise
        self.channel.set_blocking(False)
        self.queue = ChildQueue(Memory(self.segment.memory), shape, self.channel, config.max_tasks_per_child)

    @classmethod
    def create(cls, number: int, config: PoolConfig) -> Self:
        """Make everything that a new child needs."""
        threads = config.threads if config.threads > 1 else 0
        return cls(number, config, Layout(config.async_concurrency + threads, config.ring_bytes, threads))

    def order_fds(self, shared_bell: SharedBell) -> list[int]:
        """Return the descriptors that go with the order, as ``ChildSetup`` expects them."""
        return [self._far_channel.fileno(), self.segment.fd, shared_bell.bell.fd, shared_bell.ring.write_fd]

    def ordered(self) -> None:
        """Close the descriptors that only the child needs, once the order is sent."""
        self._far_channel.close()
        self.segment.close_fd()

    def kill(self, blamed: Submission | None = None) -> None:
        """Send SIGKILL to the child's process group; ``blamed`` is the task that is charged for it."""
        if self.state in (ChildState.KILLED, ChildState.DEAD):
            return
        self.state = ChildState.KILLED
        self.blamed = None if blamed is None else blamed.unit
        self.queue.set_open(False)
        if not self.pid or self.status is not None:
            return
        # The preloader kills the group, too, before it reaps the child; after that the pid may belong to another
        # process.
        if send_signal(self.pid, self.pidfd, signal.SIGKILL):
            kill_group(self.pid)

    def signal(self, submission: Submission) -> None:
        """Signal the child that a task is asked to end; the child checks in the task's row that the task still runs."""
        if submission.is_async:
            self.queue.wake()
        else:
            send_signal(self.pid, self.pidfd, SOFT_SIGNAL)

    def close(self) -> None:
        """Release the resources of a dead child."""
        self.state = ChildState.DEAD
        self.ordered()
        self.channel.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

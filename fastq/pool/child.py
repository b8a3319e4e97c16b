"""What the main process owns of one child: its segment, its rings' near side, its control socket, its fate.

Two descriptors: the socket and the pidfd.
"""

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

from fastq.pool._child_queue import ChildQueue, Submission
from fastq.pool._ring import Memory
from fastq.pool.config import PoolConfig
from fastq.pool.control import Channel
from fastq.pool.layout import Layout
from fastq.pool.memory import Segment, write_header
from fastq.pool.preloader_client import PreloaderClient
from fastq.pool.processes import kill_group, send_signal
from fastq.pool.signals import SOFT_SIGNAL
from fastq.pool.wakeup import Wakeup

__all__ = ["Child", "ChildState", "SharedBell"]


class ChildState(Enum):
    """The phase of a child's life."""

    STARTING = auto()
    """Ordered; it has not said that it is ready."""
    READY = auto()
    """It could take tasks, and does if its queue is open."""
    LEAVING = auto()
    """It gets no more; once it has answered for what it has, it is told to exit."""
    EXITING = auto()
    """It was told to exit."""
    KILLED = auto()
    """The main process has sent SIGKILL; its end is not known yet."""
    DEAD = auto()
    """It is gone, and everything it had is resolved."""


@dataclass(frozen=True, slots=True)
class SharedBell:
    """What all children share: the bell, and the descriptor that rings it."""

    bell: Segment
    ring: Wakeup


class Child:
    """One child, from the order to fork it until all its tasks are resolved."""

    def __init__(self, number: int, config: PoolConfig, shape: Layout) -> None:
        self.number = number
        self.state = ChildState.STARTING
        self.since_s = time.monotonic()  # in this state
        self.pid = 0
        self.pidfd = -1
        self.blamed: Submission | None = None  # the task for whose sake the main process killed it
        self.is_settled = False  # it has worked, or been ready for a while
        self.preloader: PreloaderClient | None = None  # to the preloader that forked it
        self.is_outdated = False  # another preloader is in charge: it is to be replaced
        self.is_too_big = False  # it has grown above memory_limit: it is to be replaced
        self.is_orphan = False  # its preloader is dead: nobody will say how it ended
        self.peak_rss = 0
        self.report_timer: asyncio.TimerHandle | None = None  # for the preloader's word on how it ended
        self.status: int | None = None
        self.text = ""  # why it could not start
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
        return cls(number, config, Layout(config.async_concurrency, config.ring_bytes))

    def order_fds(self, shared_bell: SharedBell) -> list[int]:
        """Return the descriptors that go with the order, as ``ChildSetup`` expects them."""
        return [self._far_channel.fileno(), self.segment.fd, shared_bell.bell.fd, shared_bell.ring.write_fd]

    def ordered(self) -> None:
        """Close what is the child's alone, once it was passed on."""
        self._far_channel.close()
        self.segment.close_fd()

    def kill(self, blamed: Submission | None = None) -> None:
        """Send SIGKILL to the child's process group; ``blamed`` is the task that is to answer for it."""
        if self.state in (ChildState.KILLED, ChildState.DEAD):
            return
        self.state = ChildState.KILLED
        self.blamed = blamed
        self.queue.set_open(False)
        if not self.pid or self.status is not None:
            return
        # Once it is reaped the preloader has killed the group before that, and the number may be another's.
        if send_signal(self.pid, self.pidfd, signal.SIGKILL):
            kill_group(self.pid)

    def signal(self, submission: Submission) -> None:
        """Signal the child that its row asks for the end of a task; the child checks that it still runs it."""
        if submission.is_async:
            self.queue.wake()
        else:
            send_signal(self.pid, self.pidfd, SOFT_SIGNAL)

    def close(self) -> None:
        """Give everything back; the child is dead."""
        self.state = ChildState.DEAD
        self.ordered()
        self.channel.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

"""A child: takes tasks from its ring, runs them through the runner, and sends the results.

It is forked by the preloader, or is a fresh interpreter. Wakes when the main process rings; reads the task ring, the
slot table and the command word; writes results and rows. If it dies, its ring and rows show the main process which
tasks it had. If the main process dies, the kernel kills the child.
"""

import asyncio
import errno
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NoReturn, Self

from fastq.common.devices import assign
from fastq.log.handling import take_locks_by_with
from fastq.log.traces import own_trace
from fastq.pool.child.coroutines import Coroutines
from fastq.pool.child.lifeline import arm
from fastq.pool.child.loader import RunnerLoadError, load_runner
from fastq.pool.child.steps import Stage
from fastq.pool.child.work import NOTHING_LEFT, PARKED, TOLD_TO_EXIT, WANTS_COROUTINE, Work
from fastq.pool.shared import signals
from fastq.pool.shared.control import Channel, ChannelBusyError, ChannelClosedError
from fastq.pool.shared.memory import Segment, pack_segment, read_header, unpack_segment
from fastq.pool.shared.processes import end_process, flush_output, leave, own_rss, write_lines_at_once
from fastq.pool.shared.ring import Memory
from fastq.pool.shared.runner import Runner

_IDLE_MS = 60_000
_PAUSE_S = 0.001
_BUSY_PAUSE_S = 0.005

_log = logging.getLogger("fastq.worker")


@dataclass(frozen=True, slots=True)
class ChildSetup:
    """The descriptors and settings that a child starts with."""

    lifeline_fd: int
    control_fd: int
    segment_fd: int
    bell_fd: int
    ring_fd: int
    max_memory: int

    @classmethod
    def from_fds(cls, fds: list[int], max_memory: int) -> Self:
        """Take the descriptors in the order of ``fds()``."""
        lifeline, control, segment, bell, ring = fds
        return cls(lifeline, control, segment, bell, ring, max_memory)

    def fds(self) -> list[int]:
        """Return every descriptor in the order in which they are passed."""
        return [getattr(self, field.name) for field in fields(self)[:-1]]


class Host:
    """The system calls of the child's hot loop, by which the child sleeps, passes segments, and measures its memory."""

    def __init__(self, setup: ChildSetup) -> None:
        self.ring_fd = setup.ring_fd
        self.wake_fd = setup.control_fd
        self.max_memory = setup.max_memory
        self.channel = Channel(socket.socket(fileno=setup.control_fd))
        self.on_drained: Callable[[], object] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._poller = select.poll()
        self._poller.register(setup.control_fd, select.POLLIN)

    def sleep(self) -> None:
        """Wait until the main process rings; only for the thread that runs the tasks."""
        self._poller.poll(_IDLE_MS)
        self.drain()
        if self.on_drained is not None:
            self.on_drained()

    def pause(self) -> None:
        """Wait a moment in another thread, which must not consume the main process's wake-up."""
        time.sleep(_PAUSE_S)

    def drain(self) -> None:
        """Consume the wake-up."""
        try:
            self.channel.drain()
        except ChannelClosedError:
            _end_with_main()

    def receive_segment(self, wanted: bool) -> bytes:
        """Take the next segment off the control socket; return its data if ``wanted``.

        Raises ``OSError`` if its descriptor was dropped because this process may open no more.
        """
        frame = self.channel.receive()
        if not frame.fds:
            raise OSError(errno.EMFILE, "the segment of a task was lost: this process has no descriptor left")
        (fd,) = frame.fds
        if not wanted:
            os.close(fd)
            return b""
        return unpack_segment(fd, frame.number("size"))

    def send_segment(self, data: bytes, number: int) -> None:
        """Put bytes that do not fit the ring into a segment and pass it to the main process."""
        fd = pack_segment(data)
        try:
            while not self._send_descriptor(fd, len(data), number):
                time.sleep(_BUSY_PAUSE_S)
        finally:
            os.close(fd)

    def _send_descriptor(self, fd: int, size: int, number: int) -> bool:
        """Pass a segment; return False if the socket takes no descriptor now."""
        try:
            self.channel.send("segment", [fd], size=size, number=number)
        except ChannelBusyError:
            return False
        return True

    def rss(self) -> int:
        """Return the resident bytes of this process."""
        return own_rss()


def run_child(setup: ChildSetup, runner: Runner) -> None:
    """Serve the rings until told to exit.

    The caller has made this process the leader of its group and has armed its lifeline.
    """
    try:
        _serve(setup, runner)
        end_process()
    except ChannelClosedError:
        _end_with_main()
    except BaseException as error:  # noqa: BLE001 - a defect: what ran is charged now, not when the app's threads end
        leave(error)


def _end_with_main() -> NoReturn:
    """Kill this process group, as the cut lifeline is about to: the main process is gone.

    If only this process ended, the processes that its handlers have started might live on: the kernel's signal to the
    group is armed only as long as the leader lives, and the preloader may be gone before it reaps.
    """
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _serve(setup: ChildSetup, runner: Runner) -> None:
    segment, bell = Segment.attach(setup.segment_fd), Segment.attach(setup.bell_fd)
    shape = read_header(segment)
    host, memory = Host(setup), Memory(segment.memory)
    work = Work(memory, Memory(bell.memory), shape, runner, host)
    stage = Stage(memory)
    signals.install(work.interrupt)
    if shape.threads:
        take_locks_by_with()
    os.register_at_fork(before=flush_output, after_in_child=work.disown)
    os.register_at_fork(after_in_child=stage.disown)
    coroutines = Coroutines(work, stage, runner, host, shape.rows - shape.threads)
    hook = ""
    try:
        for start in runner.child_start:
            hook = getattr(start, "__qualname__", repr(start))
            coroutines.call(start)
        hook = ""
        if runner.has_async:
            coroutines.make_loop()
        coroutines.threads.prepare()
    except BaseException as error:  # noqa: BLE001 - whatever it is, this child must not serve
        host.channel.send("unfit", text=own_trace(error), hook=hook)
        sys.exit(1)
    host.channel.send(
        "ready",
        pid=os.getpid(),
        rss=work.measure(),
        has_plain=runner.has_plain,
        has_async=runner.has_async,
        has_stop=bool(runner.child_stop),
        description=runner.description,
    )
    while (why := work.run()) != TOLD_TO_EXIT:
        if why == WANTS_COROUTINE:
            coroutines.serve()
        elif why in (NOTHING_LEFT, PARKED) and work.fall_asleep():
            host.sleep()
            work.wake_up()
    coroutines.threads.close()
    for stop in runner.child_stop:
        try:
            coroutines.call(stop)
        except BaseException:  # noqa: BLE001 - it can only be logged; the other functions are called all the same
            _log.exception("child_stop failed")


def begin(setup: ChildSetup, spec: str, argument: str, runner: Runner | None = None) -> None:
    """Load the runner unless it is given, and serve; the caller has armed the lifeline."""
    if runner is None:
        try:
            runner = load_runner(spec, argument)
        except RunnerLoadError as error:
            Channel(socket.socket(fileno=setup.control_fd)).send("failed", text=str(error), is_misuse=error.is_misuse)
            sys.exit(1)
    run_child(setup, runner)


def main() -> None:
    """Run a child that the preloader started: ``… fastq.pool.child.run MAX_MEMORY DEVICE RUNNER ARGUMENT FD...``."""
    max_memory, device, spec, argument, *fds = sys.argv[1:]
    if device:
        assign(device)
    setup = ChildSetup.from_fds([int(fd) for fd in fds], int(max_memory))
    for fd in setup.fds():
        os.set_inheritable(fd, False)
    arm(setup.lifeline_fd)
    signals.leave_to_main()
    write_lines_at_once()
    begin(setup, spec, argument)


if __name__ == "__main__":
    main()

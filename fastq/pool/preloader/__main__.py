"""The preloader: imports the app once, forks a child for every order, reports how each ended.

It has one thread. Wakes on an order of the main process or the end of a child; writes only to the control socket. It
holds the children's lifelines: when the main process dies, the kernel kills the preloader, and with it the children. If
the preloader dies, its children die, too, and the main process starts another preloader. With ``start_method="spawn"``
it imports nothing, and its children are fresh interpreters. An order may name another runner than the one loaded here;
its child still finds the app imported.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from fastq.common.devices import assign, assigned, used_by_this_process
from fastq.pool.child.lifeline import arm
from fastq.pool.child.loader import RunnerLoadError, load_runner
from fastq.pool.child.run import ChildSetup, begin
from fastq.pool.preloader.fork_safety import findings, open_descriptors
from fastq.pool.shared import signals
from fastq.pool.shared._memory import give_back_free_memory
from fastq.pool.shared.control import Channel, ChannelBusyError, ChannelClosedError, Frame
from fastq.pool.shared.descriptors import raise_soft_limit, set_soft_limit
from fastq.pool.shared.processes import flush_output, kill_group, open_pidfd, own_rss, peak_rss, write_lines_at_once
from fastq.pool.shared.runner import Runner

_REAP_MS = 50  # the time between two looks where there is no pidfd
_SETTLE_S = 5
_TOUCHED = (
    "after the import of the app, so children that are forked cannot use their devices: begin with a device in "
    "@app.lifespan or @mux.child_start, or use --start-method spawn"
)


@dataclass(frozen=True, slots=True)
class _Child:
    number: int  # given by the main process
    pidfd: int
    lifeline: int  # the write end

    def close(self) -> None:
        os.close(self.lifeline)
        if self.pidfd >= 0:
            os.close(self.pidfd)


class Preloader:
    """The server loop of a preloader: forks and reaps."""

    def __init__(self, channel: Channel, order: Frame, runner: Runner | None, soft_limit: int) -> None:
        self._channel = channel
        self._loaded = order.text("runner"), order.text("argument")
        self._runner = runner
        self._soft_limit = soft_limit
        self._children: dict[int, _Child] = {}
        self._poller = select.poll()
        self._poller.register(channel, select.POLLIN)

    def serve(self) -> Callable[[], None] | None:
        """Follow orders until told to exit; in a forked child, return the function that it must run."""
        while True:
            without_pidfd = any(child.pidfd < 0 for child in self._children.values())
            self._poller.poll(_REAP_MS if without_pidfd else None)
            self._reap()
            while (frame := self._channel.poll()) is not None:
                if frame.op == "exit":
                    return None
                if (job := self._fork(frame)) is not None:
                    return job

    def kill_all(self) -> None:
        """Kill every child with its group, and wait for their ends."""
        for pid in self._children:
            kill_group(pid)
        with contextlib.suppress(ChildProcessError):
            signal.alarm(_SETTLE_S)  # init will reap a child that is stuck in the kernel
            while True:
                os.wait()

    def _fork(self, frame: Frame) -> Callable[[], None] | None:
        number, fds = frame.number("child"), frame.fds
        lifeline = -1
        flush_output()  # a forked child would write it again
        try:
            lifeline_read, lifeline = os.pipe()
            fds = [lifeline_read, *fds]
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes
            for fd in fds if lifeline < 0 else [lifeline, *fds]:
                os.close(fd)
            self._channel.send("unforked", child=number, text=f"cannot fork: {error}")
            return None
        if pid == 0:
            os.close(lifeline)
            setup = ChildSetup.from_fds(fds, frame.number("max_memory"))
            if device := frame.text("device"):
                assign(device)
            return self._become_child(setup, frame.text("runner"), frame.text("argument"))
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # parent and child both do it, so that it is done before either goes on
        for fd in fds:
            os.close(fd)
        pidfd = open_pidfd(pid)
        self._children[pid] = _Child(number, pidfd, lifeline)
        if pidfd >= 0:
            self._poller.register(pidfd, select.POLLIN)
        try:
            self._channel.send("forked", [pidfd] if pidfd >= 0 else [], child=number, pid=pid)
        except ChannelBusyError:  # the socket takes no descriptor now; the main process opens one itself
            self._channel.send("forked", child=number, pid=pid)
        return None

    def _become_child(self, setup: ChildSetup, spec: str, argument: str) -> Callable[[], None]:
        os.setpgid(0, 0)
        for child in self._children.values():
            child.close()
        set_soft_limit(self._soft_limit)
        if self._runner is not None:
            runner = self._runner if (spec, argument) == self._loaded else None
            arm(setup.lifeline_fd)
            return lambda: begin(setup, spec, argument, runner)
        for fd in setup.fds():
            os.set_inheritable(fd, True)
        fds = [str(fd) for fd in setup.fds()]
        command = [
            sys.executable,
            "-m",
            "fastq.pool.child.run",
            str(setup.max_memory),
            assigned() or "",
            spec,
            argument,
            *fds,
        ]
        os.execv(sys.executable, command)

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            # Look without reaping: a zombie keeps its pid, so the group that is killed is surely the child's.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            kill_group(pid)
            _, status, usage = os.wait4(pid, 0)
            del self._children[pid]
            if child.pidfd >= 0:
                self._poller.unregister(child.pidfd)
            child.close()
            cpu_us = round((usage.ru_utime + usage.ru_stime) * 1e6)
            self._channel.send("exited", child=child.number, status=status, peak_rss=peak_rss(usage), cpu_us=cpu_us)


def _import_app(channel: Channel, order: Frame) -> Runner | None:
    """Load the runner if children are to be forked; exit if it cannot be loaded."""
    sys.path[:] = order.text("sys_path").split(os.pathsep)
    signals.leave_to_main()
    if order.text("start_method") != "forkserver":
        return None
    try:
        runner = load_runner(order.text("runner"), order.text("argument"))
        if order.number("has_devices") and (what := used_by_this_process()):
            raise RunnerLoadError(f"{what} {_TOUCHED}", is_misuse=True)
        return runner
    except RunnerLoadError as error:
        channel.send("failed", text=str(error), is_misuse=error.is_misuse)
        flush_output()
        os._exit(1)


def _serve(channel: Channel) -> Callable[[], None] | None:
    """Load the app and follow orders; return the function that a forked child must run, ``None`` at the end."""
    order = channel.receive()
    (lifeline,) = order.fds
    if sys.platform.startswith("linux"):
        arm(lifeline)
    set_soft_limit(order.number("soft_limit"))
    # The main process notices the preloader's death by the end of the channel, which no fork may keep open, also none
    # that the app makes at its import.
    os.register_at_fork(after_in_child=channel.close)
    before = open_descriptors()
    runner = _import_app(channel, order)
    # The app may have changed settings on which the loop below relies.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    soft_limit = raise_soft_limit()  # children get back the limit that the app has left
    flush_output()
    channel.send("loaded", findings="\n".join(findings(before)), rss=own_rss())
    gc.collect()
    give_back_free_memory()
    gc.freeze()  # children share the pages of these objects as long as no collection writes to them
    preloader = Preloader(channel, order, runner, soft_limit)
    pid = os.getpid()
    try:
        return preloader.serve()
    finally:
        if os.getpid() == pid:
            preloader.kill_all()


def main() -> None:
    """Run the preloader: ``python -m fastq.pool.preloader CONTROL_FD``."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    os.set_inheritable(channel.fileno(), False)
    write_lines_at_once()  # before the import of the app, which may choose otherwise
    job, pid = None, os.getpid()
    try:
        job = _serve(channel)
    except ChannelClosedError:
        pass  # the main process is gone
    except BaseException:  # noqa: BLE001 - a defect: print it, and do not run the app's exit functions
        traceback.print_exc()
        os._exit(1)
    if os.getpid() == pid:
        os._exit(0)
    if job is not None:
        job()


if __name__ == "__main__":
    main()

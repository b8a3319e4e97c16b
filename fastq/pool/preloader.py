"""The fork server: imports the app once, forks a child for every order, says how each ended.

One thread. Wakes on an order of the main process or the end of a child; writes only to the control socket. When the
main process goes, it kills every child's process group and ends. If it dies itself, the main process kills the
children and starts another. With ``start_method="spawn"`` it imports nothing, and its children are fresh interpreters.
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

from fastq.pool.child import ChildSetup, run_child
from fastq.pool.control import Channel, ChannelClosedError, Frame
from fastq.pool.lifeline import arm, disarm
from fastq.pool.loader import RunnerLoadError, load_runner
from fastq.pool.processes import kill_group, open_pidfd, own_rss, peak_rss, thread_count
from fastq.pool.runner import Runner

__all__ = ["main"]

_REAP_MS = 50  # where there is no pidfd
_SETTLE_S = 5


class Preloader:
    """Fork and reap."""

    def __init__(self, channel: Channel, spec: str, argument: str, runner: Runner | None) -> None:
        self._channel = channel
        self._spec = spec
        self._argument = argument
        self._runner = runner
        self._children: dict[int, tuple[int, int]] = {}  # pid -> (the main process' number for it, pidfd)
        self._poller = select.poll()
        self._poller.register(channel, select.POLLIN)

    def serve(self) -> Callable[[], None] | None:
        """Follow orders until told to exit; in a forked child, return what it is to run."""
        while True:
            without_pidfd = any(pidfd < 0 for _, pidfd in self._children.values())
            self._poller.poll(_REAP_MS if without_pidfd else None)
            self._reap()
            while (frame := self._channel.poll()) is not None:
                if frame.op == "exit":
                    return None
                if (job := self._fork(frame)) is not None:
                    return job

    def kill_all(self) -> None:
        """Kill every child with its group and wait for their end."""
        for pid in self._children:
            kill_group(pid)
        with contextlib.suppress(ChildProcessError):
            signal.alarm(_SETTLE_S)  # one that does not die even of SIGKILL (stuck in the kernel) is init's
            while True:
                os.wait()

    def _fork(self, frame: Frame) -> Callable[[], None] | None:
        setup = ChildSetup.from_fds(frame.fds, frame.number("max_memory"))
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes
            for fd in frame.fds:
                os.close(fd)
            self._channel.send("unforked", child=frame.number("child"), text=f"cannot fork: {error}")
            return None
        if pid == 0:
            return self._become_child(setup)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # both sides do it, so that it holds from here on
        for fd in frame.fds:
            os.close(fd)
        pidfd = open_pidfd(pid)
        self._children[pid] = (frame.number("child"), pidfd)
        if pidfd >= 0:
            self._poller.register(pidfd, select.POLLIN)
        self._channel.send("forked", [pidfd] if pidfd >= 0 else [], child=frame.number("child"), pid=pid)
        return None

    def _become_child(self, setup: ChildSetup) -> Callable[[], None]:
        os.setpgid(0, 0)
        self._channel.close()
        for _, pidfd in self._children.values():
            if pidfd >= 0:
                os.close(pidfd)
        runner = self._runner
        if runner is not None:
            arm(setup.lifeline_fd)
            return lambda: run_child(setup, runner)
        for fd in setup.fds():
            os.set_inheritable(fd, True)
        fds = [str(fd) for fd in setup.fds()]
        command = [sys.executable, "-m", "fastq.pool.child", str(setup.max_memory), self._spec, self._argument, *fds]
        os.execv(sys.executable, command)

    def _reap(self) -> None:
        for pid, (child, pidfd) in list(self._children.items()):
            # Look without reaping: while it is a zombie its number is taken, and its group is surely its own.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            kill_group(pid)
            _, status, usage = os.wait4(pid, 0)
            del self._children[pid]
            if pidfd >= 0:
                self._poller.unregister(pidfd)
                os.close(pidfd)
            cpu_us = round((usage.ru_utime + usage.ru_stime) * 1e6)
            self._channel.send("exited", child=child, status=status, peak_rss=peak_rss(usage), cpu_us=cpu_us)


def _import_app(channel: Channel, order: Frame) -> Runner | None:
    """Load the runner if children are to be forked, and report; exit if it cannot be loaded."""
    sys.path[:] = order.text("sys_path").split(os.pathsep)
    runner = None
    if order.text("start_method") == "forkserver":
        try:
            runner = load_runner(order.text("runner"), order.text("argument"))
        except RunnerLoadError as error:
            channel.send("failed", text=str(error), is_misuse=error.is_misuse)
            os._exit(1)
    # The app may have changed what the loop below counts on.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.send("loaded", threads=thread_count(), rss=own_rss())
    return runner


def _serve(channel: Channel) -> Callable[[], None] | None:
    """Load the app and follow orders; return what a forked child is to run, ``None`` when the end has come."""
    order = channel.receive()
    (lifeline,) = order.fds
    by_kernel = sys.platform.startswith("linux")
    if by_kernel:  # the import may hang, in C, for ever
        arm(lifeline)
    runner = _import_app(channel, order)
    if by_kernel:
        disarm(lifeline)
    channel.set_blocking(False)
    gc.collect()
    gc.freeze()  # children share the pages of what is there now as long as no collection writes to them
    preloader = Preloader(channel, order.text("runner"), order.text("argument"), runner)
    pid = os.getpid()
    try:
        return preloader.serve()
    finally:
        if os.getpid() == pid:
            preloader.kill_all()


def main() -> None:
    """Be the preloader: ``python -m fastq.pool.preloader CONTROL_FD``."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    os.set_inheritable(channel.fileno(), False)
    job, pid = None, os.getpid()
    try:
        job = _serve(channel)
    except ChannelClosedError:
        pass  # the main process is gone
    except BaseException:  # noqa: BLE001 - a defect: say so, and do not run what the app has registered for its exit
        traceback.print_exc()
        os._exit(1)
    if os.getpid() == pid:
        os._exit(0)
    if job is not None:
        job()


if __name__ == "__main__":
    main()

"""Processes that are threads with one baton: the real pool in the main one, real children in the others.

Stood in for is what the operating system does: to fork, to kill, to signal, to wait, to tell the time. A process has
its own descriptors, a lock of the app, and a logger.
"""

import _thread
import asyncio
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

from fastq.pool.child import coroutines, run, threads, work
from fastq.pool.main import census, step_watch, supervisor, timekeeper
from fastq.pool.main import child as child_of_main
from fastq.pool.main.config import PoolConfig
from fastq.pool.shared import event_kind, signals
from fastq.pool.shared.control import ChannelClosedError, Frame
from fastq.pool.shared.memory import Segment, read_header
from tests.simulation.child import baton
from tests.simulation.child.tasks import Ledger, ScriptRunner

BASE_PID = 1_000_000_000  # no process of this machine has it


class SimSelector(selectors.SelectSelector):
    """A selector that waits with the baton."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait until something can be read, or for a simulated time."""
        if timeout is not None and timeout <= 0:
            baton.point()
        else:
            fds = sorted(key.fd for key in self.get_map().values())
            baton.wait_readable(fds, None if timeout is None else baton.monotonic() + timeout)
        return super().select(0)


class SimLoop(asyncio.SelectorEventLoop):
    """An event loop of a simulated process."""

    def __init__(self) -> None:
        super().__init__(SimSelector())

    def _write_to_self(self) -> None:
        baton.point()  # a call was added, and its loop does not know
        super()._write_to_self()  # type: ignore[misc]  # asyncio's own


class SimPoll:
    """select.poll, of one descriptor."""

    def register(self, fd: int, events: int) -> None:
        """Keep the descriptor."""
        self._fd = fd

    def poll(self, timeout_ms: float) -> None:
        """Wait until it can be read."""
        baton.wait_readable([self._fd], baton.monotonic() + timeout_ms / 1000)


def _lose_main() -> NoReturn:
    """Kill the group of this process, which never comes back from the next point."""
    baton.die(baton.own_process())
    baton.point()
    raise AssertionError


class SimThread:
    """threading.Thread of a simulated process."""

    def __init__(self, target: Callable[[], object], name: str, daemon: bool, process: int | None = None) -> None:
        self._target = target
        self._process = baton.own_process() if process is None else process

    def start(self) -> None:
        """Start it; it runs once it is chosen."""
        self._actor = baton.add_actor(self._process)
        _thread.start_new_thread(self._run, ())
        baton.await_arrival()
        baton.point()

    def _run(self) -> None:
        baton.enter(self._actor)
        try:
            self._target()
        finally:
            baton.leave()

    def join(self) -> None:
        """Wait for its end."""
        baton.wait_done(self._actor)


class PointedThreads(threads.Threads):
    """Threads of a child that others may interrupt at each use of what they share."""

    def __getattribute__(self, name: str) -> Any:
        baton.point()
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: object) -> None:
        baton.point()
        super().__setattr__(name, value)


class Processes:
    """The preloader and the children; in place of ``ForkServer``."""

    def __init__(self, note: Callable[[str], None], on_defect: Callable[[str], None], ledger: Ledger) -> None:
        self._note = note
        self._on_defect = on_defect
        self.locks: dict[int, Any] = {}
        self.loggers: dict[int, logging.Logger] = {}
        self.runner = ScriptRunner(ledger, self.locks, self.loggers)
        self.killed: list[int] = []
        self.served: dict[int, Any] = {}
        self.grown: set[int] = set()  # processes that have more memory than they may
        self.preloader = object()
        self._number = 0
        self._user: Any = None
        self._known: set[int] = set()  # numbers of children that the user has not forgotten
        self._ends: dict[int, tuple[int, int, int]] = {}  # number, socket and pidfd, by process; until it has died
        self._status: dict[int, int] = {}
        self._orders: deque[tuple[int, list[int], PoolConfig]] = deque()
        self._mail: deque[Frame] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._patch()

    # The operating system -----------------------------------------------------------------------------------------

    def _patch(self) -> None:
        """Let this process, which is a fork for one seed, stand for all."""
        places: list[tuple[object, str, object]] = [
            (time, "monotonic", baton.monotonic),
            (time, "sleep", baton.sleep),
            (time, "time", baton.unix_time),
            (os, "getpid", lambda: BASE_PID + baton.own_process()),
            (asyncio, "new_event_loop", SimLoop),
            (threading, "_allocate_lock", baton.Lock),
            (work, "threading", SimpleNamespace(Lock=baton.Lock)),
            (threads, "Thread", SimThread),
            (threads, "SimpleQueue", baton.Queue),
            (coroutines, "Threads", PointedThreads),
            (run, "select", SimpleNamespace(poll=SimPoll, POLLIN=1)),
            (run, "signals", SimpleNamespace(install=lambda soft: baton.set_signal(baton.own_process(), soft))),
            (run, "_end_with_main", _lose_main),
            (run, "own_rss", lambda: (300 if baton.own_process() in self.grown else 100) << 20),
            (event_kind, "peak_rss", lambda usage: 0),
            (census, "rss_of", lambda pid: 1),
            (supervisor, "rss_of", lambda pid: 1),
            (supervisor, "open_pidfd", self._open_pidfd),
            (step_watch, "thread_time", lambda pid, thread: None),
            (timekeeper, "thread_times", lambda pid: {}),
            (timekeeper, "send_signal", self._send_signal),
            (child_of_main, "send_signal", self._send_signal),
            (child_of_main, "kill_group", lambda pid: None),
        ]
        for place, name, value in places:
            setattr(place, name, value)

    def _open_pidfd(self, pid: int) -> int:
        end = self._ends.get(pid - BASE_PID)
        return os.dup(end[2]) if end else -1

    def _send_signal(self, pid: int, pidfd: int, signum: int) -> bool:
        process = pid - BASE_PID
        self._note(f"main sends {'the soft signal' if signum == signals.SOFT_SIGNAL else 'SIGKILL'} to {process}")
        if baton.is_dead(process):
            return False
        if signum == signals.SOFT_SIGNAL:
            baton.signal(process)
        else:
            self.killed.append(process)
            baton.die(process)
        baton.point()
        return True

    # The preloader ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start what forks, and what tells of deaths."""
        process = baton.add_process()
        SimThread(self._fork, "forks", daemon=True, process=process).start()
        SimThread(self._reap, "reaps", daemon=True, process=process).start()
        asyncio.get_running_loop().add_reader(self._bell, self._on_mail)

    def _tell(self, op: str, fds: Sequence[int] = (), **body: int) -> None:
        self._mail.append(Frame(op, dict(body), list(fds)))
        os.eventfd_write(self._bell, 1)

    def _on_mail(self) -> None:
        os.eventfd_read(self._bell)
        while self._mail:
            frame = self._mail.popleft()
            if frame.number("child") in self._known:
                self._user.on_frame(frame)
                self._user.on_room()

    def _fork(self) -> None:
        while True:
            baton.sleep(0.001)
            if not self._orders:
                baton.sleep(0.02)
                continue
            number, fds, config = self._orders.popleft()
            process = baton.add_process()
            self.locks[process] = baton.Lock()
            logger = self.loggers[process] = logging.Logger(f"child {process}")
            logger.addHandler(Output(self._note))
            pidfd = os.eventfd(0, os.EFD_NONBLOCK)
            self._ends[process] = number, os.dup(fds[0]), pidfd
            serve = SimThread(partial(self._serve, process, fds, config), "child", daemon=True, process=process)
            serve.start()
            baton.point()
            self._tell("forked", [os.dup(pidfd)], child=number, pid=BASE_PID + process)

    def _reap(self) -> None:
        while True:
            baton.wait_death()
            for process, (number, control, pidfd) in list(self._ends.items()):
                if not baton.is_dead(process):
                    continue
                del self._ends[process]
                self._note(f"process {process} is dead")
                with socket.socket(fileno=control) as end:
                    end.shutdown(socket.SHUT_RDWR)
                os.eventfd_write(pidfd, 1)
                baton.point()
                self._tell("exited", child=number, status=self._status.get(process, 9), peak_rss=0)

    # A child ------------------------------------------------------------------------------------------------------

    def _serve(self, process: int, fds: list[int], config: PoolConfig) -> None:
        """Be a child: what ``run.run_child`` does."""
        status = 0
        try:
            segment = Segment.attach(os.dup(fds[1]))
            baton.watch(process, segment.memory, read_header(segment))
            self.served[process] = segment
            run._serve(run.ChildSetup.from_fds([-1, *fds], config.max_memory_per_child), self.runner)
        except ChannelClosedError:
            status = 9
        except BaseException as error:  # noqa: BLE001 - a defect of the child
            self._on_defect(f"process {process} ends with {error!r}")
            status = 256
        self._status[process] = status
        self._note(f"process {process} exits")
        baton.die(process)

    # What the supervisor knows of a fork server -------------------------------------------------------------------

    pid = BASE_PID + 1
    takes_orders = True

    async def join(self, user: Any) -> None:
        """Take the only user."""
        self._user = user
        self.start()

    def next_number(self) -> int:
        """Return a number for the next child."""
        self._number += 1
        return self._number

    def order(self, user: object, number: int, fds: list[int], config: PoolConfig, device: str) -> object:
        """Order a child."""
        del device
        self._known.add(number)
        self._orders.append((number, [os.dup(fd) for fd in fds], config))
        return self.preloader

    def forget(self, number: int) -> None:
        """Forget a child."""
        self._known.discard(number)

    def settle(self) -> None:
        """Hear that a child works."""

    def leave(self, user: object) -> None:
        """Hear that all is over."""

    def reload(self) -> None:
        """Let all children be replaced."""
        self.preloader = object()
        self._user.on_up(self.preloader)


class Output(logging.Handler):
    """The log of a child: whoever writes holds its lock for a while."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def createLock(self) -> None:  # noqa: N802 - logging's name
        """Take a lock with points."""
        self.lock = baton.Lock(True)  # type: ignore[assignment]  # it has all that logging uses

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        baton.point()
        baton.point()

"""A server as the main job of this process: log, signals, banner, exit code.

SIGTERM and SIGINT shut down; a second one skips the waiting, as SIGQUIT does. SIGTSTP makes the server quiet: it
fetches no more tasks. SIGHUP reloads the app. SIGUSR1 logs a line of state. Other signals that are commonly sent to
services do not end the server.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import cast

from fastq._version import __version__
from fastq.common.devices import share
from fastq.errors import BrokerError, ServerStartError
from fastq.log.output import unblocked_stderr
from fastq.log.setup import log_text, set_up_logging
from fastq.pool.main.protocol import PoolStartError
from fastq.pool.shared._memory import give_back_free_memory
from fastq.pool.shared.descriptors import raise_own_limit
from fastq.server.base.config import seconds_of
from fastq.server.children.reaper import reap_orphans
from fastq.server.children.source_watch import watch_sources
from fastq.server.monitoring.listener import monitoring
from fastq.server.monitoring.systemd import notify, tell_systemd
from fastq.server.wiring.process import ProcessOptions, ServerProcess

EXIT_FAILED = 1
EXIT_MISUSED = 2
EXIT_UNFINISHED = 3
GC_THRESHOLDS = (50_000, 20, 50)
"""The first threshold allows five objects per task, for 10 000 tasks in flight."""

_log = logging.getLogger("fastq")


def run_server(options: ProcessOptions) -> int:
    """Serve until told to stop, and return the exit code.

    It is 1 if the server cannot begin or go on, 2 for a bad app path, and 3 if a server that would end by itself
    (``idle_s`` above 0, ``max_tasks``) was told to stop before that; else 0.
    """
    try:
        has_finished = serve(options)
    except (PoolStartError, BrokerError, ServerStartError) as error:
        return exit_code_of(error)
    has_an_end = bool(options.idle_s or options.max_tasks)
    return EXIT_UNFINISHED if has_an_end and not has_finished else 0


def exit_code_of(error: PoolStartError | BrokerError | ServerStartError) -> int:
    """Print to stderr why a server could not start or continue, and return the exit code for it."""
    if isinstance(error, PoolStartError) and error.is_misuse:
        # In the form of command-line errors, since the app's path is a part of the command line.
        sys.stderr.write(f"fastq-worker: {error}\n")
        return EXIT_MISUSED
    why = "cannot start the worker processes: " if isinstance(error, PoolStartError) else ""
    log_text(_log, logging.CRITICAL, f"{why}{error}")
    return EXIT_FAILED


@unblocked_stderr()
def serve(options: ProcessOptions, on_ready: Callable[[], None] = lambda: None) -> bool:
    """Serve until told to stop; raise ``PoolStartError``, ``BrokerError`` or ``ServerStartError`` when it cannot.

    ``on_ready`` is called once fetching begins. Return whether the server ended because nothing was left to do.
    """
    set_up_logging(options.config.log_level, options.config.log_format)
    raise_own_limit()
    with asyncio.Runner(loop_factory=_loop_factory(options.config.loop)) as runner:
        return runner.run(_serve(options, on_ready))


class _Loop(asyncio.SelectorEventLoop):
    """A loop with a clock in C, because each iteration reads the clock some twenty times."""

    time = staticmethod(time.monotonic)


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of the event loop of this process."""
    if name == "asyncio":
        return _Loop
    try:
        return cast("Callable[[], asyncio.AbstractEventLoop]", import_module("uvloop").new_event_loop)
    except ImportError as error:
        text = f"the event loop uvloop cannot be imported ({error}): pip install 'fastq-worker[uvloop]'"
        raise ServerStartError(text) from None


async def _serve(options: ProcessOptions, on_ready: Callable[[], None]) -> bool:
    try:
        process = ServerProcess(options)
    except OSError as error:
        raise PoolStartError(f"the operating system refused a resource that they need: {error}") from error
    loop = asyncio.get_running_loop()
    had_terminal = _has_terminal()

    def quiet() -> None:
        _log.info("SIGTSTP: no longer fetching; finishing the tasks already taken")
        process.quiet()

    def shut_down(again: str = "") -> None:
        if process.stopping.is_set():
            _log.info("stopping now: running tasks are not waited for, and go back to their queues")
        else:
            grace_s = seconds_of(options.config.shutdown_timeout)
            _log.info("shutting down; running tasks have %g s to finish%s", grace_s, again)
        process.begin_shutdown()

    def shut_down_now() -> None:
        _log.info("stopping now: running tasks are not waited for, and go back to their queues")
        process.shut_down_now()

    def hang_up() -> None:
        if had_terminal and not _has_terminal():
            _log.info("the terminal was closed")
            shut_down()
        else:
            process.reloader.reload()

    def ready() -> None:
        _spare_the_collector()
        _log_what_is_served(options, process)
        notify("READY=1")
        on_ready()

    loop.add_signal_handler(signal.SIGTERM, shut_down)
    loop.add_signal_handler(signal.SIGINT, shut_down, "; Ctrl-C again: stop now")
    loop.add_signal_handler(signal.SIGQUIT, shut_down_now)
    loop.add_signal_handler(signal.SIGTSTP, quiet)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    loop.add_signal_handler(signal.SIGUSR1, lambda: _log.info("%s", process.stats.summary()))
    if os.getpid() == 1:
        reap_orphans(process.forks.pids)
    try:
        with _beside(options, process), _ignoring(signal.SIGUSR2, signal.SIGTTIN, signal.SIGTTOU):
            async with monitoring(options.config.metrics_listen, process):
                await process.run(ready)
    finally:
        process.processor.failure_log.finish()
        process.task_log.close()
    _log.info("stopped; %s", process.stats.summary())
    return process.has_finished


@contextmanager
def _beside(options: ProcessOptions, process: ServerProcess) -> Iterator[None]:
    """Run the coroutines beside the server: summary lines, messages to systemd, and the watch on the app's files."""
    tasks = [asyncio.create_task(_report(process, options.timing.report_interval_s))]
    if os.environ.get("NOTIFY_SOCKET"):
        tasks.append(asyncio.create_task(tell_systemd(process)))
    if options.watches:
        tasks.append(asyncio.create_task(watch_sources(Path.cwd(), process.reloader.reload)))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


def _has_terminal() -> bool:
    """Return whether stdin is a terminal that is still open."""
    return os.isatty(0)


@contextmanager
def _ignoring(*signums: signal.Signals) -> Iterator[None]:
    before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler or signal.SIG_DFL)


def _spare_the_collector() -> None:
    """Make runs of the cycle collector rare: tasks make no cycles, and each run visits all tasks in flight."""
    gc.collect()
    give_back_free_memory()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _report(process: ServerProcess, every_s: float) -> None:
    """Log a summary of the work every ``every_s`` seconds."""
    while True:
        await asyncio.sleep(every_s)
        _log.info("%s", process.stats.summary())


def _log_what_is_served(options: ProcessOptions, process: ServerProcess) -> None:
    config = options.config
    order = "strict" if config.strict_priority else "weighted"
    queues = ", ".join(f"{queue}={weight}" for queue, weight in config.queues.items())
    slots = process.presence.slots
    at_once = f", {slots} tasks at once" if slots != config.concurrency else ""
    python = ".".join(map(str, sys.version_info[:3]))
    uvloop = " with uvloop" if type(asyncio.get_running_loop()).__module__ == "uvloop" else ""
    _log.info("fastq %s on Python %s%s serves %s", __version__, python, uvloop, options.app)
    _log.info("%s; queues %s (%s)", process.where, queues, order)
    warn_without_gil()
    if config.devices:
        shares = share(config.devices, config.concurrency)
        _log.info("devices: %s", ", ".join(f"{device} ({_children(count)})" for device, count in shares.items()))
    _log.info("ready: %d children (%s)%s", config.concurrency, config.start_method, at_once)


def _children(count: int) -> str:
    return "1 child" if count == 1 else f"{count} children"


def warn_without_gil() -> None:
    """Log that a free-threaded Python was forced to run without the GIL, on which fastq's extensions rely."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        _log.warning(
            "Python runs without the GIL, with which fastq is not tested: unset PYTHON_GIL and drop -X gil=0, and it "
            "goes on when fastq is imported; each child has an interpreter of its own, so tasks run in parallel"
        )

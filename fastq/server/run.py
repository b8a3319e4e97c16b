"""Run a server as this process' main job: log, signals, banner, exit code.

SIGTERM and SIGINT shut down, a second one skips the waiting; SIGTSTP stops fetching only.
"""

import asyncio
import logging
import signal
import sys

from fastq._version import __version__
from fastq.errors import BrokerError
from fastq.pool.link import PoolStartError
from fastq.server.logs import set_up_logging
from fastq.server.process import ProcessOptions, ServerProcess

__all__ = ["run_server"]

REPORT_EVERY_S = 60.0

_log = logging.getLogger("fastq")


def run_server(options: ProcessOptions) -> int:
    """Serve until told to stop; return the exit code: 0, or 1 when it could not begin or go on."""
    set_up_logging(options.config.log_level, options.config.log_format)
    try:
        asyncio.run(_serve(options))
    except PoolStartError as error:
        _log.critical("the workers cannot start: %s", error)
        return 1
    except BrokerError as error:
        _log.critical("%s", error)
        return 1
    return 0


async def _serve(options: ProcessOptions) -> None:
    process = ServerProcess(options)
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Task[None]] = set()

    def stop_fetching() -> None:
        _log.info("told to stop fetching; what is here is finished")
        stopping.add(loop.create_task(process.stop_fetching()))

    def stop_soon() -> None:
        _log.info("told to stop; running tasks have %.0f s", options.config.seconds("shutdown_timeout"))
        process.stop_soon()

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop_soon)
    loop.add_signal_handler(signal.SIGTSTP, stop_fetching)
    reporting = loop.create_task(_report(process))
    _say_hello(options, process)
    try:
        await process.run()
    finally:
        reporting.cancel()
    _log.info("stopped; %s", process.summary())


async def _report(process: ServerProcess) -> None:
    """Say once a minute what was done."""
    while True:
        await asyncio.sleep(REPORT_EVERY_S)
        _log.info("%s", process.summary())


def _say_hello(options: ProcessOptions, process: ServerProcess) -> None:
    config = options.config
    order = "strict" if config.strict_priority else "weighted"
    queues = ", ".join(f"{queue}={weight}" for queue, weight in config.queues.items())
    python = ".".join(map(str, sys.version_info[:3]))
    _log.info("fastq %s on Python %s, app %s, %s", __version__, python, options.app, process.where)
    _log.info("queues %s (%s); %d children by %s", queues, order, config.concurrency, config.start_method)

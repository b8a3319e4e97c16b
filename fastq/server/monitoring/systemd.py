"""Tells systemd, if the server was started with ``Type=notify``, that the server is ready, is well, or is stopping."""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from fastq.server.monitoring.health import why_unhealthy
from fastq.server.wiring.process import ServerProcess


def notify(words: str) -> None:
    """Send a message to systemd; do nothing without ``$NOTIFY_SOCKET``, and ignore errors."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):
        address = "\0" + address[1:]
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(words.encode(), address)


async def tell_systemd(process: ServerProcess) -> None:
    """Notify systemd when the shutdown begins, and twice in each ``WatchdogSec`` that the server is well."""
    every_s = _watchdog_s(os.environ)
    told_of_end = False
    while True:
        if every_s and not why_unhealthy(process):
            notify("WATCHDOG=1")
        with suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await (asyncio.Event() if told_of_end else process.stopping).wait()
        if process.stopping.is_set() and not told_of_end:
            notify("STOPPING=1")
            told_of_end = True


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Return the seconds between two signs of life; None where systemd expects none from this process."""
    microseconds, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if not microseconds.isdigit() or not int(microseconds) or pid != str(os.getpid()):
        return None
    return int(microseconds) / 2e6

"""The first contact with Redis: waits until it answers, logs now and then that it waits, and reads its version."""

import asyncio
import logging
import time
from typing import Final

from fastq.broker.operations.health import ping, server_version
from fastq.broker.transport.aio import AsyncBroker
from fastq.errors import BrokerError

__all__ = ["FirstContact", "describe_redis", "wait_for_redis"]

LOG_EVERY_S: Final = 3.0
LONGEST_PAUSE_S: Final = 2.0

_log = logging.getLogger("fastq")


class FirstContact:
    """The wait for Redis' first answer: growing pauses, a log line now and then, and a deadline."""

    def __init__(self, within_s: float) -> None:
        self._deadline_s = time.monotonic() + within_s
        self._logged_s = -LOG_EVERY_S
        self._pause_s = 0.1

    def pause_s(self, error: BrokerError) -> float:
        """Return the seconds until the next try; raise ``error`` after the deadline, or if waiting cannot help."""
        now_s = time.monotonic()
        if not error.transient or now_s >= self._deadline_s:
            raise error
        if now_s - self._logged_s >= LOG_EVERY_S:
            _log.warning("%s; trying again for %.0f s", error, self._deadline_s - now_s)
            self._logged_s = now_s
        pause_s, self._pause_s = self._pause_s, min(LONGEST_PAUSE_S, 2 * self._pause_s)
        return min(pause_s, self._deadline_s - now_s)


async def wait_for_redis(broker: AsyncBroker, within_s: float) -> None:
    """Wait until Redis answers; raise the ``BrokerError`` after ``within_s``, or at once if waiting cannot help."""
    contact = FirstContact(within_s)
    while True:
        try:
            await broker.run(ping())
            return
        except BrokerError as error:
            pause_s = contact.pause_s(error)
        await asyncio.sleep(pause_s)


async def describe_redis(broker: AsyncBroker) -> str:
    """Return product, version and address of Redis, without the version if the user may not read it."""
    try:
        version = await broker.run(server_version())
    except BrokerError:
        version = ""
    return f"{version or 'Redis'} at {broker.transport.where}"

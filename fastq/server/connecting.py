"""The first contact with Redis: waits until it answers, logs now and then that it waits, and reads its version."""

import asyncio
import logging
import time
from typing import Final

from fastq.broker.operations.health import ping, server_version
from fastq.broker.transport.aio import AsyncBroker
from fastq.errors import BrokerError

__all__ = ["describe_redis", "wait_for_redis"]

LOG_EVERY_S: Final = 3.0
LONGEST_PAUSE_S: Final = 2.0

_log = logging.getLogger("fastq")


async def wait_for_redis(broker: AsyncBroker, within_s: float) -> None:
    """Wait until Redis answers; raise the ``BrokerError`` after ``within_s``, or at once if waiting cannot help."""
    deadline_s = time.monotonic() + within_s
    logged_s = -LOG_EVERY_S
    pause_s = 0.1
    while True:
        try:
            await broker.run(ping())
            return
        except BrokerError as error:
            now_s = time.monotonic()
            if not error.transient or now_s >= deadline_s:
                raise
            if now_s - logged_s >= LOG_EVERY_S:
                _log.warning("%s; trying again for %.0f s", error, deadline_s - now_s)
                logged_s = now_s
        await asyncio.sleep(min(pause_s, deadline_s - now_s))
        pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)


async def describe_redis(broker: AsyncBroker) -> str:
    """Return product, version and address of Redis, without the version if the user may not read it."""
    try:
        version = await broker.run(server_version())
    except BrokerError:
        version = ""
    return f"{version or 'Redis'} at {broker.transport.where}"

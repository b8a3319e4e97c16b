"""The first contact with Redis: waits until it answers, and logs now and then that it waits.

Then it checks what the Redis user may do, and reads the version and settings of Redis.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Final

from fastq.broker.operations.health import eviction_policy, missing_rights, ping, server_version
from fastq.broker.operations.lease import list_leases
from fastq.broker.rights import REQUIRED_OF_WORKERS
from fastq.broker.transport.aio import AsyncBroker
from fastq.errors import BrokerAuthError, BrokerError

LOG_EVERY_S: Final = 3.0
LONGEST_PAUSE_S: Final = 2.0
NO_EVICTION: Final = "noeviction"

_log = logging.getLogger("fastq")


class FirstContact:
    """The wait for Redis' first answer, with growing pauses, a log line now and then, and a deadline."""

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


async def check_rights(broker: AsyncBroker, queues: Iterable[str]) -> None:
    """Raise ``BrokerAuthError`` if the Redis user lacks a right that a worker needs on a queue.

    Other errors are left to the actors, which report them.
    """
    names = tuple(queues)
    found = await broker.run_many([missing_rights(queue, REQUIRED_OF_WORKERS) for queue in names])
    for queue, missing in zip(names, found, strict=True):
        if missing and not isinstance(missing, BrokerError):
            raise BrokerAuthError(
                f"the Redis user may not run {', '.join(missing).upper()} on the keys of queue {queue!r}, as a worker "
                "has to; extend its ACL rules, which fastq acl worker prints"
            )
    for result in (*found, *await broker.run_many([list_leases(queue, "0", "0", 0) for queue in names])):
        if isinstance(result, BrokerAuthError):
            raise result


async def describe_redis(broker: AsyncBroker) -> str:
    """Return product, version and address of Redis, and warn if it evicts keys; skip what the user may not read."""
    version, policy = (
        "" if isinstance(fact, BrokerError) else fact
        for fact in await broker.run_many((server_version(), eviction_policy()))
    )
    if policy not in ("", NO_EVICTION):
        text = (
            "Redis evicts keys once its memory is full (maxmemory-policy %s), and tasks vanish with them; set it to %s"
        )
        _log.warning(text, policy, NO_EVICTION)
    return f"{version or 'Redis'} at {broker.transport.where}"

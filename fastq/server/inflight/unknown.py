"""Tasks of types that no handler here matches: they fail as in asynq, or wait for a server that has a handler."""

import asyncio
import logging
import random
from typing import Final, TypeAlias

from fastq._muxmatch import PatternIndex
from fastq.broker.operations.presence import live_servers
from fastq.broker.transport.aio import AsyncBroker
from fastq.common.clock import Clock
from fastq.errors import BrokerError

TypeInQueue: TypeAlias = tuple[str, str]
"""A queue, and a type of task in it."""

READ_AGAIN_S: Final = 5.0
"""The interval at which servers write their notices."""
LOG_AGAIN_S: Final = 60.0
MOST_LOGGED: Final = 10
"""The most types logged per period, because any text may be a type."""
PASS_ON_S: Final = 5
PASS_ON_SPREAD_S: Final = 5
COUNTED_FOR_S: Final = 10.0
AT_ONCE: Final = 1000
"""The most tasks passed on without delay in ten seconds, if another server is known to take them."""

_log = logging.getLogger("fastq.unknown")


def pass_on_delay_s() -> int:
    """Return the delay of a task that is given back for any server to take: 5 to 10 seconds at random.

    A deploy takes seconds to minutes, so a growing delay would leave tasks waiting when the deploy is over. Without a
    delay a task would come back at once, possibly to the same server. The random part spreads a batch.
    """
    return PASS_ON_S + random.randint(0, PASS_ON_SPREAD_S)


class UnknownTypes:
    """The rule for types unknown to this server, and the published patterns of other servers."""

    def __init__(self, rule: str, broker: AsyncBroker, clock: Clock) -> None:
        self._rule = rule
        self._broker = broker
        self._clock = clock
        self._served: dict[str, PatternIndex] = {}
        self._fresh_until_s = 0.0
        self._reading = asyncio.Lock()
        self._passed_on = 0
        self._counted_until_s = 0.0
        self._logged: set[TypeInQueue] = set()
        self._logged_until_s = 0.0

    async def pass_on_after_s(self, queue: str, task_type: str) -> int | None:
        """Return after how many seconds another server may take a task of this type; None: it fails.

        Redis is asked at most every 5 s, once for all callers meanwhile.
        """
        one = queue, task_type
        if self._rule == "auto" and await self._is_served(queue, task_type):
            self._log_once(
                one, "go to another server of this queue that has one, at once or, if they are many, after up to 10 s; "
                "if these are two apps, give each a queue of its own (--queues)"
            )  # fmt: skip
            return self._delay_s()
        if self._rule == "return":
            self._log_once(one, "wait 5 to 10 s for another server of this queue")
            return pass_on_delay_s()
        self._log_once(one, "fail, and each is charged an attempt")
        return None

    def _delay_s(self) -> int:
        """Return the delay (seconds) of a task that another server can take; a busy server may give the task back."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._counted_until_s:
            self._passed_on, self._counted_until_s = 0, now_s + COUNTED_FOR_S
        self._passed_on += 1
        if self._passed_on <= AT_ONCE:
            return 0
        return random.randint(1, min(PASS_ON_S + PASS_ON_SPREAD_S, self._passed_on // AT_ONCE))

    async def _is_served(self, queue: str, task_type: str) -> bool:
        async with self._reading:
            if self._clock.monotonic_s() >= self._fresh_until_s:
                self._served = await self._read()
                self._fresh_until_s = self._clock.monotonic_s() + READ_AGAIN_S
        return queue in self._served and self._served[queue].find(task_type) is not None

    async def _read(self) -> dict[str, PatternIndex]:
        """Return the patterns of all servers that take tasks, by queue; the last known ones if the read fails."""
        try:
            servers = await self._broker.drive(live_servers(self._clock.unix_ns() // 1_000_000_000))
        except BrokerError as error:
            _log.warning("could not refresh the task types that other servers handle: %s", error)
            return self._served
        served: dict[str, PatternIndex] = {}
        for server in servers:
            if server.notice is None or not server.is_active:
                continue
            for queue in server.queues:
                index = served.setdefault(queue, PatternIndex())
                for pattern in server.notice.patterns:
                    if pattern not in index:
                        index.add(pattern)
        return served

    def _log_once(self, one: TypeInQueue, what: str) -> None:
        """Log a type at most once a minute, and at most ten types."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._logged_until_s:
            self._logged.clear()
            self._logged_until_s = now_s + LOG_AGAIN_S
        if one in self._logged or len(self._logged) >= MOST_LOGGED:
            return
        self._logged.add(one)
        queue, task_type = one
        _log.warning("no handler here matches type %r of queue %s; its tasks %s", task_type, queue, what)

"""The waker of one queue: waits until the queue has tasks, and tells the fetcher.

A second waker of each queue waits for its bell, while the queue has lanes. Wakes: only when a dequeue has left nothing;
on a queue that is not empty, the wait would return at once. Writes: nothing. If it dies, or lacks the right to wait:
the fetcher polls.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fastq.broker.transport.wait import TaskWatch
from fastq.errors import BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.base.outage import Outage

WAIT_S: Final = 60.0
"""After this time the queue is checked again, because its slot may have moved to another node of a cluster."""
TRY_AGAIN_S: Final = 60.0
"""A refusal may be temporary, for example when Redis is out of memory."""
SHORTEST_DELAY_S: Final = 0.01
DELAY_A_SERVER_S: Final = 0.1
MANY_SERVERS: Final = 100
"""With this many servers the delay per server is doubled. About ten wakers still return per second."""
LONGEST_DELAY_S: Final = 20.0


class Waker(Actor):
    """The actor that waits for tasks of one queue; ``key_of`` names the list on which it waits.

    A push wakes all waiting servers. A wake without work doubles the delay before the next wait, up to 0.1 s per
    server, or 0.2 s per server with a hundred of them, so that about ten return to waiting per second. A wake with work
    clears the delay.
    """

    name = "waker"
    tick_limit_s = None  # it waits to be armed; the wait in Redis has its own limits
    logs_outages = False  # the fetcher logs them; it also learns sooner that they are over

    def __init__(
        self,
        watch: TaskWatch,
        queue: str,
        key_of: Callable[[str], str],
        on_tasks: Callable[[str], None],
        servers: Callable[[], int],
        outage: Outage,
    ) -> None:
        super().__init__(outage)
        self._watch = watch
        self._queue = queue
        self._key_of = key_of
        self._on_tasks = on_tasks
        self._servers = servers
        self._armed = asyncio.Event()
        self._backoff_over = asyncio.Event()
        self._delay_s = 0.0
        self._delays = False
        self._has_woken = False
        self.works = True

    def arm(self) -> None:
        """Start to wait, because the queue was just empty."""
        if self._has_woken:
            servers = self._servers()
            longest_s = min(LONGEST_DELAY_S, DELAY_A_SERVER_S * servers * (1 + servers / MANY_SERVERS))
            # With many servers, starting from 10 ms after every task would cause a burst of useless wakes.
            shortest_s = max(SHORTEST_DELAY_S, longest_s / 4 * servers / (servers + MANY_SERVERS))
            self._delay_s = min(longest_s, max(shortest_s, 2 * self._delay_s))
            self._has_woken = False
            self._delays = True
        self._armed.set()

    def brought_work(self) -> None:
        """Note that the queue had tasks for us; a waker in its delay will wait as soon as the queue is empty again."""
        self._delay_s = 0.0
        if self._delays:
            self._armed.clear()
            self._backoff_over.set()
        self._delays = self._has_woken = False

    @property
    def delay_s(self) -> float:
        """Return how many seconds pushes may go unnoticed, because another server took the last task."""
        return self._delay_s if self._delays else 0.0

    @property
    def is_waiting(self) -> bool:
        """Return whether a push to the queue will be noticed."""
        return self.works and self._armed.is_set() and not self._failures

    async def tick(self) -> float | None:
        """Wait once."""
        await self._armed.wait()
        if self.delay_s:
            # From 0, so that wakers woken together do not all have the same delay.
            await self._back_off(self.delay_s * random.uniform(0.0, 1.0))
            if not self._armed.is_set():
                return 0.0
            self._delays = False  # one delay per wake; after a wait that timed out, the next one begins without a delay
        try:
            await self._watch.wait(self._queue, WAIT_S * random.uniform(0.8, 1.2), self._told, self._key_of)
        except BrokerError as error:
            self._on_tasks(self._queue)  # the fetcher may rest for long, relying on this wait
            if error.transient:
                raise
            if not self._watch.is_refused:
                self._watch.is_refused = True
                text = "queue %s, and maybe others, is polled, because Redis refused the blocking wait: %s"
                self._log.warning(text, self._queue, error)
            self.works = False
            return TRY_AGAIN_S
        if not self.works and self._watch.is_refused:
            self._log.info("blocking waits work again; no queue is polled any more")
            self._watch.is_refused = False
        self.works = True
        return 0.0

    def _told(self) -> None:
        """Report the queue to the fetcher at once, in the iteration of the event loop that read the answer."""
        self._armed.clear()
        self._has_woken = True
        self._on_tasks(self._queue)

    async def _back_off(self, seconds: float) -> None:
        self._backoff_over.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._backoff_over.wait()

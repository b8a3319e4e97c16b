"""The master that sentinels name, on an asyncio loop: left as soon as one of them announces a switch.

There is a subscriber for each sentinel. After an announcement that sentinel is asked first for the master, as it may
know the promoted replica before the others do. Sentinels are still asked once a second, in case an announcement is
lost.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

from fastq.broker.transport.aio import AsyncNodeTransport
from fastq.broker.transport.confirm import NO_TERMS, Terms
from fastq.broker.transport.end_task import end_task
from fastq.broker.transport.events import EVENTS, REFUSED_AGAIN_S, log_refusal
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.sentinel import AsyncMasterPool
from fastq.broker.transport.subscription import listen
from fastq.errors import BrokerError

LISTEN_AGAIN_S: Final = 1.0


class MasterTransport(AsyncNodeTransport):
    """A transport to the master; its listeners begin with the first transfer."""

    def __init__(self, pool: AsyncMasterPool, terms: Terms = NO_TERMS) -> None:
        super().__init__(pool, terms)
        self._master = pool
        self._listeners: list[asyncio.Task[None]] = []

    def on_change(self, call: Callable[[], None]) -> None:
        """Register a function to call after each switch to another master."""
        self._master.sentinel_manager.on_switch.append(call)

    async def transfer(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands in one write and read their replies."""
        if not self._listeners:
            sentinels = list(self._master.sentinel_manager.sentinels)
            self._listeners = [asyncio.create_task(self._listen(one), name="fastq sentinel") for one in sentinels]
        return await super().transfer(commands)

    async def close(self) -> None:
        """End the listeners, and soon all calls under way."""
        await super().close()
        await asyncio.gather(*map(end_task, self._listeners))

    async def _listen(self, sentinel: Any) -> None:
        place = sentinel.connection_pool.connection_kwargs
        where = f"{place['host']}:{place['port']}"
        is_refused = False
        while True:
            again_s = LISTEN_AGAIN_S
            try:
                async with aclosing(listen(sentinel.connection_pool, where, *EVENTS)) as events:  # type: ignore[type-var]  # a generator, though typed as an iterator
                    async for heard in events:
                        if heard is not None and self._master.service_name in heard.text.split():
                            await self._master.ask_first(sentinel)
            except BrokerError as error:
                if not error.transient:
                    if not is_refused:
                        log_refusal(where, error)
                    is_refused, again_s = True, REFUSED_AGAIN_S
            await asyncio.sleep(again_s * random.uniform(0.5, 1.5))

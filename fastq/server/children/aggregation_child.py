"""The aggregation child: a separate process that runs the app's group aggregator.

It is not the hook child, because combining thousands of tasks may take long and must not delay the hooks.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from fastq.pool.main.pool import ForkServer, PoolConfig
from fastq.pool.main.protocol import Event, EventKind
from fastq.server.base.config import ServerConfig, seconds_of
from fastq.server.children.spare_child import SpareChild
from fastq.worker.shared.requests import (
    AGGREGATION_RUNNER,
    Combined,
    Unreadable,
    aggregation_answer,
    aggregation_argument,
    aggregation_request,
)


@dataclass(frozen=True, slots=True)
class AggregationFailure:
    """The reason why a group's tasks were not replaced; ``trace`` is for the log."""

    why: str
    trace: str = ""


class AggregationChild:
    """The child that runs the app's aggregator. A call may take 5/6 of a set's lifetime."""

    def __init__(
        self,
        config: ServerConfig,
        set_lifetime_s: float,
        app: str | None = None,
        forks: ForkServer | None = None,
    ) -> None:
        self._limit_s = set_lifetime_s * 5 / 6
        self._patience_s = set_lifetime_s * 11 / 12
        pool = PoolConfig(
            runner=AGGREGATION_RUNNER,
            argument=aggregation_argument(str(config.group_aggregator), app),
            name="the group aggregator",
            start_method=config.start_method,
            start_timeout=seconds_of(config.start_timeout),
            timeout_grace=0.0,
            prefetch_time=self._patience_s,  # a call waits for a new child instead of being given back
        )
        self._child = SpareChild(pool, forks)
        self._turn = asyncio.Lock()

    async def prepare(self) -> bool:
        """Start the child unless it runs; return whether it runs."""
        return await self._child.start()

    async def combine(
        self, queue: str, group: str, messages: Sequence[bytes]
    ) -> Combined | Unreadable | AggregationFailure:
        """Return the aggregator's answer for a group's messages, oldest first.

        One call runs at a time, so that the time limit applies to the call itself, not to the calls before it.
        """
        async with self._turn:
            event = await self._child.ask(aggregation_request(queue, group, messages), self._limit_s, self._patience_s)
        if event is None:
            return AggregationFailure("the server stops" if self._child.is_stopped else "it gave no answer")
        return aggregation_answer(event.data) if event.kind is EventKind.RESULT else self._failure(event)

    def _failure(self, event: Event) -> AggregationFailure:
        if event.kind is EventKind.FAILED:
            return AggregationFailure(*orjson.loads(event.data))
        if event.kind is EventKind.TIMEOUT:
            return AggregationFailure(f"it took longer than {self._limit_s:g} s and was ended")
        if event.kind in (EventKind.ABORTED, EventKind.RETURNED, EventKind.CANCELED):
            return AggregationFailure("the server stops")
        return AggregationFailure(event.data.decode(errors="replace") or f"its process was ended ({event.kind.name})")

    async def stop(self) -> None:
        """End the child, if there is one; its current call fails."""
        await self._child.stop()

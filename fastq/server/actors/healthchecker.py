"""The healthchecker: pings Redis, and calls the app's health hook with the result.

Wakes: every health_check_interval. Reads: PING. If it dies: the hook is not called.
"""

from collections.abc import Awaitable, Callable

from fastq.broker.operations.health import ping
from fastq.errors import BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.base.commands import Commands
from fastq.server.base.outage import Outage


class Healthchecker(Actor):
    """The actor that pings Redis, and calls ``report`` with the error, or with None if Redis answers."""

    name = "healthchecker"

    def __init__(
        self,
        commands: Commands,
        interval_s: float,
        report: Callable[[BrokerError | None], Awaitable[None]] | None,
        outage: Outage,
    ) -> None:
        super().__init__(outage)
        self._commands = commands
        self._interval_s = interval_s
        self._report = report

    def first_tick_after_s(self) -> float:
        """Wait one interval first, as asynq does."""
        return self._interval_s

    async def tick(self) -> float:
        """Ping once."""
        error: BrokerError | None = None
        try:
            await self._commands.run(ping())
        except BrokerError as failure:
            error = failure
        if self._report is not None:
            await self._report(error)
        return self._interval_s

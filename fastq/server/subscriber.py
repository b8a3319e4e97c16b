"""The subscriber: hears which tasks are to be cancelled.

Wakes: on each message of asynq:cancel; after a lost connection it subscribes again. It keeps an id that is not held for
2 s, for a dequeue that is under way. If it dies: cancellations are not heard until it is back.
"""

from collections.abc import Callable
from typing import Final

from fastq import keys
from fastq.broker.aio import AsyncBroker
from fastq.broker.subscription import listen
from fastq.clock import Clock
from fastq.server.actor import Actor

__all__ = ["Subscriber"]

REMEMBER_S: Final = 2.0


class Subscriber(Actor):
    """Listen for cancellations; one tick is one connection's life."""

    name = "subscriber"
    tick_limit_s = None  # it listens for as long as the connection lives, which it asks every 3 s

    def __init__(self, broker: AsyncBroker, cancel: Callable[[str], bool], clock: Clock) -> None:
        super().__init__()
        self._broker = broker
        self._cancel = cancel
        self._clock = clock
        self._unknown: dict[str, float] = {}
        self.is_subscribed = False

    async def tick(self) -> float:
        """Subscribe and serve messages until the connection ends."""
        transport = self._broker.transport
        try:
            async for task_id in listen(transport.lender(), transport.where, keys.CANCEL_CHANNEL):
                self.is_subscribed = True
                if task_id is None:
                    self._note_success()
                elif not self._cancel(task_id):
                    self._remember(task_id)
        finally:
            self.is_subscribed = False
        return 0.0

    def _remember(self, task_id: str) -> None:
        # They stand in the order of their ends, so that only those that are over are looked at: thousands may come.
        now_s = self._clock.monotonic_s()
        while self._unknown and next(iter(self._unknown.values())) <= now_s:
            del self._unknown[next(iter(self._unknown))]
        self._unknown.pop(task_id, None)
        self._unknown[task_id] = now_s + REMEMBER_S

    def was_canceled(self, task_id: str) -> bool:
        """Tell whether a task that comes in now was cancelled in the last 2 s."""
        if not self._unknown:
            return False
        return self._unknown.pop(task_id, 0.0) > self._clock.monotonic_s()

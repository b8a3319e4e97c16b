"""The subscriber: hears which tasks are to be cancelled, and what is to become of them.

Wakes: on each message of asynq:cancel and of fastq's own channel beside it; after a lost connection it subscribes
again. It keeps what names no task held here for 2 s, for a dequeue that is under way. If it dies: cancellations are
not heard until it is back.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from fastq import keys
from fastq.broker.aio import AsyncBroker
from fastq.broker.cancel import CancelAs, Cancellation, read_cancellation
from fastq.broker.subscription import Heard, listen
from fastq.clock import Clock
from fastq.errors import BrokerAuthError
from fastq.server.actor import Actor
from fastq.server.recent import Recent

__all__ = ["Subscriber"]

REMEMBER_S: Final = 2.0


class Subscriber(Actor):
    """Listen for cancellations; one tick is one connection's life."""

    name = "subscriber"
    tick_limit_s = None  # it listens for as long as the connection lives, which it asks every 3 s

    def __init__(self, broker: AsyncBroker, cancel: Callable[[Cancellation], bool], clock: Clock) -> None:
        super().__init__()
        self._broker = broker
        self._cancel = cancel
        self._unknown = Recent[tuple[str | None, str], CancelAs](REMEMBER_S, clock)
        self._bare_ids_due = Recent[str, int](REMEMBER_S, clock)
        self._has_said_nonsense = False
        self._has_said_forbidden = False
        self.is_subscribed = False

    async def tick(self) -> float:
        """Subscribe and serve messages until the connection ends."""
        try:
            await self._serve(keys.CANCEL_CHANNEL, keys.CANCEL_AS_CHANNEL)
        except BrokerAuthError as error:
            # Perhaps a user who was set up for asynq alone.
            await self._serve(keys.CANCEL_CHANNEL, instead_of=error)
        return 0.0

    async def _serve(self, *channels: str, instead_of: BrokerAuthError | None = None) -> None:
        transport = self._broker.transport
        try:
            async with aclosing(listen(transport.lender(), transport.where, *channels)) as messages:  # type: ignore[type-var]  # a generator, though typed as an iterator
                async for heard in messages:
                    self.is_subscribed = True
                    if heard is not None:
                        self._hear(heard)
                        continue
                    self._note_success()
                    if instead_of is not None and not self._has_said_forbidden:
                        self._has_said_forbidden = True
                        self._log.warning(
                            "%s; tasks are cancelled, but always retried: the Redis user may not listen to %s",
                            instead_of,
                            keys.CANCEL_AS_CHANNEL,
                        )
        finally:
            self.is_subscribed = False

    @property
    def remembers(self) -> bool:
        """Tell whether any id is kept."""
        if not self._unknown:
            return False
        self._unknown.forget_what_is_over()
        return bool(self._unknown)

    def _hear(self, heard: Heard) -> None:
        if heard.channel == keys.CANCEL_CHANNEL:
            if due := self._bare_ids_due.take(heard.text):
                # It only repeats, for servers of asynq, what was said in full just before.
                if due > 1:
                    self._bare_ids_due.put(heard.text, due - 1)
                return
            cancellation = Cancellation(heard.text)
        else:
            try:
                cancellation = read_cancellation(heard.text)
            except ValueError as error:
                if not self._has_said_nonsense:
                    self._has_said_nonsense = True
                    self._log.warning("a message on %s is ignored, as all like it: %s", heard.channel, error)
                return
            due = self._bare_ids_due.take(cancellation.task_id) or 0
            self._bare_ids_due.put(cancellation.task_id, due + 1)
        if not self._cancel(cancellation):
            self._unknown.put((cancellation.queue, cancellation.task_id), cancellation.outcome or CancelAs.RETRY)

    def canceled_as(self, queue: str, task_id: str) -> CancelAs | None:
        """Return what is to become of a task that comes in now and was cancelled in the last 2 s, else None."""
        if not self._unknown:
            return None
        by_id, by_name = self._unknown.take((None, task_id)), self._unknown.take((queue, task_id))
        return by_name or by_id

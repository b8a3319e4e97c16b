"""The subscriber: hears which tasks are to be cancelled, what is to become of them, and that the server is to stop.

Wakes: on each message of asynq:cancel, of fastq's own channel beside it, and of this server's; after a lost connection
it subscribes again. It keeps what names no task held here for 2 s, for a dequeue that is under way. If it dies: nothing
of this is heard until it is back.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from fastq import keys
from fastq.broker.aio import AsyncBroker
from fastq.broker.cancel import CancelAs, Cancellation, read_cancellation
from fastq.broker.control import ServerOrder, read_order
from fastq.broker.subscription import Heard, listen
from fastq.clock import Clock
from fastq.errors import BrokerAuthError
from fastq.server.actor import Actor
from fastq.server.recent import Recent

__all__ = ["Control", "Subscriber"]

REMEMBER_S: Final = 2.0


class Control(NamedTuple):
    """Name the channel on which this server is told what to do, and who does it."""

    channel: str
    obey: Callable[[ServerOrder], None]


class _Heard(NamedTuple):
    """A cancellation of a task that is not here, and when it was heard (monotonic seconds)."""

    outcome: CancelAs
    at_s: float


class Subscriber(Actor):
    """Listen for cancellations and orders; one tick is one connection's life.

    A user may listen to fewer channels: one who was set up for asynq alone to its own only.
    """

    name = "subscriber"
    tick_limit_s = None  # it listens for as long as the connection lives, which it asks every 3 s

    def __init__(
        self, broker: AsyncBroker, cancel: Callable[[Cancellation], bool], clock: Clock, control: Control | None = None
    ) -> None:
        super().__init__()
        self._broker = broker
        self._cancel = cancel
        self._control = control
        self._clock = clock
        self._unknown = Recent[tuple[str | None, str], _Heard](REMEMBER_S, clock)
        self._bare_ids_due = Recent[str, int](REMEMBER_S, clock)
        self._has_said_nonsense: set[str] = set()
        self._has_said_forbidden: set[str] = set()
        self.is_subscribed = False

    async def tick(self) -> float:
        """Subscribe and serve messages until the connection ends."""
        channels = [keys.CANCEL_CHANNEL, keys.CANCEL_AS_CHANNEL]
        if self._control is not None:
            channels.append(self._control.channel)
        refusals: dict[str, BrokerAuthError] = {}
        while True:
            try:
                await self._serve(channels, refusals)
            except BrokerAuthError as error:
                if len(channels) == 1:
                    raise
                refusals[channels.pop()] = error
            else:
                return 0.0

    async def _serve(self, channels: Sequence[str], refusals: Mapping[str, BrokerAuthError]) -> None:
        transport = self._broker.transport
        try:
            async with aclosing(listen(transport.lender(), transport.where, *channels)) as messages:  # type: ignore[type-var]  # a generator, though typed as an iterator
                async for heard in messages:
                    self.is_subscribed = True
                    if heard is not None:
                        self._hear(heard)
                        continue
                    self._note_success()
                    self._say_what_is_forbidden(refusals)
        finally:
            self.is_subscribed = False

    def _say_what_is_forbidden(self, refusals: Mapping[str, BrokerAuthError]) -> None:
        for channel, error in refusals.items():
            if channel not in self._has_said_forbidden:
                self._has_said_forbidden.add(channel)
                lack = (
                    "tasks are cancelled, but always retried"
                    if channel == keys.CANCEL_AS_CHANNEL
                    else "signals stop this server, fastq server stop does not"
                )
                self._log.warning("%s; %s: the Redis user may not listen to %s", error, lack, channel)

    @property
    def remembers(self) -> bool:
        """Tell whether any id is kept."""
        if not self._unknown:
            return False
        self._unknown.forget_what_is_over()
        return bool(self._unknown)

    def _hear(self, heard: Heard) -> None:
        try:
            if self._control is not None and heard.channel == self._control.channel:
                self._control.obey(read_order(heard.text))
                return
            cancellation = self._read(heard)
        except ValueError as error:
            if heard.channel not in self._has_said_nonsense:
                self._has_said_nonsense.add(heard.channel)
                self._log.warning("a message on %s is ignored, as all like it: %s", heard.channel, error)
            return
        if cancellation is not None and not self._cancel(cancellation):
            unknown = _Heard(cancellation.outcome or CancelAs.RETRY, self._clock.monotonic_s())
            self._unknown.put((cancellation.queue, cancellation.task_id), unknown)

    def _read(self, heard: Heard) -> Cancellation | None:
        """Read a cancellation; None for a bare id that only repeats, for servers of asynq, what was said in full."""
        if heard.channel == keys.CANCEL_AS_CHANNEL:
            cancellation = read_cancellation(heard.text)
            due = self._bare_ids_due.take(cancellation.task_id) or 0
            self._bare_ids_due.put(cancellation.task_id, due + 1)
            return cancellation
        if due := self._bare_ids_due.take(heard.text) or 0:
            if due > 1:
                self._bare_ids_due.put(heard.text, due - 1)
            return None
        return Cancellation(heard.text)

    def canceled_as(self, queue: str, task_id: str, asked_s: float) -> CancelAs | None:
        """Return what is to become of a task that comes in now and was canceled on its way here, else None.

        ``asked_s`` is when its dequeue was asked for: a task that was canceled before that ran elsewhere, and is run
        again since somebody wants it.
        """
        if not self._unknown:
            return None
        by_id, by_name = self._unknown.take((None, task_id)), self._unknown.take((queue, task_id))
        heard = by_name or by_id
        return heard.outcome if heard is not None and heard.at_s >= asked_s else None

"""The subscriber: receives cancellations, with the outcome asked for, and the messages of other topics.

Wakes: on each message of asynq:cancel, of fastq's own channel for cancellations, and of the topics that it is given;
after a lost connection it subscribes again. A cancellation of a task that is not in flight here is kept for a dequeue
that is under way (``cancellations``). If it dies: none of these messages is received until it is back.
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from fastq.broker.operations.cancel import Cancellation, read_cancellation
from fastq.broker.operations.control import ServerOrder, read_order
from fastq.broker.operations.lanes import RULES_CHANGED
from fastq.broker.transport.aio import AsyncBroker
from fastq.broker.transport.subscription import ChannelMessage, listen
from fastq.common.clock import Clock
from fastq.errors import BrokerAuthError
from fastq.server.actors.actor import Actor
from fastq.server.base.outage import Outage
from fastq.server.inflight.cancellations import REMEMBER_S, EarlyCancellations
from fastq.server.inflight.expiring_dict import ExpiringDict
from fastq.wire import keys


class Topic(NamedTuple):
    """Channels with one kind of message.

    ``handle`` raises ``ValueError`` for an invalid message. ``lack`` describes what does not work without the right to
    subscribe to them. ``begin`` is called each time the server has subscribed again, because messages may have been
    missed.
    """

    channels: Sequence[str]
    handle: Callable[[ChannelMessage], None]
    lack: str
    begin: Callable[[], None] = lambda: None


class Rules(Protocol):
    """The actor that must learn of changed rules for lanes: the lane keeper."""

    def look_at(self, queue: str) -> None:
        """Read again whether a queue has rules, since they may have changed."""

    def look_at_all(self) -> None:
        """Read again which queues have rules."""


class Subscriber(Actor):
    """The actor that listens for cancellations and orders; one tick lasts as long as its connection.

    The Redis user may have the right to fewer channels, for example only to asynq's own. ``topics`` are given up one by
    one, the last one first.
    """

    name = "subscriber"
    tick_limit_s = None  # it listens for as long as the connection lives, which it checks every 3 s

    def __init__(
        self,
        broker: AsyncBroker,
        cancel: Callable[[Cancellation], bool],
        early: EarlyCancellations,
        clock: Clock,
        topics: Sequence[Topic],
        outage: Outage,
    ) -> None:
        super().__init__(outage)
        self._broker = broker
        self._cancel = cancel
        self._early = early
        self._topics = (
            Topic((keys.CANCEL_CHANNEL,), self._on_cancel, ""),
            Topic(
                (keys.CANCEL_AS_CHANNEL,),
                self._on_cancel_as,
                "canceled tasks are always retried, whatever outcome was asked for",
            ),
            *topics,
        )
        self._bare_ids_due = ExpiringDict[str, int](REMEMBER_S, clock)
        self._logged_invalid: set[str] = set()
        self._logged_forbidden: set[str] = set()
        self.is_subscribed = False

    def forget_what_is_over(self) -> None:
        """Drop the cancellations that no dequeue can need any more."""
        self._early.forget_what_is_over()
        self._bare_ids_due.forget_what_is_over()

    async def tick(self) -> float:
        """Subscribe and serve messages until the connection ends."""
        topics = list(self._topics)
        refused: list[tuple[Topic, BrokerAuthError]] = []
        while True:
            try:
                await self._serve(topics, refused)
            except BrokerAuthError as error:
                if len(topics) == 1:
                    raise
                refused.append((topics.pop(), error))
            else:
                return 0.0

    async def _serve(self, topics: Sequence[Topic], refused: Sequence[tuple[Topic, BrokerAuthError]]) -> None:
        transport = self._broker.transport
        handlers = {channel: topic.handle for topic in topics for channel in topic.channels}
        try:
            async with aclosing(listen(transport.lender(), transport.where, *handlers)) as messages:  # type: ignore[type-var]  # a generator, though typed as an iterator
                async for message in messages:
                    if not self.is_subscribed:
                        self.is_subscribed = True
                        for topic in topics:
                            topic.begin()
                    if message is not None:
                        self._handle(message, handlers[message.channel])
                        continue
                    self._note_success()
                    self._log_forbidden(refused)
        finally:
            self.is_subscribed = False

    def _log_forbidden(self, refused: Sequence[tuple[Topic, BrokerAuthError]]) -> None:
        for topic, error in refused:
            if topic.lack not in self._logged_forbidden:
                self._logged_forbidden.add(topic.lack)
                channels = ", ".join(topic.channels[:2]) + (", ..." if len(topic.channels) > 2 else "")
                self._log.warning("%s; %s: the Redis user may not subscribe to %s", error, topic.lack, channels)

    def _handle(self, message: ChannelMessage, handle: Callable[[ChannelMessage], None]) -> None:
        try:
            handle(message)
        except ValueError as error:
            if message.channel not in self._logged_invalid:
                self._logged_invalid.add(message.channel)
                self._log.warning(
                    "ignored an invalid message on %s (others like it are not logged): %s", message.channel, error
                )

    def _on_cancel_as(self, message: ChannelMessage) -> None:
        cancellation = read_cancellation(message.text)
        due = self._bare_ids_due.take(cancellation.task_id) or 0
        self._bare_ids_due.put(cancellation.task_id, due + 1)
        self._cancel_or_keep(cancellation)

    def _on_cancel(self, message: ChannelMessage) -> None:
        # A cancellation with an outcome is followed by its bare id, for asynq servers. That id is skipped.
        if due := self._bare_ids_due.take(message.text) or 0:
            if due > 1:
                self._bare_ids_due.put(message.text, due - 1)
            return
        self._cancel_or_keep(Cancellation(message.text))

    def _cancel_or_keep(self, cancellation: Cancellation) -> None:
        if not self._cancel(cancellation):
            self._early.keep(cancellation)


def order_topic(server_id: str, obey: Callable[[ServerOrder], None]) -> Topic:
    """Return the topic of the server's own channel."""
    return Topic(
        (keys.control_channel(server_id),),
        lambda message: obey(read_order(message.text)),
        "fastq server stop and quiet have no effect on this server, only signals do",
    )


def due_topic(
    queues: Sequence[str],
    note_due: Callable[[str, float], None],
    rules: Rules,
    interval_s: float,
) -> Topic:
    """Return the topic of the queues' due times, in Unix seconds: each is earlier than all others of its queue.

    The same channel announces changed rules for lanes.
    """
    queue_of = {keys.due_channel(queue): queue for queue in queues}

    def hear(message: ChannelMessage) -> None:
        queue = queue_of[message.channel]
        if message.text == RULES_CHANGED:
            rules.look_at(queue)
        else:
            note_due(queue, float(message.text))

    return Topic(
        tuple(queue_of),
        hear,
        f"a task that becomes due before all others of its queue may run {interval_s:g} s late, and the first rule for "
        "lanes of a queue is noticed when this server is started again",
        rules.look_at_all,
    )

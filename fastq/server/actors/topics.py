"""What a server listens to beside cancellations: orders to itself, and due times of its queues."""

from collections.abc import Callable, Sequence

from fastq.broker.operations.control import ServerOrder, read_order
from fastq.server.actors.subscriber import Topic
from fastq.wire import keys

__all__ = ["due_topic", "order_topic"]


def order_topic(server_id: str, obey: Callable[[ServerOrder], None]) -> Topic:
    """Return the topic of the server's own channel."""
    return Topic(
        (keys.control_channel(server_id),),
        lambda message: obey(read_order(message.text)),
        "fastq server stop and quiet have no effect on this server, only signals do",
    )


def due_topic(queues: Sequence[str], note_due: Callable[[str, float], None], interval_s: float) -> Topic:
    """Return the topic of the queues' due times, in Unix seconds: each is earlier than all others of its queue."""
    queue_of = {keys.due_channel(queue): queue for queue in queues}
    return Topic(
        tuple(queue_of),
        lambda message: note_due(queue_of[message.channel], float(message.text)),
        f"a task that becomes due before all others of its queue may run {interval_s:g} s late",
    )

"""Control: tell one server to stop, that is to shut down, or to be quiet, that is to fetch no more.

Each server of fastq listens on a channel of its own; asynq has none for this, so that nobody hears who asks a Go
server. Redis tells how many listen to a channel, which is how that is known beforehand.
"""

from enum import StrEnum

import orjson

from fastq.broker.operation import Operation
from fastq.wire import keys

__all__ = ["ServerOrder", "count_listeners", "read_order", "send_order"]


class ServerOrder(StrEnum):
    """What a server can be told; one that does it already goes on doing it."""

    STOP = "stop"
    """Shut down, as after SIGTERM."""
    QUIET = "quiet"
    """Fetch no more tasks, finish those that are there, and stay, as after SIGTSTP."""


def send_order(server_id: str, order: ServerOrder) -> Operation[int]:
    """Send an order to a server; return how many clients received it; some of them may watch all channels."""
    # Sent twice it asks for the same again: a server does not hurry because of it.
    body = orjson.dumps({"do": order.value})
    return Operation("PUBLISH", (), (keys.control_channel(server_id), body), int, idempotent=True)


def count_listeners(server_id: str) -> Operation[int]:
    """Count who listens to a server's own channel: nobody, if it is not fastq's."""
    args = ("NUMSUB", keys.control_channel(server_id))
    return Operation("PUBSUB", (), args, lambda reply: int(reply[1]), idempotent=True)


def read_order(text: str) -> ServerOrder:
    """Read a message of a server's channel; ``ValueError`` for what is none, unknown fields are left aside."""
    try:
        body = orjson.loads(text)
    except ValueError as error:
        raise ValueError(f"{text!r:.200} is not JSON: {error}") from None
    order = body.get("do") if isinstance(body, dict) else None
    try:
        return ServerOrder(order)  # type: ignore[arg-type]  # what is no order is refused, of whatever type
    except ValueError:
        raise ValueError(f"{text!r:.200}: do must be one of {', '.join(map(repr, map(str, ServerOrder)))}") from None

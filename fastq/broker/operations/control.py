"""Control: orders to one server to stop (shut down) or to be quiet (fetch no more).

Each fastq server listens on a channel of its own. asynq's servers have no such channel. Redis reports how many clients
listen to a channel, so a caller can check that before it sends an order.
"""

from enum import StrEnum

import orjson

from fastq.broker.operation import Operation
from fastq.wire import keys


class ServerOrder(StrEnum):
    """An order to a server; a repeated order changes nothing."""

    STOP = "stop"
    """Shut down, as after SIGTERM."""
    QUIET = "quiet"
    """Fetch no more tasks, finish those in flight, and stay, as after SIGTSTP."""


def send_order(server_id: str, order: ServerOrder) -> Operation[int]:
    """Send an order to a server; returns how many clients received it, which may include monitors of all channels."""
    # Idempotent: a repeated order asks for the same again. It does not make a server skip any waiting.
    body = orjson.dumps({"do": order.value})
    return Operation("PUBLISH", (), (keys.control_channel(server_id), body), int, idempotent=True)


def count_listeners(server_id: str) -> Operation[int]:
    """Count the listeners of a server's own channel: none if it is not a fastq server."""
    args = ("NUMSUB", keys.control_channel(server_id))
    return Operation("PUBSUB", (), args, lambda reply: int(reply[1]), idempotent=True)


def read_order(text: str) -> ServerOrder:
    """Parse a message of a server's channel; ``ValueError`` if it is invalid; unknown fields are ignored."""
    try:
        body = orjson.loads(text)
    except ValueError as error:
        raise ValueError(f"{text!r:.200} is not JSON: {error}") from None
    order = body.get("do") if isinstance(body, dict) else None
    try:
        return ServerOrder(order)  # type: ignore[arg-type]  # any other value, of any type, is refused
    except ValueError:
        raise ValueError(f"{text!r:.200}: do must be one of {', '.join(map(repr, map(str, ServerOrder)))}") from None

"""Cancel: tell every server to stop a task, and say what is to become of it.

asynq has one channel, whose messages are bare ids: the task is retried, or archived after its last attempt. fastq has
another beside it, whose messages are JSON objects with ``id``, ``queue`` and ``outcome``; asynq does not subscribe to
it. Such a message goes first, and the bare id follows, for the servers that know no better.
"""

from enum import StrEnum
from typing import NamedTuple

import orjson

from fastq.broker.operation import Flow, Operation
from fastq.wire import keys

__all__ = ["CancelAs", "Cancellation", "cancel_processing", "read_cancellation"]


class CancelAs(StrEnum):
    """What becomes of a canceled task."""

    RETRY = "retry"
    """As asynq has it: it waits for its next attempt; after the last, or if its handler asks for it, it is archived."""
    ARCHIVE = "archive"
    """It goes to the archive, whatever attempts are left."""
    DELETE = "delete"
    """It is forgotten, as if its handler had raised ``RevokeTask``."""


class Cancellation(NamedTuple):
    """A task to cancel; ``queue`` None means any, ``outcome`` None that only asynq's bare id was received."""

    task_id: str
    queue: str | None = None
    outcome: CancelAs | None = None

    def encode(self) -> bytes:
        """Return the message for fastq's channel."""
        outcome = self.outcome or CancelAs.RETRY
        return orjson.dumps({"id": self.task_id, "queue": self.queue, "outcome": outcome.value})


def cancel_processing(task_id: str, queue: str | None = None, outcome: str | None = None) -> Flow[None]:
    """Ask every server to cancel a task that waits in it or runs there; nobody answers, so success tells nothing.

    ``outcome`` is "retry", "archive" or "delete"; asynq's servers retry whatever it says. Without queue and outcome
    only asynq's own message is sent. ``ValueError`` for another outcome, before anything is sent.
    """
    cancellation = Cancellation(task_id, queue, None if outcome is None else _outcome(outcome))
    if queue is not None or outcome is not None:
        # One after the other: where this one is refused, the task is not to be retried instead.
        yield _publish(keys.CANCEL_AS_CHANNEL, cancellation.encode())
    yield _publish(keys.CANCEL_CHANNEL, task_id)


def read_cancellation(text: str) -> Cancellation:
    """Read a message of fastq's channel; ``ValueError`` for what is none, unknown fields are left aside."""
    try:
        body = orjson.loads(text)
    except ValueError as error:
        raise ValueError(f"{text!r:.200} is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ValueError(f"{text!r:.200} is not a JSON object")
    task_id, queue, outcome = body.get("id"), body.get("queue"), body.get("outcome")
    if not isinstance(task_id, str) or not task_id:
        raise ValueError(f"{text!r:.200} names no task: id must be a string")
    if queue is not None and not isinstance(queue, str):
        raise ValueError(f"{text!r:.200} names no queue: it must be a string or null")
    return Cancellation(task_id, queue, _outcome(outcome))


def _outcome(name: object) -> CancelAs:
    try:
        return CancelAs(name)  # type: ignore[arg-type]  # what is no outcome is refused, of whatever type
    except ValueError:
        raise ValueError(f"outcome must be one of {', '.join(map(repr, map(str, CancelAs)))}, not {name!r}") from None


def _publish(channel: str, message: str | bytes) -> Operation[int]:
    # Without a key: in a cluster both messages go through the same node, and arrive in their order.
    # Sent twice it asks for the same again, which is better than not at all.
    return Operation("PUBLISH", (), (channel, message), int, idempotent=True)

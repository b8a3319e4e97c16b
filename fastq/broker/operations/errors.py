"""The records of a task's failed attempts, and one traceback for each kind of error in a queue.

A traceback is kept for 14 days after it was last written. A queue keeps the latest 200 at most.
"""

from collections.abc import Sequence
from typing import Final

from fastq.broker.operation import Operation, scripted
from fastq.wire import keys
from fastq.wire.attempts import AttemptRecord, decode_attempts

KEPT_S: Final = 14 * 86_400
MAX_KEPT: Final = 200


def keep_traceback(queue: str, fingerprint: str, traceback: str, now_s: int) -> Operation[int]:
    """Keep the traceback of an error, and drop the oldest ones if the queue has too many."""
    args = (keys.error_prefix(queue), now_s, KEPT_S, MAX_KEPT, fingerprint, traceback.encode("utf-8", "replace"))
    return scripted("keep_traceback", (keys.errors(queue),), args, idempotent=True)


def read_attempts(queue: str, task_id: str) -> Operation[list[AttemptRecord] | None]:
    """Read the failed attempts of a task that are kept, the oldest first; None if there is no such task."""

    def parse(reply: list[bytes | None]) -> list[AttemptRecord] | None:
        state, attempts = reply
        return None if state is None else decode_attempts(attempts or b"")

    return Operation("HMGET", (keys.task(queue, task_id),), ("state", "attempts"), parse, idempotent=True)


def read_tracebacks(queue: str, fingerprints: Sequence[str]) -> Operation[dict[str, str]]:
    """Read those tracebacks of a queue that are kept, by fingerprint."""

    def parse(reply: list[bytes | None]) -> dict[str, str]:
        found = zip(fingerprints, reply, strict=True)
        return {one: text.decode(errors="replace") for one, text in found if text is not None}

    return Operation("MGET", tuple(keys.error(queue, one) for one in fingerprints), (), parse, idempotent=True)

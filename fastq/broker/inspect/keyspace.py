"""A scan of all of asynq's keys, on each node of a cluster, a stretch per call."""

from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from redis.crc import key_slot

from fastq.broker.inspect.servers import SlotRange
from fastq.broker.operation import Flow, Operation, scripted
from fastq.wire import keys

KEYS_A_CALL: Final = 1_000


class KeyPage(NamedTuple):
    """A page of keys, and the cursor of the next page; None after the last one."""

    cursor: str | None
    keys: list[str]


def scan_keys(tag: str, pattern: str, cursor: str = "0") -> Operation[KeyPage]:
    """Read about 1 000 keys and return those that match a pattern; ``tag`` is the name of a queue on the node."""
    script_keys, args = (keys.pending(tag),), (pattern, cursor, KEYS_A_CALL)
    return scripted("scan_keys", script_keys, args, _parse_page, idempotent=True)


def _parse_page(reply: list[Any]) -> KeyPage:
    cursor = reply[0].decode()
    return KeyPage(None if cursor == "0" else cursor, [key.decode("utf-8", "surrogateescape") for key in reply[1]])


def glob_of(prefix: str) -> str:
    """Return the pattern of all keys with this prefix."""
    return "".join(f"\\{char}" if char in "*?[]\\^" else char for char in prefix) + "*"


def has_keys(queue: str) -> Flow[bool]:
    """Return whether Redis has any key of a queue; all keys are scanned until one is found."""
    cursor: str | None = "0"
    while cursor is not None:
        page: KeyPage = yield scan_keys(queue, glob_of(keys.queue_prefix(queue)), cursor)
        if page.keys:
            return True
        cursor = page.cursor
    return False


def node_tags(ranges: Sequence[SlotRange]) -> list[str]:
    """Return, for each cluster node with slots, a name that a queue on that node could have."""
    spans = {span.nodes[0][0]: span for span in ranges}
    return [
        next(tag for tag in map(str, count()) if span.first <= key_slot(keys.pending(tag).encode()) <= span.last)
        for span in spans.values()
    ]


def count_keys() -> Operation[int]:
    """Count all keys of the database; in a cluster, those of one node."""
    return Operation("DBSIZE", (), (), int, idempotent=True)


def key_types(names: Sequence[str]) -> tuple[Operation[str], ...]:
    """Read the type of each key, "none" if it does not exist."""
    return tuple(Operation("TYPE", (name,), (), lambda reply: reply.decode(), idempotent=True) for name in names)

"""Reads the lists of servers and schedulers as they are, including stale members."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from fastq.broker.operation import Flow, Operation, together
from fastq.broker.transport.replies import scored
from fastq.wire import keys

INDEXES: Final[Mapping[str, str]] = {
    "servers": keys.all_servers(),
    "workers": keys.all_workers(),
    "schedulers": keys.all_schedulers(),
}
"""The key of each list. Members are keys, scored by the Unix second at which they expire, by their owner's clock."""


class RegistryEntry(NamedTuple):
    """A member of a list: until when it is listed, and the TTL of its key in milliseconds.

    ``ttl_ms`` is -2 if the key does not exist, -1 if it never expires.
    """

    listed_in: str
    key: str
    expires_s: float
    ttl_ms: int


def read_registry() -> Flow[list[RegistryEntry]]:
    """Read all three lists."""
    replies = yield from together(
        *(Operation("ZRANGE", (key,), (0, -1, "WITHSCORES"), idempotent=True) for key in INDEXES.values())
    )
    members = [
        (listed_in, key.decode("utf-8", "surrogateescape"), score)
        for listed_in, reply in zip(INDEXES, replies, strict=True)
        for key, score in scored(reply)
    ]
    times = yield from together(*(Operation("PTTL", (key,), (), int, idempotent=True) for _, key, _ in members))
    return [RegistryEntry(*member, ttl_ms) for member, ttl_ms in zip(members, times, strict=True)]


def forget_stale(index: str, before_s: int) -> Operation[int]:
    """Remove the members of a list that expired before the given second; returns how many."""
    return Operation("ZREMRANGEBYSCORE", (INDEXES[index],), ("-inf", f"({before_s}"), int, idempotent=True)

"""Replies whose shape differs between RESP2 and RESP3, the default of redis-py's clients.

Connections that fastq makes use RESP2; those of a user's client may use either.
"""

from typing import Any


def scored(reply: list[Any]) -> list[tuple[bytes, float]]:
    """Return the members with their scores, from the reply to a command WITHSCORES."""
    pairs = reply if reply and isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)
    return [(member, float(score)) for member, score in pairs]


def fields_of(reply: dict[bytes, bytes] | list[bytes]) -> dict[bytes, bytes]:
    """Return the names with their values, from the reply to HGETALL or CONFIG GET."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))

"""Replies that have another shape in RESP3, which redis-py's clients speak unless told otherwise.

The connections made here speak RESP2; those of a client that the user gives speak either.
"""

from typing import Any

__all__ = ["fields_of", "scored"]


def scored(reply: list[Any]) -> list[tuple[bytes, float]]:
    """Return members with their scores, of a command WITHSCORES."""
    pairs = reply if reply and isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)
    return [(member, float(score)) for member, score in pairs]


def fields_of(reply: dict[bytes, bytes] | list[bytes]) -> dict[bytes, bytes]:
    """Return names with their values, of HGETALL or CONFIG GET."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))

"""The stretch that a queue's held tasks take up in its active list, as far as this server can know."""

from typing import NamedTuple

__all__ = ["Span"]


class Span(NamedTuple):
    """Hold the ``seq`` of the oldest task that is held and of the newest that was taken, and how many are held."""

    first: int
    last: int
    held: int

"""What is wrong with Redis, as the actors of a server meet it: said once when it begins, and once when it is over.

An outage meets every actor, and each tries again by itself. The first says what it has met; the last one for which it
works again says that it is over.
"""

from collections.abc import Callable
from typing import Final

from fastq.errors import BrokerError, BrokerOutOfMemoryError, BrokerReadOnlyError

__all__ = ["Outage", "is_shared"]

SHARED: Final = (BrokerReadOnlyError, BrokerOutOfMemoryError)
"""Beside what is transient: errors that one actor does not meet alone."""


def is_shared(error: BrokerError) -> bool:
    """Return whether every actor meets this error."""
    return error.transient or isinstance(error, SHARED)


class Outage:
    """The failing actors and the errors already logged; an actor's own error is logged and cleared by itself."""

    def __init__(self) -> None:
        self._sharing: set[object] = set()
        self._logged: set[type[BrokerError]] = set()
        self._failures = 0
        self._own: dict[object, tuple[type[BrokerError], int]] = {}
        self.retries: dict[object, Callable[[], None]] = {}
        """What ends the pauses of each actor that has failed."""

    def __bool__(self) -> bool:
        return bool(self._sharing)

    def report(self, who: object, error: BrokerError) -> bool:
        """Note that somebody has met an error; tell whether it is to be said."""
        kind = type(error)
        if is_shared(error):
            self._sharing.add(who)
            self._failures += 1
            is_news = kind not in self._logged
            self._logged.add(kind)
            return is_news
        before, count = self._own.get(who, (None, 0))
        self._own[who] = (kind, count + 1)
        return before is not kind

    def clear(self, who: object) -> int:
        """Note that it works for somebody, or that he is gone; return how often it failed if that is the end of it."""
        _, failures = self._own.pop(who, (None, 0))
        if who in self._sharing:
            self._sharing.discard(who)
            if self._sharing:
                self.try_again()
            else:
                failures += self._failures
                self._failures = 0
                self._logged.clear()
        return failures

    def try_again(self) -> None:
        """End the pauses of all who have failed: Redis has answered somebody, or another master is known."""
        for retry in list(self.retries.values()):
            retry()

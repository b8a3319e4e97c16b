"""Failures of Redis. An outage is logged once when it begins, and once when it is over.

All actors meet an outage, and each retries by itself. The first actor that meets it logs it. The last actor that works
again logs the end of the outage. An unsteady network causes many outages: beyond ``MOST_TOLD`` a minute, short ones are
only counted.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from logging import Logger
from typing import Final

from fastq.common.clock import Clock, SystemClock
from fastq.errors import BrokerError, BrokerOutOfMemoryError, BrokerReadOnlyError

MAX_BACKOFF_S: Final = 5.0
"""Short enough that leases of 30 s are extended in time once an outage is over."""
MOST_TOLD: Final = 6
"""How many troubles with Redis are logged in a minute, each with its end."""
PERIOD_S: Final = 60.0
LASTING_S: Final = 5.0
"""A trouble that lasts this long is logged however many there were."""
SHARED: Final = (BrokerReadOnlyError, BrokerOutOfMemoryError)
"""Errors, besides transient ones, that every actor meets."""


def backoff_s(failures: int) -> float:
    """Return the pause after a number of failures in a row: it doubles, with jitter, up to ``MAX_BACKOFF_S``."""
    longest_s: float = min(MAX_BACKOFF_S, 0.1 * 2 ** min(failures, 16))
    return longest_s * random.uniform(0.5, 1.0)


def is_shared(error: BrokerError) -> bool:
    """Return whether every actor meets this error."""
    return error.transient or isinstance(error, SHARED)


class Outage:
    """The failing actors and the errors already logged; an error of one actor alone is logged and cleared by itself."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._now = (clock or SystemClock()).monotonic_s
        self._since_s = self._period_ends_s = 0.0
        self._told = self._untold = 0
        self._sharing: set[object] = set()
        self._logged: set[type[BrokerError]] = set()
        self._failures = 0
        self.errors: Counter[str] = Counter()
        """How often actors met each class of error."""
        self.begun = 0
        """The number of outages so far."""
        self._own: dict[object, tuple[type[BrokerError], int]] = {}
        self.retries: dict[object, Callable[[], None]] = {}
        """The functions that end the pauses of actors that have failed."""
        self.on_replica: Callable[[], None] = lambda: None
        """The function to call each time a replica, perhaps the former master, has refused a command."""

    def __bool__(self) -> bool:
        return bool(self._sharing)

    def is_met_by(self, who: object) -> bool:
        """Return whether an actor has met the outage and has not succeeded since."""
        return who in self._sharing

    def notice(self, error: BrokerError) -> None:
        """Call ``on_replica`` if a replica has refused a command; for errors that do not go through ``report``."""
        if isinstance(error, BrokerReadOnlyError):
            self.on_replica()

    def report(self, who: object, error: BrokerError) -> bool:
        """Note that an actor has met an error; return whether to log it."""
        kind = type(error)
        self.errors[kind.__name__] += 1
        self.notice(error)
        if is_shared(error):
            if not self._sharing:
                self.begun += 1
                self._since_s = self._now()
            self._sharing.add(who)
            self._failures += 1
            if kind in self._logged or not self.may_tell(self._since_s):
                return False
            self._logged.add(kind)
            return True
        before, count = self._own.get(who, (None, 0))
        self._own[who] = (kind, count + 1)
        return before is not kind

    def clear(self, who: object) -> int:
        """Note that an actor works again or is gone; return how many logged failures are over with this."""
        _, failures = self._own.pop(who, (None, 0))
        if who in self._sharing:
            self._sharing.discard(who)
            if self._sharing:
                self.try_again()
            else:
                if self._logged:
                    failures += self._failures
                else:
                    self.leave_untold()
                self._failures = 0
                self._logged.clear()
        return failures

    def may_tell(self, since_s: float) -> bool:
        """Return whether to log a trouble with Redis that began at ``since_s`` (monotonic); count it if so."""
        now_s = self._now()
        if now_s >= self._period_ends_s:
            self._period_ends_s, self._told = now_s + PERIOD_S, 0
        if self._told >= MOST_TOLD and now_s - since_s < LASTING_S:
            return False
        self._told += 1
        return True

    def leave_untold(self) -> None:
        """Count a trouble that is over and was not logged."""
        self._untold += 1

    def take_untold(self, *, at_once: bool = False) -> int:
        """Return how many troubles were not logged; 0 before the minute is over, unless ``at_once``."""
        if not at_once and self._now() < self._period_ends_s:
            return 0
        untold, self._untold = self._untold, 0
        return untold

    def try_again(self) -> None:
        """End the pauses of all actors that have failed: Redis has answered one of them, or another master is known."""
        for retry in list(self.retries.values()):
            retry()


class FailingQueues:
    """Counts an actor's failures in a row, by queue, and logs them; an outage is not logged for each queue."""

    def __init__(self, actor: object, outage: Outage, log: Logger) -> None:
        self._actor = actor
        self._outage = outage
        self._log = log
        self._failures: dict[str, int] = {}
        self.errors: dict[str, BrokerError] = {}
        """The last error of each queue that fails."""
        self._full: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._failures)

    def __iter__(self) -> Iterator[str]:
        return iter(self._failures)

    def in_outage(self) -> set[str]:
        """Return the queues whose last failure was an outage of Redis, not a failure of their own.

        Queues on a Redis that is out of memory are left out: the command that asks whether an outage is over only
        reads, so its success would prove nothing.
        """
        return {queue for queue in self._failures if self._outage.is_met_by((self._actor, queue))} - self._full

    def note_failure(self, queue: str, error: BrokerError) -> float:
        """Log why a queue failed, unless it is logged already; return for how many seconds to leave the queue alone."""
        (self._full.add if isinstance(error, BrokerOutOfMemoryError) else self._full.discard)(queue)
        failures = self._failures[queue] = self._failures.get(queue, 0) + 1
        self.errors[queue] = error
        if self._outage.report((self._actor, queue), error):
            self._log.warning("queue %s: %s; trying again until it works", queue, error)
        return backoff_s(failures)

    def note_answer(self, queue: str) -> None:
        """Note that a queue does not fail any more."""
        self.errors.pop(queue, None)
        if self._failures.pop(queue, 0) and (failures := self._outage.clear((self._actor, queue))):
            self._log.info("Redis operations succeed again after %d failed attempts", failures)

    def forget(self) -> None:
        """Forget all failures at the end, because no later request could clear them."""
        self.errors.clear()
        while self._failures:
            self._outage.clear((self._actor, self._failures.popitem()[0]))

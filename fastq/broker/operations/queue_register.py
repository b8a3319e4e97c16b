"""Which queues a client has added to ``asynq:queues``, so that it does so from time to time and not each time."""

import logging
import weakref
from collections.abc import Iterable
from typing import Final

from fastq.clock import Clock

__all__ = ["QueueRegister", "forget_registered"]

REGISTER_EVERY_S: Final = 10.0

_log = logging.getLogger("fastq.client")
_registers: Final[list[weakref.ref["QueueRegister"]]] = []


class QueueRegister:
    """The queues that one client has added to ``asynq:queues`` in the last 10 s.

    asynq remembers them for ever, so that a queue deleted elsewhere never comes back to the list.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fresh_until: dict[str, float] = {}
        self._unlisted: set[str] = set()
        _registers.append(weakref.ref(self, _registers.remove))

    def due(self, queues: Iterable[str]) -> list[str]:
        """Return those of ``queues`` that are to be registered again."""
        now = self._clock.monotonic_s()
        return [queue for queue in queues if self._fresh_until.get(queue, 0.0) <= now]

    def done(self, due: Iterable[str], registered: Iterable[str]) -> None:
        """Note which queues are registered now; say once of each other one that was due that it is not.

        Leave out of ``due`` those whose tasks failed, too: their error says what is wrong.
        """
        until = self._clock.monotonic_s() + REGISTER_EVERY_S
        for queue in registered:
            self._fresh_until[queue] = until
        for queue in set(due).difference(registered, self._unlisted):
            self._unlisted.add(queue)
            _log.warning("queue %r could not be added to asynq:queues; inspectors do not list it", queue)

    def forget(self, queue: str) -> None:
        """Let a queue be registered with its next task."""
        self._fresh_until.pop(queue, None)


def forget_registered(queue: str) -> None:
    """Let all clients of this process register a queue with its next task, since it was taken off the list."""
    for reference in tuple(_registers):  # in one step: other threads make clients meanwhile
        register = reference()
        if register is not None:
            register.forget(queue)

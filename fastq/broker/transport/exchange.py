"""A pipeline of operations without the I/O: which commands to send, and what their replies mean.

A script that Redis does not know (after a restart, SCRIPT FLUSH or failover) is sent again as text, once. The
idempotent operations behind it are sent again, too, since they may need what it does: ``put_again`` puts the next run
of a key only once the script before it has ended the present one. After a lost reply, only an idempotent operation is
sent again, while attempts are left. A command that had no effect is sent again: a Redis that was loading, busy with a
script or without its cluster rejected it, or there was no connection to send it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError

from fastq.broker.operation import Operation, Word
from fastq.broker.transport.faults import NoReply, Unconfirmed, Unsent, refusal, transport_error, was_turned_away
from fastq.errors import BrokerError, BrokerTimeoutError

ATTEMPTS = 4
"""How often an idempotent operation is sent at most; asynq's Redis client re-sends any command three times."""

PIECE_BYTES = 256_000

_ODD = (Exception, NoReply, Unsent, Unconfirmed)
"""The values that stand in place of a reply, or contain it."""

CONNECT_ATTEMPTS = 3
"""The most attempts to connect for any other operation. They take about 70 ms if Redis is away, as in asynq."""


def backoff_s(attempt: int) -> float:
    """Return the pause before attempt number ``attempt`` (1 = the first re-send), in seconds."""
    return float(min(0.008 * 8 ** (attempt - 1), 0.512))


class Command(NamedTuple):
    """The words of a command, and the key that decides its node in a cluster (None: any node).

    ``is_kept`` marks a write for which a client waits until replicas have it.
    """

    words: tuple[Word, ...]
    key: str | None
    is_kept: bool = False


def in_pieces(packed: list[Any]) -> list[list[Any]]:
    """Return the parts to send, each with a time limit of its own: several for a large command, else one."""
    if max(map(len, packed)) <= PIECE_BYTES:
        return [packed]
    return [
        [memoryview(command)[at : at + PIECE_BYTES]] for command in packed for at in range(0, len(command), PIECE_BYTES)
    ]


class Exchange:
    """A pipeline of operations, carried through as many round trips as they need.

    The caller sends ``commands`` and passes the replies to ``receive`` until there is nothing to send. It waits for
    ``pause_s`` before it sends again. Then ``results`` has each operation's value, or its ``BrokerError``.
    """

    def __init__(self, operations: Sequence[Operation[Any]], where: str) -> None:
        self._operations = operations
        self._where = where
        self._waiting: list[tuple[int, bool]] = [(index, False) for index in range(len(operations))]
        self._attempt = 0
        self.pause_s = 0.0
        self.results: list[Any] = [None] * len(operations)

    @property
    def is_over(self) -> bool:
        """Return whether there is nothing to send any more."""
        return not self._waiting

    def commands(self) -> list[Command]:
        """Return the commands to send now, in order; an empty list at the end."""
        return [
            Command(one.words(as_text=as_text), one.keys[0] if one.keys else None, one.unconfirmed is not None)
            for index, as_text in self._waiting
            for one in (self._operations[index],)
        ]

    def receive(self, replies: Sequence[Any]) -> None:
        """Take one reply, error reply, ``NoReply`` or ``Unsent`` for each command, in their order."""
        waiting, self._waiting = self._waiting, []
        self.pause_s = 0.0
        is_behind = False  # behind a script that Redis did not know
        for (index, as_text), reply in zip(waiting, replies, strict=True):
            operation = self._operations[index]
            if not isinstance(reply, _ODD):
                self.results[index] = operation.parse(reply)
                if is_behind and operation.idempotent:
                    self._waiting.append((index, as_text))
            elif isinstance(reply, NoScriptError) and not as_text:
                self._waiting.append((index, True))
                is_behind = True
            elif isinstance(reply, (NoReply, Unsent)):
                error = transport_error(reply, operation.name, self._where)
                if isinstance(reply, Unsent):
                    most = ATTEMPTS if self._may_wait_long(waiting, replies) else CONNECT_ATTEMPTS
                else:
                    most = ATTEMPTS if operation.idempotent else 1
                self._fail_or_wait(index, as_text, error, min(most, _attempts(error)))
            elif was_turned_away(reply):
                self._fail_or_wait(index, as_text, refusal(reply, operation.name), ATTEMPTS)
            elif isinstance(reply, Unconfirmed) and operation.unconfirmed is not None:
                result = operation.parse(reply.reply)
                self.results[index] = operation.unconfirmed(result, refusal(reply, operation.name))
            else:
                self.results[index] = refusal(reply, operation.name)
        if self.pause_s:
            self._attempt += 1

    def _may_wait_long(self, waiting: Sequence[tuple[int, bool]], replies: Sequence[Any]) -> bool:
        """Return whether all operations that could not be sent are idempotent.

        Operations that are sent together are given up together: registering a queue is useless without its task.
        """
        return all(
            self._operations[index].idempotent or not isinstance(reply, Unsent)
            for (index, _), reply in zip(waiting, replies, strict=True)
        )

    def _fail_or_wait(self, index: int, as_text: bool, error: BrokerError, attempts: int) -> None:
        if self._attempt + 1 < attempts:
            self._waiting.append((index, as_text))
            self.pause_s = backoff_s(self._attempt + 1)
        else:
            self.results[index] = error


def _attempts(error: BrokerError) -> int:
    """Return how often an operation with such an error is sent at most: less often after time-outs of seconds."""
    if isinstance(error, BrokerTimeoutError):
        return 2 if error.maybe_applied else 1
    return ATTEMPTS if error.transient else 1

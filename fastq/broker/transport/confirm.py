"""Writes that count only once replicas have them: WAIT, in the pipeline of the writes and on their connection."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import NoReply, Unconfirmed, Unsent

LONGEST_S: Final = 60.0


class Confirm(NamedTuple):
    """How many replicas must have a write, and how long to wait for them."""

    replicas: int
    timeout_s: float

    def lines(self, commands: Sequence[Command]) -> Sequence[Command]:
        """Return what to send: the commands, and a WAIT after them if one of them is a write."""
        if not any(command.is_kept for command in commands):
            return commands
        return [*commands, Command(("WAIT", self.replicas, max(1, round(self.timeout_s * 1000))), None)]

    def replies(self, commands: Sequence[Command], replies: Sequence[Any]) -> list[Any]:
        """Return the replies to the commands, ``Unconfirmed`` for writes that too few replicas have.

        A write without a reply cannot be asked about again: WAIT counts the replicas that have the writes of its own
        connection.
        """
        *given, waited = replies
        if isinstance(waited, int) and waited >= self.replicas:
            return given
        why = self._why(waited)
        return [
            _judged(reply, why) if command.is_kept else reply for command, reply in zip(commands, given, strict=True)
        ]

    def _why(self, waited: Any) -> str:
        if isinstance(waited, int):
            return f"{waited} of {self.replicas} replicas have confirmed it within {self.timeout_s:g} s"
        error = waited.error if isinstance(waited, (NoReply, Unsent)) else waited
        return f"no answer to the question whether {self.replicas} replicas have it: {error}"


def _judged(reply: Any, why: str) -> Any:
    if isinstance(reply, NoReply):
        return replace(reply, unconfirmed=Unconfirmed(why))
    return reply if isinstance(reply, (Exception, Unsent)) else Unconfirmed(why, reply)


class Terms(NamedTuple):
    """The terms of each transfer of an asyncio client: how long it may connect, and which replicas it waits for."""

    connect_within_s: float | None = None
    confirm: Confirm | None = None


NO_TERMS: Final = Terms()


def confirm_of(replicas: object, timeout_s: float) -> Confirm | None:
    """Return the confirmation that a client waits for, None for no replica; ``ValueError`` for impossible arguments."""
    if not isinstance(replicas, int) or replicas < 0:
        raise ValueError(f"wait_replicas must be a number of replicas, not {replicas!r}")
    if not 0 < timeout_s <= LONGEST_S:
        raise ValueError(f"wait_timeout must be more than 0 and at most {LONGEST_S:g} s, not {timeout_s:g} s")
    return Confirm(replicas, timeout_s) if replicas else None

"""An operation on Redis as data, and flows: generators that yield operations and are sent their results.

Nothing here does I/O. If a flow yields one ``Operation``, it gets the result, or the error is thrown in. If the flow
yields a tuple of operations, they take one round trip, and the flow gets a list of their results, with an error in
place of each result that failed. With ``Send`` and a later ``Receive`` a flow works while Redis does. A ``Pause``
waits. ``Soon`` limits the time after a fault.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from fastq.broker.scripts import SCRIPTS, Script
from fastq.errors import BrokerError
from fastq.wire import keys

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Word: TypeAlias = str | bytes | int | float


def as_is(reply: Any) -> Any:
    """Return the reply unparsed."""
    return reply


@dataclass(frozen=True, slots=True)
class Operation(Generic[T_co]):
    """One request to Redis: a script with its keys and arguments, or a plain command.

    ``idempotent`` means that sending it twice has the same effect as once; only then does an executor send it again
    when the reply was lost. ``keys`` share one hash tag; the first key determines the node of a cluster. A script that
    makes key names itself is sent one more key, which never exists. While a slot moves, its keys are spread over two
    nodes, and neither node runs a script that declares a missing key. So no script runs with a part of its keys. If too
    few replicas confirm a write, ``unconfirmed`` makes the operation's result from the plain result and that error.
    Without ``unconfirmed``, no replica is waited for.
    """

    name: str
    keys: tuple[str, ...] | list[str]
    args: Sequence[Word]
    parse: Callable[[Any], T_co] = as_is
    idempotent: bool = False
    script: Script | None = None
    unconfirmed: Callable[[Any, BrokerError], Any] | None = None

    def words(self, *, as_text: bool = False) -> tuple[Word, ...]:
        """Return the command to send; ``as_text`` sends the script itself, for a server that does not know its SHA."""
        if self.script is None:
            return (self.name, *self.keys, *self.args)
        declared = (*self.keys, keys.never(self.keys[0])) if self.script.builds_keys else self.keys
        if as_text:
            return ("EVAL", self.script.text, len(declared), *declared, *self.args)
        return ("EVALSHA", self.script.sha, len(declared), *declared, *self.args)


def scripted(
    name: str,
    keys: tuple[str, ...] | list[str],
    args: Sequence[Word],
    parse: Callable[[Any], T] = as_is,
    *,
    idempotent: bool = False,
) -> Operation[T]:
    """Return an operation that runs ``lua/<name>.lua``."""
    return Operation(name, keys, args, parse, idempotent, SCRIPTS[name])


@dataclass(frozen=True, slots=True)
class Pause:
    """A request to the executor to wait before the flow continues."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Wait(Pause):
    """A pause that does not count against the timeout of the call: the timeout begins anew after it."""


@dataclass(frozen=True, slots=True)
class Soon:
    """A request to the executor to limit the time of the next steps, up to a ``Send``.

    A client's timeout takes the place of this limit. The steps may take as long as one reply, or with ``after_silence``
    half as long, but at least 1 s. After silence a blocking executor also makes new connections: the open ones may lead
    to a server that is gone.
    """

    after_silence: bool


@dataclass(frozen=True, slots=True)
class Send:
    """A request to the executor to send operations without waiting; the flow gets a ticket for ``Receive``.

    The flow continues while Redis works. Every ticket must be received, whatever happens.
    """

    operations: tuple[Operation[Any], ...]


@dataclass(frozen=True, slots=True)
class Receive:
    """A request for the results of a ``Send``: a list, as for a tuple of operations."""

    ticket: Any


Step: TypeAlias = Operation[Any] | tuple[Operation[Any], ...] | Pause | Soon | Send | Receive
Flow: TypeAlias = Generator[Step, Any, T]


def together(*operations: Operation[Any]) -> Flow[list[Any]]:
    """Carry out operations in one round trip; if some fail, the first error is raised after all are done."""
    results: list[Any] = (yield operations) if operations else []
    for result in results:
        if isinstance(result, BrokerError):
            raise result
    return results

"""A finding: the result of one check, its level, why it matters and what to do."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from fastq.broker.operation import Flow, Operation
from fastq.errors import BrokerAuthError, BrokerConnectionError, BrokerError, BrokerTimeoutError

T = TypeVar("T")


class Level(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    """There is no fault yet, but there may be one later or for some users."""
    PROBLEM = "problem"
    """Tasks are lost, stuck or late, or will be after an event that can happen at any time."""
    UNSEEN = "unseen"
    """The check was not made."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, for one queue if ``queue`` is not None.

    ``count`` is the number of cases, None if they are not counted; ``examples`` are a few of them.
    """

    check: str
    level: Level
    seen: str
    why: str = ""
    advice: str = ""
    queue: str | None = None
    count: int | None = None
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A placeholder for data that Redis refused to return."""

    why: str


def ask(operation: Operation[T], *, may_be_away: bool = False) -> Flow[T | Refused]:
    """Read data that not every Redis user may read; returns ``Refused`` if Redis replies with an error. If Redis does
    not answer, this raises an error. With ``may_be_away``, for data of one node of a cluster, it returns ``Refused``
    instead, since other nodes may answer.
    """
    return attempt(_one(operation), may_be_away=may_be_away)


def _one(operation: Operation[T]) -> Flow[T]:
    result: T = yield operation
    return result


def attempt(flow: Flow[T], *, may_be_away: bool = False) -> Flow[T | Refused]:
    """Run a flow for which some users lack the rights; errors are handled as in ``ask``."""
    try:
        return (yield from flow)
    except (BrokerConnectionError, BrokerTimeoutError) as error:
        if not may_be_away:
            raise
        return Refused(str(error))
    except BrokerAuthError:
        return Refused("no permission")
    except BrokerError as error:
        return Refused(str(error))


def unseen(check: str, why: str, queue: str | None = None) -> Finding:
    """Return a finding that says that a check was not made, and why."""
    return Finding(check, Level.UNSEEN, f"not checked: {why}", queue=queue)

"""How handles get the ends of their tasks. The waiting itself is in ``blocking`` and ``aio``.

A client first waits a little for messages. It looks only at tasks whose end no message has announced, because a look
costs Redis half as much as the run of a small task.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from fastq.broker.operation import Flow
from fastq.broker.operations.ends import SubmitKey, look_at, parts_of, read_rest
from fastq.handles.handle import AnyHandle, Outcome
from fastq.handles.waits import HEARD_WITHIN_S, Call, Deadline, Waits, describe, refuse_in_handler
from fastq.wire.inbox import TaskEnd

H = TypeVar("H", bound=AnyHandle)

READ_AT_ONCE: Final = 500
"""The number of ends whose results are read together."""

NEW_WITHIN_S: Final = 0.05
"""How long to wait for a message about a task that was just submitted, before the first look at that task."""


class Hear(NamedTuple):
    """A request for ends; the answer may take ``within_s`` (None: no limit), and is empty when the time is up."""

    within_s: float | None


Steps: TypeAlias = Generator[Hear | Flow[Any] | list[H], Any, None]
"""The steps that a client carries out: wait for ends, drive a flow and send back its result, or yield these handles."""


class Collection(Generic[H]):
    """The handles of one wait; ``pending`` maps each task that is not known to have ended to its handles."""

    def __init__(self, handles: Iterable[H], waiter: object, what: str = "") -> None:
        refuse_in_handler()
        self.ended: list[H] = []
        self.pending: dict[SubmitKey, list[H]] = {}
        self._what = what
        for handle in handles:
            if getattr(handle, "waiter", None) is not waiter:
                raise ValueError(f"as_completed and gather take handles of the same client, not {handle!r}")
            if handle.end is not None:
                self.ended.append(handle)
            else:
                self.pending.setdefault(handle.task, []).append(handle)

    @classmethod
    def of_one(cls, handle: H) -> "Collection[H]":
        """Return the collection of a single handle."""
        return cls((handle,), handle.waiter, describe(handle.task))

    def take(self, ends: Mapping[SubmitKey, Outcome]) -> list[H]:
        """Set the ends of tasks on their handles, and return these handles."""
        taken: list[H] = []
        for task, end in ends.items():
            for handle in self.pending.pop(task, ()):
                handle.end = end
                taken.append(handle)
        return taken

    def describe(self) -> str:
        """Return the pending tasks, as the subject of an error's text."""
        return self._what or f"{len(self.pending)} tasks have"


def collect(collection: Collection[H], waits: Waits, call: Call, deadline: Deadline) -> Steps[H]:
    """Set the ends of tasks on their handles; ``call`` receives the ends with which the caller answers a ``Hear``.

    Raises the error that has ended all waits, and ``TimeoutError`` after the deadline.
    """
    pending = collection.pending
    waits.add(pending, call)
    try:
        yield from _hear(collection, deadline, NEW_WITHIN_S if waits.is_new(pending) else 0.0)
        gone: list[SubmitKey] = []
        has_waited = False
        for part in parts_of(task for task in list(pending) if task in pending):
            found = yield look_at(part)
            missed = sum(waits.has(task) for task, _ in found)
            gone += waits.settle(found)
            # If at most half of the tasks had ended without a message, messages do arrive: wait for those before
            # further looks.
            waits_on = not has_waited and 2 * missed <= sum(len(ids) for _, ids in part)
            yield from _hear(collection, deadline, HEARD_WITHIN_S if waits_on else 0.0)
            has_waited = has_waited or waits_on
        if gone:
            yield from _hear(collection, deadline, HEARD_WITHIN_S)
            waits.settle_gone(gone)
        yield from _hear(collection, deadline, None)
    finally:
        waits.remove(pending, call)


def _hear(collection: Collection[H], deadline: Deadline, within_s: float | None) -> Steps[H]:
    """Yield handles as their tasks end, until no end comes for ``within_s``; with None, until all tasks have ended."""
    while collection.pending:
        heard: dict[SubmitKey, Outcome] = yield Hear(
            deadline.left_s() if within_s is None else deadline.within_s(within_s)
        )
        if heard:
            yield collection.take((yield read_rest(without_errors(heard))))
        elif within_s is None:
            raise deadline.over(collection.describe())
        else:
            return


def without_errors(heard: dict[SubmitKey, Outcome]) -> dict[SubmitKey, TaskEnd]:
    """Return the ends as they are; if one is an error, which has ended the waits, raise it."""
    for end in heard.values():
        if isinstance(end, Exception):
            raise end
    return cast("dict[SubmitKey, TaskEnd]", heard)

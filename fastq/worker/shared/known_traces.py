"""What is found out about tracebacks, remembered: tasks of one kind fail at the same place again and again.

To ask a traceback for its lines costs more than all else that a report needs.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

MAX_KNOWN: Final = 1000
MOST_FRAMES: Final = 100
"""Longer tracebacks are not remembered, since each depth of a recursion would be one of its own."""

T = TypeVar("T")


class KnownTraces(Generic[T]):
    """What ``find`` returns for errors, found once for errors of the same classes that the same code has raised.

    ``find`` may use the classes and the tracebacks, but not the messages.
    """

    def __init__(self, find: Callable[[Sequence[BaseException]], T]) -> None:
        self._find = find
        self._known: dict[tuple[int, ...], tuple[T, list[object]]] = {}

    def of(self, errors: Sequence[BaseException]) -> T:
        """Return what is known about an error, its causes and so on."""
        passed: list[int] = []
        for error in errors:
            passed.append(id(type(error)))
            trace = error.__traceback__
            while trace is not None:
                passed += (id(trace.tb_frame.f_code), trace.tb_lasti)
                trace = trace.tb_next
        key = tuple(passed)
        known = self._known.get(key)
        if known is not None:
            return known[0]
        found = self._find(errors)
        if len(key) <= 2 * MOST_FRAMES:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[key] = found, _named(errors)
        return found


def _named(errors: Sequence[BaseException]) -> list[object]:
    """Return the objects whose ids are in the key: while they live, no others have these ids."""
    objects: list[object] = []
    for error in errors:
        objects.append(type(error))
        trace = error.__traceback__
        while trace is not None:
            objects.append(trace.tb_frame.f_code)
            trace = trace.tb_next
    return objects

"""The kinds of errors of failed attempts, and the limit on how often a traceback of one kind is kept."""

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Final, Generic, TypeVar

from fastq.worker.shared.known_traces import KnownTraces

AGAIN_S: Final = 600.0
WINDOW_S: Final = 10.0
CHILDS_A_WINDOW: Final = 10
MAX_KNOWN: Final = 1000
MOST_ERRORS: Final = 5

K = TypeVar("K", bound=Hashable)


def fingerprint_of(error: BaseException) -> str:
    """Return 16 hexadecimal digits, the same for errors of the same classes from the same lines of code.

    The causes and the errors of a group matter, too, as in a traceback. Messages do not matter.
    """
    return _FINGERPRINTS.of(_errors(error))


def _digest(errors: Sequence[BaseException]) -> str:
    words = "\n".join(map(str, _places(errors))).encode("utf-8", "backslashreplace")
    return blake2b(words, digest_size=8).hexdigest()


_FINGERPRINTS: Final = KnownTraces(_digest)


def _errors(error: BaseException) -> list[BaseException]:
    """Return an error, its causes, and the errors in a group."""
    errors = [error]
    for one in errors:  # the list grows during the loop
        cause = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        if cause is not None and len(errors) < MOST_ERRORS:
            errors.append(cause)
        if isinstance(one, BaseExceptionGroup):
            errors += one.exceptions[: MOST_ERRORS - len(errors)]
    return errors


def _places(errors: Sequence[BaseException]) -> list[object]:
    """Return the class of each error, and its files and lines."""
    places: list[object] = []
    for one in errors:
        kind, trace = type(one), one.__traceback__
        places += (kind.__module__, kind.__qualname__)
        while trace is not None:
            place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
            if place != places[-1]:  # a recursion is the same kind of error at any depth
                places.append(place)
            trace = trace.tb_next
    return places


class Turns(Generic[K]):
    """A limit: each kind passes at most once in ten minutes, all kinds together ``most`` times in ten seconds."""

    def __init__(self, most: int = CHILDS_A_WINDOW) -> None:
        self._most = most
        self._again_s: dict[K, float] = {}
        self._passed = 0
        self._window_ends_s = 0.0

    def allows(self, kind: K, now_s: float) -> bool:
        """Return whether a kind may pass; if so, the same kind may pass again in ten minutes."""
        if self._again_s.get(kind, now_s) > now_s:
            return False
        if now_s >= self._window_ends_s:
            self._window_ends_s, self._passed = now_s + WINDOW_S, 0
        if self._passed >= self._most:
            return False
        if len(self._again_s) >= MAX_KNOWN:
            self._again_s.clear()
        self._passed += 1
        self._again_s[kind] = now_s + AGAIN_S
        return True

"""Tracebacks for people: only the frames of their own code, and what was raised."""

import sys
import traceback
from functools import lru_cache
from types import FrameType, TracebackType
from typing import Final

_MAX_TEXT: Final = 64_000
_MAX_FILES: Final = 1000
_MACHINERY: Final = frozenset({"fastq", "importlib"})


def own_trace(error: BaseException) -> str:
    """Return the traceback of an error with only the frames of the user's code, and a hint if one helps.

    If no frame belongs to the user's code, the libraries' frames are shown.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = _trimmed(each.__traceback__)
            waiting += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
    text = "".join(traceback.format_exception(error))[-_MAX_TEXT:]
    return f"{text}{_hint(error)}".encode("utf-8", "replace").decode()


def is_ours(frame: FrameType) -> bool:
    """Return whether a frame belongs to fastq."""
    # The module's name decides, not the path: compiled code has no path, and the user's package may be installed in the
    # same directory.
    name = frame.f_globals.get("__name__")
    return name == "fastq" or (isinstance(name, str) and name.startswith("fastq."))


@lru_cache(_MAX_FILES)
def is_library(file: str) -> bool:
    """Return whether a file belongs to Python or to an installed library."""
    return file.startswith("<") or "site-packages" in file or "dist-packages" in file or "/lib/python" in file


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _trimmed(trace: TracebackType | None) -> TracebackType | None:
    outside = []
    while trace is not None:
        if _package(trace.tb_frame) not in _MACHINERY:
            outside.append(trace)
        trace = trace.tb_next
    users = [each for each in outside if not is_library(each.tb_frame.f_code.co_filename)]
    trimmed = None
    for each in reversed(users or outside):
        trimmed = TracebackType(trimmed, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return trimmed


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed for {sys.executable}, or lies in no directory of its path\n"
    if isinstance(error, SystemExit):
        return "an import must not end the process: put what a script does under if __name__ == '__main__':\n"
    return ""

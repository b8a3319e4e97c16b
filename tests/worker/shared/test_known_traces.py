"""What is remembered of tracebacks: by class and code, bounded, and never another traceback's."""

from collections.abc import Callable, Sequence
from typing import Any

from fastq.worker.shared.known_traces import MAX_KNOWN, MOST_FRAMES, KnownTraces
from tests.worker.shared.raising import raised


def fail(kind: Callable[[str], BaseException], text: str) -> None:
    raise kind(text)


def recurse(depth: int) -> None:
    if depth:
        recurse(depth - 1)
    raise ValueError


class Finder:
    """Counts what it finds."""

    def __init__(self) -> None:
        self.found = 0
        self.traces = KnownTraces(self)

    def __call__(self, errors: Sequence[BaseException]) -> str:
        self.found += 1
        trace: Any = errors[-1].__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        return f"{type(errors[-1]).__name__} {trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"


def test_what_the_same_code_raises_is_found_once_for_each_class() -> None:
    finder = Finder()
    line = fail.__code__.co_firstlineno + 1
    for text in "abc":
        assert finder.traces.of([raised(lambda text=text: fail(ValueError, text))]) == f"ValueError fail:{line}"  # type: ignore[misc]
    assert finder.found == 1
    assert finder.traces.of([raised(lambda: fail(KeyError, "a"))]) == f"KeyError fail:{line}"
    assert finder.found == 2


def test_each_cause_counts() -> None:
    finder = Finder()
    error, cause = raised(lambda: fail(ValueError, "a")), raised(lambda: recurse(0))
    assert finder.traces.of([error]) != finder.traces.of([error, cause])
    assert finder.found == 2


def test_code_that_takes_the_place_of_freed_code_is_not_taken_for_it() -> None:
    finder = Finder()
    for number in range(200):
        names: dict[str, Any] = {}
        exec(f"def made{number}():\n    raise ValueError\n", names)
        assert finder.traces.of([raised(names.pop(f"made{number}"))]) == f"ValueError made{number}:2"


def test_the_memory_is_bounded() -> None:
    finder = Finder()
    for _ in range(2):
        finder.traces.of([raised(lambda: recurse(MOST_FRAMES))])
    assert finder.found == 2
    for number in range(MAX_KNOWN + 1):
        names: dict[str, Any] = {}
        exec(f"def made{number}():\n    raise ValueError\n", names)
        finder.traces.of([raised(names.pop(f"made{number}"))])
    assert len(finder.traces._known) == 1

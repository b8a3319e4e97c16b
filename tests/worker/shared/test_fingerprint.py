"""Which errors are of one kind, and when it is a kind's turn to have its traceback passed on."""

from collections.abc import Callable

import pytest

from fastq.worker.shared import fingerprint
from fastq.worker.shared.fingerprint import Turns, fingerprint_of
from tests.worker.shared.raising import raised


def fail(kind: Callable[[str], BaseException], text: str) -> None:
    raise kind(text)


def fail_elsewhere() -> None:
    raise ValueError("a")


def fail_with_a_cause(cause: BaseException) -> None:
    raise ValueError("a") from cause


def recurse(depth: int) -> None:
    if depth:
        recurse(depth - 1)
    else:
        raise ValueError


def test_messages_do_not_count_but_classes_lines_and_causes_do() -> None:
    def of(act: Callable[[], object]) -> str:
        return fingerprint_of(raised(act))

    kinds = [
        of(lambda: fail(ValueError, "a")),
        of(lambda: fail(KeyError, "a")),
        of(fail_elsewhere),
        of(lambda: fail_with_a_cause(OSError("x"))),
        of(lambda: fail_with_a_cause(KeyError("x"))),
    ]
    assert len(set(kinds)) == len(kinds)
    assert all(len(bytes.fromhex(kind)) == 8 for kind in kinds)
    one, other = (raised(act) for act in [lambda text=text: fail(ValueError, text) for text in "ab"])
    assert fingerprint_of(one) == fingerprint_of(other)


def test_how_deep_a_recursion_was_does_not_count() -> None:
    one, other = (raised(act) for act in [lambda depth=depth: recurse(depth) for depth in (20, 300)])
    assert fingerprint_of(one) == fingerprint_of(other)


def test_the_errors_of_a_group_count() -> None:
    def group(*errors: Exception) -> str:
        return fingerprint_of(ExceptionGroup("unhandled errors in a TaskGroup", errors))

    assert group(ValueError("a")) == group(ValueError("b")) != group(KeyError("a"))
    assert group(ValueError("a"), KeyError("a")) != group(ValueError("a"))
    many = [ValueError(str(each)) for each in range(1000)]
    assert group(*many) == group(*many[:500])


def test_an_error_that_causes_itself_has_one_too() -> None:
    error = ValueError("a")
    error.__cause__ = error
    assert fingerprint_of(error)


def test_it_is_a_kinds_turn_once_in_ten_minutes() -> None:
    turns = Turns[str]()
    assert [turns.allows("a", now_s) for now_s in (0, 1, 599, 600, 601)] == [True, False, False, True, False]
    assert turns.allows("b", 601)


def test_ten_kinds_have_their_turn_in_ten_seconds() -> None:
    turns = Turns[int]()
    assert [turns.allows(kind, 5.0) for kind in range(12)] == [True] * 10 + [False] * 2
    assert turns.allows(11, 15.0)


def test_kinds_without_end_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "MAX_KNOWN", 20)
    turns = Turns[int]()
    passed = [turns.allows(kind, kind * 10.0) for kind in range(50)]
    assert all(passed)
    assert len(turns._again_s) <= 20

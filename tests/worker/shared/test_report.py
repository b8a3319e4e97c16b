"""What is said of a failed task: class, message, and the last place in the user's code."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from fastq.common.durations import parse_duration
from fastq.errors import SkipRetry, TaskTimeout
from fastq.worker.shared.known_traces import KnownTraces
from fastq.worker.shared.report import FailureReport, _last_user_place, _place, describe_error, frames_of, trace_of
from tests.worker.shared.raising import raised

HERE = "tests/worker/shared/test_report.py"


def fail() -> None:
    raise ValueError("no such file ✗")


def call_a_library() -> None:
    Path("/nosuch/file").read_text("utf-8")


def call_ours() -> None:
    parse_duration("soon")


def run(source: str, file: str, name: str = "app") -> BaseException:
    """Run code as that of a module in a file."""
    module = ModuleType(name)
    return raised(lambda: exec(compile(source, file, "exec"), module.__dict__))


def place_in(function: Callable[..., object], line: int = 1) -> str:
    """Name a line of a function of this file."""
    return f"({HERE}:{function.__code__.co_firstlineno + line})"


def test_an_error_is_its_class_its_message_and_the_last_place_in_the_users_code() -> None:
    assert describe_error(raised(fail)) == f"ValueError: no such file ✗ {place_in(fail)}"


def test_what_the_standard_library_raises_is_told_at_the_users_call() -> None:
    text = describe_error(raised(call_a_library))
    assert text.startswith("FileNotFoundError: [Errno 2] No such file or directory: '/nosuch/file' (")
    assert text.endswith(place_in(call_a_library))


def test_what_fastq_raises_is_told_at_the_users_call() -> None:
    assert describe_error(raised(call_ours)).endswith(place_in(call_ours))


def test_an_app_that_is_installed_as_a_library_still_has_its_place() -> None:
    file = "/venv/lib/python3.11/site-packages/app/tasks.py"
    error = run("def f():\n    raise KeyError('x')\nf()", file)
    # Frames of this file are the user's, too; without them the installed ones are all there is.
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_next is not None
    error.__traceback__ = error.__traceback__.tb_next.tb_next
    assert describe_error(error) == f"KeyError: 'x' ({file}:2)"


def test_a_package_whose_name_begins_like_ours_is_the_users() -> None:
    error = run("raise KeyError('x')", "/srv/fastq_app/tasks.py", "fastq_app")
    assert describe_error(error) == "KeyError: 'x' (/srv/fastq_app/tasks.py:1)"


def test_places_in_the_working_directory_are_told_from_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _place.cache_clear()
    monkeypatch.setattr("fastq.worker.shared.report._USER_PLACES", KnownTraces(_last_user_place))
    monkeypatch.chdir("/")
    told = describe_error(raised(fail))
    assert told.split("(")[1].startswith(str(Path(__file__).relative_to("/")))
    monkeypatch.chdir(tmp_path)  # as a handler may do: an error is told as before
    assert describe_error(raised(fail)) == told
    _place.cache_clear()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError(), "ValueError"),
        (ValueError(""), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (SkipRetry("bad input"), "SkipRetry: bad input"),
        (TaskTimeout("the task's time is up"), "TaskTimeout: the task's time is up"),
        (SystemExit(3), "SystemExit: 3"),
        (ValueError("two\nlines"), "ValueError: two\nlines"),
        (ValueError("a", 1), "ValueError: ('a', 1)"),
        (ExceptionGroup("many", [ValueError("x")]), "ExceptionGroup: many (1 sub-exception)"),
    ],
)
def test_an_error_without_a_place_is_class_and_message(error: BaseException, text: str) -> None:
    assert describe_error(error) == text


def test_an_error_that_cannot_be_put_into_words_is_still_said() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    assert describe_error(OddError()) == "OddError: <its __str__ raised>"


def test_text_that_is_not_unicode_is_made_so() -> None:
    # Go refuses the whole message otherwise.
    text = describe_error(ValueError("bad \udcff byte"))
    assert text == "ValueError: bad ? byte"
    assert trace_of(ValueError("\ud800")).encode("utf-8")
    assert FailureReport.decode(FailureReport(text).encode()) == FailureReport(text)


def test_a_text_of_megabytes_is_cut() -> None:
    text = describe_error(ValueError("x" * 10_000_000))
    assert len(text) == 64_001
    assert text.endswith("x…")
    assert len(trace_of(ValueError("x" * 10_000_000))) == 64_000


def test_a_report_comes_back_as_it_was() -> None:
    for report in (
        FailureReport("e"),
        FailureReport("ü", False, 1.5, "trace"),
        FailureReport("", True, 0.0),
        FailureReport("long ago", True, 1e18),
    ):
        assert FailureReport.decode(report.encode()) == report


def test_a_trace_is_python_s_own() -> None:
    assert trace_of(raised(fail)).splitlines()[-1] == "ValueError: no such file ✗"
    assert "Traceback" in trace_of(raised(fail))
    assert sys.exc_info() == (None, None, None)


class CardError(Exception):
    pass


def test_frames_have_the_class_of_each_error_and_the_message_of_none() -> None:
    def charge(order: int) -> None:
        try:
            raise ConnectionError(f"gateway of {order}")
        except ConnectionError as error:
            error.add_note(f"a note on {order}")
            raise CardError(f"order {order}\nwas declined") from error

    orders = (4711, 4712)
    first, second = (frames_of(raised(partial(charge, order))) for order in orders)
    assert first == second
    assert "4711" not in first
    assert first.endswith(f"\n{__name__}.CardError")
    assert "\nConnectionError\n\nThe above exception was the direct cause of the following exception:\n\nT" in first


def test_frames_of_groups_contexts_and_loops_are_bounded_and_without_messages() -> None:
    value = "4711"

    def parse() -> None:
        exec(f"1 = '{value}'")

    def fail_with(*errors: BaseException) -> None:
        try:
            raise KeyError(value)
        except KeyError:
            raise BaseExceptionGroup(value, errors)  # noqa: B904 - its context is what this is about

    looped = ValueError(value)
    looped.__cause__ = looped
    text = frames_of(raised(lambda: fail_with(raised(parse), looped, *(OSError(str(n)) for n in range(20)))))
    assert text.count("4711") == 0
    assert text.endswith("\nExceptionGroup")
    assert text.count("\nThe above exception is one of this group:\n") == 3
    assert "KeyError\n\nDuring handling of the above exception, another exception occurred:\n" in text
    assert frames_of(ValueError("\ud800")) == "ValueError"

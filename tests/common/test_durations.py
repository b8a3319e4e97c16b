import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.common.durations import format_duration, nanoseconds_of, parse_duration

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "options.json").read_text())
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("case", GOLDEN["duration_strings"], ids=lambda case: case["string"])
def test_durations_are_written_as_go_writes_them(case: dict[str, Any]) -> None:
    assert format_duration(case["ns"]) == case["string"]


@pytest.mark.parametrize("case", GOLDEN["parse_duration"], ids=lambda case: repr(case["input"]))
def test_durations_are_read_as_go_reads_them(case: dict[str, Any]) -> None:
    if case["error"] is None:
        assert parse_duration(case["input"]) == case["ns"]
    else:
        with pytest.raises(ValueError, match="invalid duration"):
            parse_duration(case["input"])


@given(INT64)
def test_every_duration_survives_writing_and_reading(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1d", "unknown unit 'd'"),
        ("5", "a unit is missing"),
        ("+", "it is empty"),
        ("1h.m", "a number is missing before '.m'"),
        ("9999999h", "beyond 292 years"),
        ("\u0661s", "a number is missing"),
    ],
)
def test_a_refused_duration_is_told_why(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (timedelta(hours=1), 3_600_000_000_000),
        (timedelta(microseconds=-1), -1_000),
        (30, 30_000_000_000),
        (0, 0),
        (-2, -2_000_000_000),
        (0.1, 100_000_000),
        (1.5, 1_500_000_000),
        (4.35, 4_350_000_000),
        (-0.25, -250_000_000),
        (1e-9, 1),
        (1_700_000_000.5, 1_700_000_000_500_000_000),
    ],
)
def test_seconds_and_timedeltas_become_exact_nanoseconds(value: timedelta | float, ns: int) -> None:
    assert nanoseconds_of(value, name="timeout") == ns


@given(st.timedeltas(timedelta(days=-106_751), timedelta(days=106_751)))
def test_no_timedelta_loses_a_microsecond(value: timedelta) -> None:
    assert nanoseconds_of(value, name="timeout") == value // timedelta(microseconds=1) * 1_000


@pytest.mark.parametrize("value", [True, "5", None, b"1", 1j])
def test_what_is_no_duration_is_a_type_error_that_names_the_option(value: Any) -> None:
    with pytest.raises(TypeError, match=r"retention must be a timedelta or seconds, not "):
        nanoseconds_of(value, name="retention")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**63, 1e300, -9_223_372_037, timedelta.max])
def test_what_go_cannot_hold_is_a_value_error_that_names_the_option(value: Any) -> None:
    with pytest.raises(ValueError, match=r"unique must be .*, not "):
        nanoseconds_of(value, name="unique")


def test_the_last_nanosecond_that_go_can_hold_is_accepted() -> None:
    assert nanoseconds_of(timedelta(microseconds=(2**63 - 1) // 1000), name="timeout") == 2**63 - 1 - 807
    assert nanoseconds_of(9_223_372_036, name="timeout") == 9_223_372_036_000_000_000

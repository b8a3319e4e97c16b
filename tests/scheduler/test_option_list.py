import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.scheduler.option_list import option_strings
from fastq.wire.go_forms import text_form
from tests.scheduler.harness import NOON

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "options.json").read_text())["option_strings"]

VALUES: dict[str, dict[str, Any]] = {
    "MaxRetry(3)": {"max_retry": 3},
    "MaxRetry(-5)": {"max_retry": -5},
    "Queue(x)": {"queue": "x"},
    'Queue("a b")': {"queue": "a b"},
    "Queue(unicode)": {"queue": "\u043e\u0447\u0435\u0440\u0435\u0434\u044c\u2713\U0001f600"},
    "Queue(paren)": {"queue": "a(b)c"},
    "Queue(close paren)": {"queue": "a)b"},
    "Queue(backquote)": {"queue": "a`b'c"},
    "Group(g)": {"group": "g"},
    "Timeout(0)": {"timeout": 0},
    "Timeout(1.5s)": {"timeout": 1.5},
    "Unique(1h)": {"unique": timedelta(hours=1)},
    "Deadline(utc)": {"deadline": datetime(2025, 11, 2, 3, 4, 5, tzinfo=UTC)},
    "Deadline(two-digit day)": {"deadline": datetime(2025, 11, 12, 13, 4, 5, 999_999, tzinfo=UTC)},
    "Deadline(NY)": {"deadline": datetime(2025, 7, 4, 3, 4, 5, tzinfo=ZoneInfo("America/New_York"))},
    "Deadline(fixed +0530)": {
        "deadline": datetime(2025, 7, 4, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    },
    "Deadline(zero)": {"deadline": datetime(1, 1, 1, tzinfo=UTC)},
    "ProcessAt(utc)": {"process_at": datetime(2030, 1, 1, tzinfo=UTC)},
    "Header(k,v)": {"headers": {"k": "v"}},
    "Header(html)": {"headers": {"<k>&": '\u2028\u00e9\u2713\U0001f600"\\\n'}},
    "Header(ctrl)": {"headers": {"\x00\x1f\x7f": "\b\f\r\t"}},
}
# No task has such an option.
REFUSED: dict[str, dict[str, Any]] = {
    "Queue(invalid utf8)": {"queue": "a\udcffb"},
    "Queue(empty)": {"queue": ""},
    "ProcessIn(-1s)": {"process_in": -1},
    "Header(invalid utf8)": {"headers": {"k": "\udcff"}},
}
# asynq writes these in a way that it cannot read back, or reads back as something else.
WRITTEN_SO_THAT_ASYNQ_READS_THEM = {
    "Queue(paren)": r'Queue("a(b\x29c")',
    "Queue(close paren)": r'Queue("a\x29b")',
    "Deadline(NY)": "Deadline(Fri Jul  4 07:04:05 UTC 2025)",
    "Deadline(fixed +0530)": "Deadline(Thu Jul  3 21:34:05 UTC 2025)",
}


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["expr"])
def test_options_are_written_as_asynq_writes_them(case: dict[str, Any]) -> None:
    expr = case["expr"]
    if expr in REFUSED:
        with pytest.raises(ValueError, match="must"):
            option_strings(REFUSED[expr])
    else:
        assert option_strings(VALUES[expr]) == (WRITTEN_SO_THAT_ASYNQ_READS_THEM.get(expr, case["string"]),)


@pytest.mark.parametrize("expr", WRITTEN_SO_THAT_ASYNQ_READS_THEM)
def test_only_what_asynq_misreads_is_written_otherwise(expr: str) -> None:
    (case,) = [case for case in GOLDEN if case["expr"] == expr]
    assert case["string"] != WRITTEN_SO_THAT_ASYNQ_READS_THEM[expr]
    assert case["parse_error"] is not None or "EDT" in case["string"]


def test_options_are_listed_as_asynq_writes_them_in_the_order_given() -> None:
    options = {
        "timeout": 1.5,
        "queue": "a)b",
        "max_retry": -1,
        "retention": timedelta(hours=24),
        "unique": 60,
        "unique_key": "not asynq's",
        "process_in": timedelta(minutes=30),
        "deadline": NOON,
        "headers": {"k": "v", "x": "<"},
        "group": "g",
        "task_id": None,
    }
    assert option_strings(options) == (
        "Timeout(1.5s)",
        'Queue("a\\x29b")',
        "MaxRetry(0)",
        "Retention(24h0m0s)",
        "Unique(1m0s)",
        "ProcessIn(30m0s)",
        "Deadline(Mon Mar  2 12:00:00 UTC 2026)",
        'Header(["k","v"])',
        'Header(["x","\\u003c"])',
        'Group("g")',
    )


# The right-hand sides are what strconv.Quote of Go 1.26 returned.
@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x1f\x7f", r'"\x00\x1f\x7f"'),
        ("a`b'c", '"a`b\'c"'),
        ("\u00a0\u200b\ufeff\u2028", r'"\u00a0\u200b\ufeff\u2028"'),
        ("\u0085\u00ad", r'"\u0085\u00ad"'),
        ("\ue000\U000e0001\U0010ffff", r'"\ue000\U000e0001\U0010ffff"'),
        ("\u00e9\u2713\U0001f600\u0301 x", '"\u00e9\u2713\U0001f600\u0301 x"'),
    ],
)
def test_strings_are_quoted_as_go_quotes_them(text: str, quoted: str) -> None:
    assert text_form(text) == quoted


@given(st.text(), st.text())
def test_asynq_is_never_shown_a_closing_bracket_before_the_last(key: str, value: str) -> None:
    assert ")" not in text_form(key)
    (written,) = option_strings({"headers": {key: value}})
    assert written.index(")") == len(written) - 1
    assert json.loads(written.removeprefix("Header(").removesuffix(")")) == [key, value]


@given(st.datetimes(datetime(2, 1, 1), datetime(9999, 12, 30), timezones=st.timezones()))
def test_every_time_survives_to_the_second(moment: datetime) -> None:
    (written,) = option_strings({"process_at": moment})
    _, month, day, clock, zone, year = written.removeprefix("ProcessAt(").removesuffix(")").split()
    read = datetime.strptime(f"{month} {day} {clock} {year}", "%b %d %H:%M:%S %Y")
    assert read.replace(tzinfo=UTC) == moment.astimezone(UTC).replace(microsecond=0)
    assert len(zone) == 3


def test_a_zone_at_offset_zero_keeps_its_name() -> None:
    moment = datetime(2025, 1, 2, 3, 4, 5, tzinfo=ZoneInfo("Europe/London"))
    assert option_strings({"deadline": moment}) == ("Deadline(Thu Jan  2 03:04:05 GMT 2025)",)

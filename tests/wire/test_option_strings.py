import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.wire.option_strings import Option, OptionType, OptionValue, format_option, parse_option

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "options.json").read_text())
SECOND = 1_000_000_000
TEXTS = st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))

VALUES: dict[str, OptionValue] = {
    "MaxRetry(3)": 3,
    "MaxRetry(-5)": -5,
    "Queue(x)": "x",
    'Queue("a b")': "a b",
    "Queue(unicode)": "\u043e\u0447\u0435\u0440\u0435\u0434\u044c\u2713\U0001f600",
    "Queue(paren)": "a(b)c",
    "Queue(close paren)": "a)b",
    "Queue(invalid utf8)": "a\udcffb",
    "Queue(empty)": "",
    "Queue(backquote)": "a`b'c",
    "Group(g)": "g",
    "Timeout(0)": 0,
    "Timeout(1.5s)": 1_500_000_000,
    "Unique(1h)": 3600 * SECOND,
    "ProcessIn(-1s)": -SECOND,
    "Deadline(utc)": datetime(2025, 11, 2, 3, 4, 5, tzinfo=UTC),
    "Deadline(two-digit day)": datetime(2025, 11, 12, 13, 4, 5, 999_999, tzinfo=UTC),
    "Deadline(NY)": datetime(2025, 7, 4, 3, 4, 5, tzinfo=ZoneInfo("America/New_York")),
    "Deadline(fixed +0530)": datetime(2025, 7, 4, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "Deadline(zero)": datetime(1, 1, 1, tzinfo=UTC),
    "ProcessAt(utc)": datetime(2030, 1, 1, tzinfo=UTC),
    "Header(k,v)": ("k", "v"),
    "Header(html)": ("<k>&", '\u2028\u00e9\u2713\U0001f600"\\\n'),
    "Header(invalid utf8)": ("k", "\udcff"),
    "Header(ctrl)": ("\x00\x1f\x7f", "\b\f\r\t"),
}
# asynq writes these in a way that it cannot read back, or reads back as something else.
WRITTEN_SO_THAT_ASYNQ_READS_THEM = {
    "Queue(paren)": r'Queue("a(b\x29c")',
    "Queue(close paren)": r'Queue("a\x29b")',
    "Deadline(NY)": "Deadline(Fri Jul  4 07:04:05 UTC 2025)",
    "Deadline(fixed +0530)": "Deadline(Thu Jul  3 21:34:05 UTC 2025)",
}
# What asynq refuses to read, or panics at, and is read here.
READ_HERE_ONLY: dict[str, OptionValue] = {
    'Queue("a(b)c")': "a(b)c",
    'Queue("a)b")': "a)b",
    'Group("g")': "g",
    "Deadline(Fri Jul  4 03:04:05 +0530 2025)": datetime(2025, 7, 3, 21, 34, 5, tzinfo=UTC),
    'Header(["k","a)b"])': ("k", "a)b"),
}


@pytest.mark.parametrize("case", GOLDEN["option_strings"], ids=lambda case: case["expr"])
def test_options_are_written_as_asynq_writes_them(case: dict[str, Any]) -> None:
    written = format_option(OptionType(case["type"]), VALUES[case["expr"]])
    assert written == WRITTEN_SO_THAT_ASYNQ_READS_THEM.get(case["expr"], case["string"])


@pytest.mark.parametrize("expr", WRITTEN_SO_THAT_ASYNQ_READS_THEM)
def test_only_what_asynq_misreads_is_written_otherwise(expr: str) -> None:
    (case,) = [case for case in GOLDEN["option_strings"] if case["expr"] == expr]
    assert case["string"] != WRITTEN_SO_THAT_ASYNQ_READS_THEM[expr]
    assert case["parse_error"] is not None or "EDT" in case["string"]


@pytest.mark.parametrize("case", GOLDEN["option_strings"], ids=lambda case: case["expr"])
def test_what_asynq_writes_is_read(case: dict[str, Any]) -> None:
    option = parse_option(case["string"])
    assert option.type == case["type"]
    if case["string"] in READ_HERE_ONLY:
        assert option.value == READ_HERE_ONLY[case["string"]]
    else:
        assert format_option(*option) == case["parsed_string"]


@pytest.mark.parametrize("case", GOLDEN["parse_option"], ids=lambda case: repr(case["input"]))
def test_options_are_read_as_asynq_reads_them(case: dict[str, Any]) -> None:
    text = case["input"]
    if text in READ_HERE_ONLY:
        assert parse_option(text).value == READ_HERE_ONLY[text]
    elif case["error"] or case["panic"]:
        with pytest.raises(ValueError, match="option"):
            parse_option(text)
    else:
        option = parse_option(text)
        assert (option.type, format_option(*option)) == (case["type"], case["string"])
        if "ns" in case:
            assert option.value == case["ns"]
        if "unix" in case:
            assert isinstance(option.value, datetime)
            assert option.value.timestamp() == case["unix"]


def test_what_is_read_here_only_is_all_that_asynq_cannot_read() -> None:
    refused = {case["string"] for case in GOLDEN["option_strings"] if case["parse_error"]}
    refused |= {case["input"] for case in GOLDEN["parse_option"] if case["error"] or case["panic"]}
    assert READ_HERE_ONLY.keys() <= refused


@pytest.mark.parametrize("kind", OptionType)
def test_every_kind_of_option_survives_writing_and_reading(kind: OptionType) -> None:
    values: dict[OptionType, OptionValue] = {
        OptionType.MAX_RETRY: 25,
        OptionType.DEADLINE: datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
        OptionType.PROCESS_AT: datetime(2026, 12, 30, 4, 5, 6, tzinfo=UTC),
        OptionType.QUEUE: "low",
        OptionType.TASK_ID: "id)1",
        OptionType.GROUP: "g",
        OptionType.HEADER: ("key", "value)"),
    }
    option = Option(kind, values.get(kind, 1_500 * SECOND))
    assert parse_option(format_option(*option)) == option


@given(TEXTS)
def test_every_text_survives_and_never_shows_asynq_a_closing_bracket(text: str) -> None:
    written = format_option(OptionType.QUEUE, text)
    assert written.index(")") == len(written) - 1
    assert parse_option(written).value == text


@given(st.text(), st.text())
def test_every_header_survives_and_never_shows_asynq_a_closing_bracket(key: str, value: str) -> None:
    written = format_option(OptionType.HEADER, (key, value))
    assert written.index(")") == len(written) - 1
    assert parse_option(written).value == (key, value)


@given(st.datetimes(datetime(2, 1, 1), datetime(9999, 12, 30), timezones=st.timezones()))
def test_every_time_survives_to_the_second(moment: datetime) -> None:
    read = parse_option(format_option(OptionType.PROCESS_AT, moment)).value
    assert read == moment.astimezone(UTC).replace(microsecond=0)


def test_a_zone_at_offset_zero_keeps_its_name() -> None:
    moment = datetime(2025, 1, 2, 3, 4, 5, tzinfo=ZoneInfo("Europe/London"))
    assert format_option(OptionType.DEADLINE, moment) == "Deadline(Thu Jan  2 03:04:05 GMT 2025)"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (OptionType.MAX_RETRY, True),
        (OptionType.MAX_RETRY, "3"),
        (OptionType.QUEUE, 3),
        (OptionType.TIMEOUT, 1.5),
        (OptionType.HEADER, "k"),
        (OptionType.DEADLINE, 0),
    ],
)
def test_a_value_of_another_kind_is_a_type_error(kind: OptionType, value: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        format_option(kind, value)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="timezone"):
        format_option(OptionType.DEADLINE, datetime(2025, 1, 1))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Queue", "looks like"),
        ("Nope(1)", "unknown option 'Nope'"),
        ('Queue("x")y', "looks like"),
        ("TaskID(x)", "quoted"),
        ("Timeout(5)", "unit"),
        ("Deadline(Sun Feb 30 03:04:05 UTC 2025)", "malformed"),
        ("Deadline(2025-01-01)", "is not a time"),
        ("Deadline(Sun Nov  2 03:04:05 +9900 2025)", "malformed"),
        ('Header(["k"])', "not a list"),
        ('Header(["k",1])', "not a list"),
        (f"Header({'[' * 100_000})", "nested"),
    ],
)
def test_a_malformed_option_is_told_why(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_option(text)

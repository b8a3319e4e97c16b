"""Options that are wrong, and what is to be said of each: one table for every place that takes options."""

import math
import re
from datetime import datetime, timedelta
from typing import Any


def _text(name: str) -> list[tuple[str, Any, type[Exception], str]]:
    blank = f"{name} must contain one or more characters that are not blank: "
    return [
        (name, "", ValueError, f"{blank}''"),
        (name, " \t", ValueError, re.escape(f"{blank}' \\t'")),
        (name, "\u3000", ValueError, re.escape(f"{blank}'\\u3000'")),
        (name, "a\ud800", ValueError, re.escape(f"{name} must be valid Unicode text: 'a\\ud800'")),
        (name, b"x", TypeError, f"{name} must be a str, not bytes: b'x'"),
        (name, 1, TypeError, f"{name} must be a str, not int: 1"),
        (name, ["x"], TypeError, re.escape(f"{name} must be a str, not list: ['x']")),
    ]


def _duration(name: str) -> list[tuple[str, Any, type[Exception], str]]:
    kind = f"{name} must be a timedelta or seconds, not "
    return [
        (name, "30", TypeError, f"{kind}'30'"),
        (name, True, TypeError, f"{kind}True"),
        (name, 1j, TypeError, f"{kind}1j"),
        (name, datetime(2030, 1, 1), TypeError, re.escape(f"{kind}datetime.datetime(2030, 1, 1, 0, 0)")),
        (name, math.nan, ValueError, f"{name} must be finite, not nan"),
        (name, math.inf, ValueError, f"{name} must be finite, not inf"),
        (name, 2**63, ValueError, f"{name} must be within 292 years, not {2**63}"),
        (name, 1e300, ValueError, re.escape(f"{name} must be within 292 years, not 1e+300")),
        (name, 9_223_372_037, ValueError, f"{name} must be within 292 years, not 9223372037"),
        (name, -9_223_372_037, ValueError, f"{name} must be within 292 years, not -9223372037"),
        (name, timedelta.max, ValueError, re.escape(f"{name} must be within 292 years, not {timedelta.max!r}")),
    ]


def _time(name: str) -> list[tuple[str, Any, type[Exception], str]]:
    kind = f"{name} must be a datetime with a time zone, not "
    naive = f"{name} must have a time zone, for example datetime.now(UTC) or .replace(tzinfo=...): "
    return [
        (name, datetime(2030, 1, 1), ValueError, re.escape(f"{naive}datetime.datetime(2030, 1, 1, 0, 0)")),
        (name, 1_893_456_000, TypeError, f"{kind}int: 1893456000"),
        (name, "2030-01-01T00:00:00Z", TypeError, f"{kind}str: '2030-01-01T00:00:00Z'"),
        (name, timedelta(hours=1), TypeError, re.escape(f"{kind}timedelta: datetime.timedelta(seconds=3600)")),
        (name, True, TypeError, f"{kind}bool: True"),
    ]


BAD_OPTIONS: list[tuple[str, Any, type[Exception], str]] = [
    *_text("queue"),
    (
        "queue",
        "a}b",
        ValueError,
        re.escape("queue must not contain '}', which would break the hash tag of its keys: 'a}b'"),
    ),
    *_text("task_id"),
    *_text("unique_key"),
    *_text("group"),
    *_text("lane"),
    *(
        (
            "lane",
            lane,
            ValueError,
            re.escape(f"lane must not be '*' or end with ':*', which stand for many lanes: {lane!r}"),
        )
        for lane in ("*", "openai:*")
    ),
    *(
        ("lane", lane, ValueError, re.escape(f"lane must not contain control characters: {lane!r}"))
        for lane in ("a\nb", "\x00", "a\x85", "\x1f:b")
    ),
    (
        "lane",
        "é" * 101,
        ValueError,
        re.escape(f"lane must have at most 200 bytes, not 202: {'é' * 50!r}..."),
    ),
    ("priority", True, TypeError, "priority must be an int, not bool: True"),
    ("priority", 1.5, TypeError, "priority must be an int, not float: 1.5"),
    ("priority", 101, ValueError, "priority must be from -100 to 100: 101"),
    ("priority", -101, ValueError, "priority must be from -100 to 100: -101"),
    ("max_retry", True, TypeError, "max_retry must be an int, not bool: True"),
    ("max_retry", "3", TypeError, "max_retry must be an int, not str: '3'"),
    ("max_retry", 3.0, TypeError, "max_retry must be an int, not float: 3.0"),
    (
        "max_retry",
        2**31,
        ValueError,
        re.escape("max_retry must be at most 2147483647 (32 bits on the wire): 2147483648"),
    ),
    *_duration("timeout"),
    ("timeout", 0.999, ValueError, re.escape("timeout must be 0 (none) or at least 1 second: 0.999")),
    ("timeout", 1e-10, ValueError, re.escape("timeout must be 0 (none) or at least 1 second: 1e-10")),
    ("timeout", -1, ValueError, re.escape("timeout must be 0 (none) or at least 1 second: -1")),
    *_duration("unique"),
    ("unique", 0, ValueError, "unique must be at least 1 second: 0"),
    ("unique", 0.999, ValueError, "unique must be at least 1 second: 0.999"),
    ("unique", -3600, ValueError, "unique must be at least 1 second: -3600"),
    *_duration("process_in"),
    *_duration("retention"),
    *_time("deadline"),
    *_time("process_at"),
    ("headers", [("a", "1")], TypeError, re.escape("headers must be a mapping of str to str, not list: [('a', '1')]")),
    ("headers", "a=1", TypeError, "headers must be a mapping of str to str, not str: 'a=1'"),
    ("headers", {"a": 1}, TypeError, "headers must map str to str: 'a': 1"),
    ("headers", {1: "a"}, TypeError, "headers must map str to str: 1: 'a'"),
    ("headers", {"a": None}, TypeError, "headers must map str to str: 'a': None"),
    ("headers", {"a": b"1"}, TypeError, "headers must map str to str: 'a': b'1'"),
    ("headers", {"a": "\udfff"}, ValueError, re.escape("headers must be valid Unicode text: 'a': '\\udfff'")),
    ("headers", {"\ud83d": "x"}, ValueError, re.escape("headers must be valid Unicode text: '\\ud83d': 'x'")),
    (
        "headers",
        {"\ud83d": "\ude00"},
        ValueError,
        re.escape("headers must be valid Unicode text: '\\ud83d': '\\ude00'"),
    ),
]
"""Name, value, class of the error, and its message as a regular expression."""

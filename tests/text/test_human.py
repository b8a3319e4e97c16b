"""How the commands write numbers, times and bytes."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from fastq.text import human

NOW = datetime(2026, 11, 21, 7, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 kB"),
        (1_500_000, "1.4 MB"),
        (2**40, "1.0 TB"),
        (2**70, "1048576.0 PB"),
    ],
)
def test_sizes(count: int | None, text: str) -> None:
    assert human.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.04, "40ms"),
        (1, "1s"),
        (1.26, "1.3s"),
        (59.7, "1m"),
        (61, "1m 1s"),
        (3600, "1h"),
        (3660, "1h 1m"),
        (3601, "1h"),
        (90_000, "1d 1h"),
        (400 * 86_400, "400d"),
        (-90, "1m 30s"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert human.span(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.5, "now"), (-0.5, "now"), (90, "in 1m 30s"), (-5, "5s ago")])
def test_times_as_seen_from_now(seconds: float, text: str) -> None:
    assert human.when(NOW + timedelta(seconds=seconds), NOW) == text


def test_no_time_is_a_dash() -> None:
    assert (human.when(None, NOW), human.stamp(None)) == ("-", "-")


def test_times_are_written_in_utc() -> None:
    assert human.stamp(NOW.astimezone(timezone(timedelta(hours=5)))) == "2026-11-21 07:00:00 UTC"


def test_shares() -> None:
    assert (human.share(1, 3), human.share(0, 5), human.share(0, 0)) == ("33.33%", "0.00%", "-")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "-"),
        (b"", ""),
        ("письмо".encode(), "письмо"),
        (b"a\n\x1b[2J\t", "a\\n\\x1b[2J\\t"),
        ("\u202eabc".encode(), "\\u202eabc"),
        (b"\xff\x00", "2 B, not text: ff 00"),
        (b"\xff" * 2048, f"2.0 kB, not text: {' '.join(['ff'] * 16)} …"),
    ],
)
def test_bytes_upset_no_terminal(data: bytes | None, text: str) -> None:
    assert human.payload_text(data) == text


def test_numbers_are_grouped() -> None:
    assert human.number(1_234_567) == "1,234,567"

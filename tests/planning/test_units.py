"""Quantities as people type them; what could mean two things is refused."""

from collections.abc import Callable

import pytest

from fastq.planning.units import parse_count, parse_link, parse_rate, parse_size, parse_span


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_rate, "5000/s", 5000.0),
        (parse_rate, " 1.5k / s ", 1500.0),
        (parse_rate, "90k/min", 1500.0),
        (parse_rate, "6/m", 0.1),
        (parse_rate, "3.6M/h", 1000.0),
        (parse_rate, "86400/d", 1.0),
        (parse_rate, "0/s", 0.0),
        (parse_span, "20ms", 0.02),
        (parse_span, "1h30m", 5400.0),
        (parse_span, "0", 0.0),
        (parse_size, "2kB", 2048),
        (parse_size, "100B", 100),
        (parse_size, "1.5 MB", 1_572_864),
        (parse_size, "512M", 512 * 2**20),
        (parse_count, "1M", 1_000_000),
        (parse_count, "250k", 250_000),
        (parse_count, "7", 7),
        (parse_link, "10Gbit", 1.25e9),
        (parse_link, "500Mbit/s", 62.5e6),
    ],
)
def test_quantities_are_read(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "text", "error"),
    [
        (parse_rate, "5000", "not a rate with its period"),
        (parse_rate, "5000/", "not a rate with its period"),
        (parse_rate, "5000/x", "not a rate with its period"),
        (parse_rate, "/s", "not a rate such as"),
        (parse_rate, "-1/s", "not a rate such as"),
        (parse_rate, "1e3/s", "not a rate such as"),
        (parse_rate, "inf/s", "not a rate such as"),
        (parse_rate, "9999999999G/s", "is too large"),
        (parse_rate, f"{'9' * 400}/s", "is too large"),
        (parse_span, "20", "not a duration with its unit"),
        (parse_span, "fast", "not a duration with its unit"),
        (parse_span, "", "not a duration with its unit"),
        (parse_span, "-1s", "negative"),
        (parse_size, "2kb/s", "not a size"),
        (parse_size, "-2kB", "not a size"),
        (parse_size, "2000", "not a size with its unit"),
        (parse_size, "", "not a size"),
        (parse_count, "1.5x", "not a number"),
        (parse_count, "nan", "not a number"),
        (parse_link, "10", "not a speed"),
        (parse_link, "10GB", "not a speed"),
    ],
)
def test_what_is_none_is_refused_by_name(parse: Callable[[str], float], text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse(text)

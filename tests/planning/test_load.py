"""Loads: what a handler computes and waits, and the short form of the command line."""

import pytest

from fastq.planning.load import Load, parse_load, scaled, total_rate


def test_a_plain_handler_computes_all_the_time_unless_said_otherwise() -> None:
    assert Load(1.0, 0.02, 100).cpu_s == 0.02
    assert Load(1.0, 0.02, 100, cpu=0.005).wait_s == pytest.approx(0.015)
    assert Load(1.0, 0.02, 100, is_async=True).cpu_s == 0.0


def test_the_short_form_is_read() -> None:
    text = "rate=6k/min, duration=20ms,payload=2kB,cpu=5ms,async,retention=1h,result=1kB"
    assert parse_load(text) == Load(100.0, 0.02, 2048, 0.005, True, 3600.0, 1024)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "'' is not one of rate="),
        ("rate=5/s", "lacks duration= and payload="),
        ("rate=5/s,duration=1s,payload=1kB,speed=9", "'speed=9' is not one of"),
        ("rate=5/s,duration=1s,payload=1kB,async=1", "'async=1' is not one of"),
        ("rate=5/s,rate=6/s,duration=1s,payload=1kB", "'rate=6/s' is given twice"),
        ("rate=5,duration=1s,payload=1kB", "not a rate"),
        ("rate=5/s,duration=1s,payload=1kB,cpu=2s", "cpu must be from 0 to the duration of 1 s: 2 s"),
        ("rate=5/s,duration=1s,payload=1GB", "payload must be at most 512 MB"),
    ],
)
def test_what_is_no_load_is_refused_by_name(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_load(text)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_figures_must_be_finite_and_not_negative(value: float) -> None:
    with pytest.raises(ValueError, match="rate must be finite and not negative"):
        Load(value, 1.0, 1)


def test_a_mix_keeps_its_shares_when_it_is_scaled() -> None:
    mix = scaled((Load(10.0, 1.0, 1), Load(30.0, 2.0, 1)), 2.5)
    assert [load.rate for load in mix] == [25.0, 75.0]
    assert total_rate(mix) == 100.0

"""What was heard a moment ago is kept for its time, given out once, and costs no more when there is much of it."""

import time

from fastq.server.inflight.expiring_dict import ExpiringDict
from tests.manual_clock import ManualClock


def test_what_is_put_is_taken_once_within_its_time() -> None:
    clock = ManualClock(0)
    recent = ExpiringDict[str, int](2.0, clock)
    assert recent.take("a") is None
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.take("a") == 1
    assert recent.take("a") is None
    clock.advance(2.0)
    assert recent.take("b") is None
    assert len(recent) == 0


def test_what_is_put_again_is_kept_anew_with_its_new_value() -> None:
    clock = ManualClock(0)
    recent = ExpiringDict[str, int](2.0, clock)
    recent.put("a", 1)
    clock.advance(1.5)
    recent.put("a", 2)
    clock.advance(1.5)
    assert recent.take("a") == 2


def test_what_is_over_is_forgotten_when_something_new_comes() -> None:
    clock = ManualClock(0)
    recent = ExpiringDict[str, int](2.0, clock)
    for number in range(1000):
        recent.put(str(number), number)
    clock.advance(2.0)
    recent.put("last", 0)
    assert len(recent) == 1


def test_putting_costs_no_more_when_thousands_are_kept() -> None:
    def cost_s(count: int) -> float:
        recent = ExpiringDict[str, int](2.0, ManualClock(0))
        began_s = time.process_time()
        for number in range(count):
            recent.put(str(number), number)
        return time.process_time() - began_s

    # Ten times as many take about ten times as long; it was a hundred times, with the loop standing still.
    few, many = min(cost_s(2_000) for _ in range(5)), min(cost_s(20_000) for _ in range(3))
    assert many < 40 * few


def test_what_is_over_is_forgotten_also_if_nothing_comes_any_more() -> None:
    clock = ManualClock(0)
    recent = ExpiringDict[str, int](2.0, clock)
    recent.put("a", 1)
    clock.advance(1.0)
    recent.put("b", 2)
    clock.advance(1.0)
    recent.forget_what_is_over()
    assert list(recent) == ["b"]

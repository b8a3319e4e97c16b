"""The counters: which bucket a value falls into, what a histogram refuses."""

import pytest

from fastq.server.inflight.tally import Histogram, Tally
from fastq.wire.history import COUNTERS, OUTCOMES


def test_a_value_is_in_the_first_bucket_whose_bound_it_does_not_exceed() -> None:
    histogram = Histogram((0.5, 1.0, 10.0))
    for value in (0.0, 0.5, 0.51, 1.0, 10.0, 10.1, 1e300):
        histogram.observe(value)
    assert histogram.bounds == (0.5, 1.0, 10.0)
    assert histogram.counts == (2, 2, 1, 2)
    assert histogram.sum == pytest.approx(1e300)


@pytest.mark.parametrize("bounds", [(), (1.0, 1.0), (2.0, 1.0), tuple(map(float, range(25)))])
def test_bounds_that_do_not_ascend_or_are_too_many_are_refused(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="bounds must be 1 to 24 ascending numbers"):
        Histogram(bounds)


def test_what_was_counted_is_taken_once_and_may_be_given_back() -> None:
    tally = Tally("q", "t")
    assert tally.take() is None
    tally.run_s.observe(0.002)
    tally.wait_s.observe(4000)
    tally.lost = 3
    counts = tally.take()
    assert counts is not None
    run, wait = len(OUTCOMES) + 1, COUNTERS - 1
    assert {place: count for place, count in enumerate(counts) if count} == {4: 3, run: 1, wait: 1}
    assert tally.take() is None
    tally.lost += 1
    tally.give_back(counts)
    again = tally.take()
    assert again is not None
    assert {place: count for place, count in enumerate(again) if count} == {4: 4, run: 1, wait: 1}

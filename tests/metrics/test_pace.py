"""The mean run time of tasks, from how many run and how many end."""

import pytest

from fastq.metrics.pace import HALF_S, Pace


def test_nothing_is_known_before_a_run_was_seen() -> None:
    pace = Pace()
    for now_s in (0.0, 5.0, 10.0):
        pace.note(0, 1000, now_s)
        assert pace.mean_s is None


def test_the_mean_is_how_many_run_over_how_many_end_in_a_second() -> None:
    pace = Pace()
    for beat in range(100):
        pace.note(10, 50 * beat, 5.0 * beat)  # ten a second
    assert pace.mean_s == pytest.approx(1.0)


def test_new_run_times_replace_old_ones_and_an_idle_queue_keeps_its_last() -> None:
    pace = Pace()
    for beat in range(100):
        pace.note(10, 50 * beat, 5.0 * beat)
    for beat in range(100, 300):
        pace.note(10, 4950 + 500 * (beat - 99), 5.0 * beat)
    assert pace.mean_s == pytest.approx(0.1, rel=0.01)
    last = pace.mean_s
    for beat in range(300, 1000):
        pace.note(0, 104_950, 5.0 * beat)
    assert pace.mean_s == pytest.approx(last)


def test_runs_that_take_longer_than_is_remembered_are_not_forgotten_before_they_end() -> None:
    pace = Pace()
    for beat in range(721):
        pace.note(1, 0, 5.0 * beat)
    assert pace.mean_s == pytest.approx(3600.0)
    assert HALF_S < 3600
    pace.note(1, 1, 3605.0)
    assert pace.mean_s == pytest.approx(3605.0)


def test_a_counter_that_was_removed_takes_nothing_away() -> None:
    pace = Pace()
    pace.note(2, 10, 0.0)
    pace.note(2, 20, 10.0)
    pace.note(0, 0, 20.0)
    assert pace.mean_s == pytest.approx(2.0)

"""Waiting for a slot, held against the textbook."""

import heapq
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.planning.load import Load
from fastq.planning.waiting import Range, busy_probability, spread, waiting
from tests.planning.sample import relaxed


@pytest.mark.parametrize(
    ("slots", "offered", "probability"),
    [
        (1, 0.5, 0.5),  # with one server it is the load
        (2, 1.0, 1 / 3),
        (10, 8.0, 0.409180),  # tables of Erlang C
        (3, 0.0, 0.0),
        (5, 5.0, 1.0),
        (5, 9.0, 1.0),
    ],
)
def test_all_slots_are_busy_as_often_as_erlang_says(slots: int, offered: float, probability: float) -> None:
    assert busy_probability(slots, offered) == pytest.approx(probability, rel=1e-5)


def test_one_slot_with_random_durations_is_the_textbook_queue() -> None:
    found = waiting(1, 0.8, 1.0, 1.0)
    assert found.mean_s == pytest.approx(4.0)  # rho / (1 - rho) service times
    assert found.p99_s == pytest.approx(5 * math.log(80))


def test_constant_durations_halve_the_wait() -> None:
    assert waiting(1, 0.8, 1.0, 0.0).mean_s == pytest.approx(2.0)


def test_an_overloaded_queue_is_waited_for_without_end() -> None:
    assert waiting(2, 2.0, 1.0, 1.0).mean_s == math.inf


def test_the_spread_of_a_mix_is_that_of_its_durations() -> None:
    assert spread([Load(1.0, 2.0, 1), Load(5.0, 2.0, 1)]) == pytest.approx(0.0)
    assert spread([Load(1.0, 1.0, 1), Load(1.0, 3.0, 1)]) == pytest.approx(0.25)
    assert spread([Load(0.0, 1.0, 1)]) == 0.0


@relaxed
@given(st.integers(1, 300), st.floats(0.01, 0.98), st.floats(0, 50))
def test_more_slots_never_make_tasks_wait_longer(slots: int, load: float, squared: float) -> None:
    few, many = (waiting(count, load * slots, 1.0, squared) for count in (slots, slots + 1))
    assert many.mean_s <= few.mean_s
    assert many.p99_s <= few.p99_s * (1 + 1e-12)
    assert 0 <= few.probability <= 1


MIXES = {
    "5 ms": (Load(1, 5e-3, 100),),
    "1 ms and 5 ms": (Load(4, 1e-3, 100), Load(1, 5e-3, 100)),
    "1 ms and 50 ms": (Load(9, 1e-3, 100), Load(1, 50e-3, 100)),
    "1, 5 and 50 ms": (Load(1, 1e-3, 100), Load(1, 5e-3, 100), Load(1, 50e-3, 100)),
}


def waits_of_a_queue(slots: int, loads: Sequence[Load], busy: float, count: int = 150_000) -> list[float]:
    """Return the waits of tasks that come at random and take the first slot that is free, the shortest first."""
    rng = random.Random(1)
    pace = busy * slots * sum(load.rate for load in loads) / sum(load.rate * load.duration for load in loads)
    now, free_at, waits = 0.0, [0.0] * slots, []
    for load in rng.choices(loads, [load.rate for load in loads], k=count):
        now += rng.expovariate(pace)
        begins = max(now, heapq.heappop(free_at))
        heapq.heappush(free_at, begins + load.duration)
        waits.append(begins - now)
    return sorted(waits)


@pytest.mark.parametrize(
    ("slots", "busy", "within"), [(2, 0.3, 0.15), (2, 0.6, 0.15), (2, 0.8, 0.15), (16, 0.6, 0.4), (16, 0.8, 0.15)]
)
@pytest.mark.parametrize("mix", MIXES)
def test_the_formula_is_as_close_to_a_queue_as_the_guide_says(mix: str, slots: int, busy: float, within: float) -> None:
    loads = MIXES[mix]
    waits = waits_of_a_queue(slots, loads, busy)
    mean_s = sum(load.rate * load.duration for load in loads) / sum(load.rate for load in loads)
    told = waiting(slots, busy * slots, mean_s, spread(loads))
    assert told.mean_s == pytest.approx(sum(waits) / len(waits), rel=within)
    assert told.p99_s == pytest.approx(waits[len(waits) * 99 // 100], rel=within)


def run_in_a_pool(slots: int, busy: float) -> list[list[float]]:
    """Return mean and 99th percentile in seconds, of a pool on simulated clocks and of one queue for all slots."""
    words = [sys.executable, "-m", "tests.planning.pool_waits", str(slots), str(busy), "1,5,50", "6000"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [[float(figure) / 1e3 for figure in line.split()] for line in told.splitlines()]


@pytest.mark.parametrize(("slots", "busy", "late"), [(2, 0.3, 1.1), (2, 0.8, 1.1), (16, 0.6, 1.1), (16, 0.8, 1.7)])
def test_tasks_in_a_pool_wait_hardly_longer_than_in_one_queue(slots: int, busy: float, late: float) -> None:
    """And the plan tells a range in which they are."""
    (mean_s, p99_s), (least_mean_s, least_p99_s) = run_in_a_pool(slots, busy)
    assert mean_s <= 1.15 * least_mean_s + 3e-4
    assert p99_s <= late * least_p99_s
    told = waiting(slots, busy * slots, statistics.mean((1e-3, 5e-3, 50e-3)), spread(MIXES["1, 5 and 50 ms"]))
    assert told.mean_range.least_s <= mean_s <= told.mean_range.most_s
    assert told.p99_range.least_s <= p99_s <= told.p99_range.most_s


def test_the_range_of_an_idle_pool_is_the_time_in_which_it_picks_up_a_task() -> None:
    told = waiting(100, 1.0, 1.0, 1.0)
    assert told.mean_range == pytest.approx(Range(0.0, 0.002))
    assert told.p99_range == Range(0.0, 0.004)


def test_the_range_of_an_overloaded_queue_has_no_end() -> None:
    assert waiting(2, 2.0, 1.0, 1.0).p99_range == Range(math.inf, math.inf)

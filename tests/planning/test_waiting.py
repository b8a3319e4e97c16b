"""Waiting for a slot, held against the textbook."""

import heapq
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.planning.load import Load
from fastq.planning.waiting import busy_probability, spread, waiting
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

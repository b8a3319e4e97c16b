"""Queue choice: the shares are checked against the maths in Prioritizer's docstring, the names against Go's data."""

import json
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq._prioritizer import Prioritizer, is_blank, normalize_queues

GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parent / "golden" / "options.json").read_text("utf-8"))[
    "normalize_queues"
]
WEIGHTS = {"critical": 6, "default": 3, "low": 1}

queue_weights = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 100), min_size=1)
batches = st.lists(st.integers(0, 60), min_size=1, max_size=60)


# Names and weights


def test_blank_is_what_go_trims_away() -> None:
    ours = {code for code in range(0x110000) if is_blank(chr(code))}
    python_only = set(range(0x1C, 0x20))
    assert ours == {code for code in range(0x110000) if chr(code).isspace()} - python_only
    assert is_blank("")
    assert not is_blank(" a ")


@pytest.mark.parametrize("case", GOLDEN, ids=str)
def test_weights_are_normalised_as_in_go(case: Mapping[str, dict[str, int]]) -> None:
    assert normalize_queues(case["in"]) == case["out"]
    assert Prioritizer(case["in"]).weights == case["out"]


def test_blank_names_and_weights_below_one_are_ignored() -> None:
    assert normalize_queues({"a": 4, "": 1, " \u3000": 1, "b": 0, "c": -6, "d": 6}) == {"a": 2, "d": 3}
    assert normalize_queues({"\x1c": 1}) == {"\x1c": 1}


@pytest.mark.parametrize("queues", [{}, {"": 1}, {"a": 0}])
def test_no_queue_means_the_default_queue(queues: dict[str, int]) -> None:
    assert Prioritizer(queues).split(7) == [("default", 7)]


# The order of one pick


def chi_square(seen: Mapping[Any, int], chances: Mapping[Any, Fraction]) -> float:
    """Sum up how far the counts are from what the chances make expect; the keys must be the same."""
    assert set(seen) <= set(chances)
    total = sum(seen.values())
    return float(sum((seen.get(key, 0) - total * chance) ** 2 / (total * chance) for key, chance in chances.items()))


def chances_of_orders(weights: Mapping[str, int]) -> dict[tuple[str, ...], Fraction]:
    """Map each order to its chance when queues are drawn by weight, without replacement."""
    result = {}
    for order in permutations(weights):
        left, chance = sum(weights.values()), Fraction(1)
        for name in order:
            chance *= Fraction(weights[name], left)
            left -= weights[name]
        result[order] = chance
    return result


# 99.9 % of correct samples of 6 kinds are below this; the seed is fixed, so a pass stays a pass.
CRITICAL_5_DEGREES = 20.52


def test_weighted_orders_come_as_often_as_their_weights_say() -> None:
    prioritizer = Prioritizer(WEIGHTS, seed=1)
    seen = Counter(prioritizer.order() for _ in range(20_000))
    assert chi_square(seen, chances_of_orders(WEIGHTS)) < CRITICAL_5_DEGREES


def test_the_test_of_orders_notices_a_wrong_weight() -> None:
    prioritizer = Prioritizer(WEIGHTS, seed=1)
    seen = Counter(prioritizer.order() for _ in range(20_000))
    assert chi_square(seen, chances_of_orders({**WEIGHTS, "critical": 7})) > CRITICAL_5_DEGREES


def test_the_same_seed_gives_the_same_orders() -> None:
    one, other = Prioritizer(WEIGHTS, seed=5), Prioritizer(WEIGHTS, seed=5)
    assert [one.order() for _ in range(50)] == [other.order() for _ in range(50)]


def test_strict_order_is_by_weight_and_does_not_change() -> None:
    prioritizer = Prioritizer({"low": 1, "a": 2, "top": 9, "b": 2}, strict=True, seed=3)
    orders = {prioritizer.order() for _ in range(100)}
    assert len(orders) == 1
    order = orders.pop()
    assert (order[0], order[-1], set(order[1:3])) == ("top", "low", {"a", "b"})


def test_strict_ties_fall_differently_on_different_servers() -> None:
    orders = Counter(Prioritizer({"a": 1, "b": 1}, strict=True, seed=seed).order() for seed in range(200))
    assert min(orders.values()) > 60
    assert len(orders) == 2


# Splits of full queues


def test_a_batch_of_a_hundred_is_split_as_the_weights_say() -> None:
    prioritizer = Prioritizer(WEIGHTS)
    for _ in range(5):
        assert prioritizer.split(100) == [("critical", 60), ("default", 30), ("low", 10)]


@given(queue_weights, batches, st.integers())
def test_shares_are_always_less_than_one_task_from_the_weights(
    queues: dict[str, int], sizes: list[int], seed: int
) -> None:
    prioritizer = Prioritizer(queues, seed=seed)
    weights = prioritizer.weights
    served: Counter[str] = Counter()
    for size in sizes:
        split = prioritizer.split(size)
        assert sum(count for _, count in split) == size
        assert all(count > 0 for _, count in split)
        served.update(dict(split))
        for name, weight in weights.items():
            assert abs(served[name] - Fraction(weight * served.total(), sum(weights.values()))) < 1


@given(queue_weights)
def test_single_picks_serve_each_queue_by_its_weight_and_none_waits_for_long(queues: dict[str, int]) -> None:
    prioritizer = Prioritizer(queues)
    weights = prioritizer.weights
    total = sum(weights.values())
    picks = [prioritizer.split(1)[0][0] for _ in range(2 * total)]
    assert Counter(picks[:total]) == weights
    assert picks[:total] == picks[total:]
    for name, weight in weights.items():
        turns = [turn for turn, pick in enumerate(picks) if pick == name]
        assert all(later - earlier < Fraction(2 * total, weight) for earlier, later in pairwise(turns))


@given(queue_weights, st.lists(st.integers(1, 50), min_size=1, max_size=10))
def test_one_big_split_is_the_sum_of_small_ones(queues: dict[str, int], sizes: list[int]) -> None:
    whole, parts = Prioritizer(queues, seed=0), Prioritizer(queues, seed=0)
    summed: Counter[str] = Counter()
    for size in sizes:
        summed.update(dict(parts.split(size)))
    assert dict(whole.split(sum(sizes))) == summed


# Splits of many queues between few calls


@given(queue_weights, st.lists(st.integers(1, 500), min_size=1, max_size=60), st.integers(1, 8), st.integers())
def test_queues_that_take_turns_are_less_than_two_helpings_from_their_weights(
    queues: dict[str, int], sizes: list[int], most: int, seed: int
) -> None:
    prioritizer = Prioritizer(queues, seed=seed)
    weights = prioritizer.weights
    total = sum(weights.values())
    cycle = max(sizes) * len(weights) // most
    served: Counter[str] = Counter()
    for size in sizes:
        split = prioritizer.split(size, most_queues=most)
        assert size / 2 < sum(count for _, count in split) <= size
        assert all(count > 0 for _, count in split)
        served.update(dict(split))
        for name, weight in weights.items():
            helping = max(1, weight * cycle // total)
            assert abs(served[name] - Fraction(weight * served.total(), total)) < 2 * helping + 1


def test_ten_queues_take_turns_in_four_calls_each_and_none_waits_for_long() -> None:
    queues = {f"queue-{weight}": weight for weight in range(1, 11)}
    prioritizer = Prioritizer(queues)
    splits = [dict(prioritizer.split(400, most_queues=4)) for _ in range(200)]
    assert sum(map(len, splits)) <= 4 * len(splits)
    for name in queues:
        turns = [turn for turn, split in enumerate(splits) if name in split]
        assert max(later - earlier for earlier, later in pairwise(turns)) <= 8


@given(queue_weights, st.integers(0, 500), st.integers(0, 8))
def test_few_queues_need_not_take_turns(queues: dict[str, int], size: int, more: int) -> None:
    most = len(Prioritizer(queues).weights) + more
    assert Prioritizer(queues, seed=0).split(size, most_queues=most) == Prioritizer(queues, seed=0).split(size)


def test_queues_that_took_turns_are_level_soon_when_they_no_longer_do() -> None:
    prioritizer = Prioritizer(dict.fromkeys("abcdefgh", 1))
    before = Counter(dict(prioritizer.split(80, most_queues=2)))
    for _ in range(80):
        before.update(dict(prioritizer.split(8)))
    assert set(before.values()) == {90}


def test_a_queue_that_gives_less_than_its_helpings_has_more_turns() -> None:
    prioritizer = Prioritizer(dict.fromkeys("abcdef", 1))
    turns: Counter[str] = Counter()
    for _ in range(100):
        split = prioritizer.split(60, most_queues=3)
        turns.update(name for name, _ in split)
        for name, count in split:
            if name == "a":
                prioritizer.give_back(name, count - min(count, 12))
    assert turns["a"] > 1.4 * turns["b"]


def test_strict_asks_everything_of_the_first_queue_not_skipped() -> None:
    prioritizer = Prioritizer(WEIGHTS, strict=True)
    assert prioritizer.split(100) == [("critical", 100)]
    assert prioritizer.split(100, {"critical"}) == [("default", 100)]
    assert prioritizer.split(100, {"critical", "default"}) == [("low", 100)]
    assert prioritizer.split(100, set(WEIGHTS)) == []
    assert prioritizer.split(0) == []


# Splits of queues that are not all full


def test_what_skipped_queues_do_not_get_goes_to_the_others_by_weight() -> None:
    prioritizer = Prioritizer(WEIGHTS)
    assert prioritizer.split(40, frozenset({"critical"})) == [("default", 30), ("low", 10)]
    assert prioritizer.split(9, frozenset({"default", "low"})) == [("critical", 9)]
    assert prioritizer.split(5, frozenset(WEIGHTS)) == []


@given(queue_weights, st.lists(st.tuples(st.integers(0, 60), st.sets(st.sampled_from("abcdefgh"))), max_size=60))
def test_a_split_asks_all_of_it_and_only_of_queues_not_skipped(
    queues: dict[str, int], rounds: list[tuple[int, set[str]]]
) -> None:
    prioritizer = Prioritizer(queues)
    for size, skip in rounds:
        split = dict(prioritizer.split(size, skip))
        assert not split.keys() & skip
        assert sum(split.values()) == (size if queues.keys() - skip else 0)


@given(st.lists(st.tuples(st.integers(1, 30), st.sets(st.sampled_from("cdefgh"))), min_size=1, max_size=200))
def test_queues_that_come_and_go_do_not_move_the_shares_of_full_ones(rounds: list[tuple[int, set[str]]]) -> None:
    prioritizer = Prioritizer({"a": 7, "b": 4, "c": 1, "d": 2, "e": 3, "f": 5, "g": 11, "h": 30})
    served: Counter[str] = Counter()
    for size, skip in rounds:
        served.update(dict(prioritizer.split(size, skip)))
        assert abs(Fraction(served["a"], 7) - Fraction(served["b"], 4)) < Fraction(1, 7) + Fraction(1, 4)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_queue_that_was_empty_for_an_hour_has_less_than_one_task_of_credit(size: int) -> None:
    prioritizer = Prioritizer(WEIGHTS)
    for _ in range(36_000):
        prioritizer.split(size, frozenset({"critical"}))
    served: Counter[str] = Counter()
    for _ in range(100):
        served.update(dict(prioritizer.split(size)))
        assert served["critical"] < Fraction(6 * served.total(), 10) + 2


def test_a_queue_alone_for_an_hour_does_not_pay_for_it() -> None:
    prioritizer = Prioritizer(WEIGHTS)
    for _ in range(36_000):
        prioritizer.split(100, frozenset({"default", "low"}))
    assert dict(prioritizer.split(100))["critical"] in (59, 60)


def test_a_queue_that_is_empty_after_each_of_its_tasks_gets_no_more_than_its_weight() -> None:
    prioritizer = Prioritizer(dict.fromkeys("abcdefghij", 1))
    [(flapping, _)] = prioritizer.split(1)  # ahead of the others, which is not forgotten when it is skipped
    served = Counter([flapping])
    last = flapping
    for _ in range(1_000):
        [(last, _)] = prioritizer.split(1, {flapping} if last == flapping else set())
        served[last] += 1
        assert served[flapping] < Fraction(served.total(), 10) + 1


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_queue_that_fails_for_an_hour_takes_nothing_from_the_others(size: int) -> None:
    prioritizer = Prioritizer(WEIGHTS)
    served: Counter[str] = Counter()
    for _ in range(3_600):
        for queue, asked in prioritizer.split(size):
            if queue == "critical":
                prioritizer.give_back(queue, asked)
            else:
                served[queue] += asked
    assert served.total() > 0.39 * 3_600 * size
    assert abs(served["default"] - 3 * served["low"]) <= 3 + 1
    healed = Counter(dict(prioritizer.split(100)))
    assert healed["critical"] in (60, 61)


def test_queues_polled_alone_while_all_are_empty_start_level() -> None:
    prioritizer = Prioritizer(WEIGHTS)
    for turn in range(1_000):
        [polled] = {list(WEIGHTS)[turn % 3]}
        assert prioritizer.split(100, WEIGHTS.keys() - {polled}) == [(polled, 100)]
        prioritizer.give_back(polled, 100)
    split = dict(prioritizer.split(100))
    assert abs(split["critical"] - 60) <= 1
    assert abs(split["default"] - 30) <= 1


def test_a_queue_that_gives_one_task_a_call_does_not_slow_down_the_others() -> None:
    prioritizer = Prioritizer(WEIGHTS)
    for _ in range(1_000):
        split = dict(prioritizer.split(100))
        prioritizer.give_back("critical", split["critical"] - 1)
        assert split["default"] + split["low"] >= 38


def test_a_queue_whose_calls_are_cut_catches_up_by_as_much_as_it_can_give() -> None:
    prioritizer = Prioritizer({"big": 6, "small": 4})
    for _ in range(100):
        split = dict(prioritizer.split(100))
        prioritizer.give_back("big", split["big"] - 10)
        assert 60 <= split["big"] <= 60 + 10
    # Nothing is cut any more: the shares are the weights', but for ten tasks.
    served: Counter[str] = Counter()
    for _ in range(100):
        served.update(dict(prioritizer.split(10)))
    assert 600 + 3 <= served["big"] <= 600 + 10


# A server in small


def fetch(prioritizer: Prioritizer, stock: Counter[str], room: int, empty: set[str]) -> Counter[str]:
    """Take up to ``room`` tasks as a fetcher does: rounds, until there is no room or no queue left to ask."""
    got: Counter[str] = Counter()
    while room and (split := prioritizer.split(room, empty)):
        for queue, asked in split:
            count = min(asked, stock[queue])
            prioritizer.give_back(queue, asked - count)
            stock[queue] -= count
            got[queue] += count
            room -= count
            if count < asked:
                empty.add(queue)
    return got


@pytest.mark.parametrize("room", [1, 10, 100])
def test_full_queues_share_what_a_trickling_queue_leaves(room: int) -> None:
    """Critical has one task every fourth fetch, the others are full: each gets all it has, or its share of the rest."""
    prioritizer, stock, served = Prioritizer(WEIGHTS), Counter(default=10**6, low=10**6), Counter[str]()
    for turn in range(2_000):
        stock["critical"] += turn % 4 == 0
        got = fetch(prioritizer, stock, room, set())
        assert got.total() == room
        served.update(got)
    assert served["critical"] == 500
    assert abs(served["default"] - 3 * served["low"]) < 3 + 1


def test_a_queue_that_fills_up_again_is_served_by_its_weight_at_once() -> None:
    prioritizer, stock = Prioritizer(WEIGHTS), Counter(critical=30, default=10**6, low=10**6)
    assert fetch(prioritizer, stock, 100, set()) == {"critical": 30, "default": 53, "low": 17}
    assert fetch(prioritizer, stock, 100, {"critical"}) == {"default": 75, "low": 25}
    stock["critical"] = 1_000
    counts = [fetch(prioritizer, stock, 10, set())["critical"] for _ in range(100)]
    assert set(counts) <= {5, 6, 7}
    assert abs(sum(counts) - 600) <= 1


# What is refused


def test_weights_too_far_apart_are_refused() -> None:
    with pytest.raises(ValueError, match=r"too far apart: \{'a': 1073741824, 'b': 1\}"):
        Prioritizer({"a": 1 << 30, "b": 1})
    assert Prioritizer({"a": (1 << 30) - 1, "b": 1}).split(1 << 20) == [("a", 1 << 20)]
    assert Prioritizer({"a": 1 << 40}).split(1) == [("a", 1)]


@pytest.mark.parametrize("size", [-1, (1 << 20) + 1])
def test_a_split_of_an_impossible_number_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"cannot split {size} tasks"):
        Prioritizer(WEIGHTS).split(size)


def test_giving_back_what_was_not_asked_for_is_refused() -> None:
    prioritizer = Prioritizer(WEIGHTS)
    with pytest.raises(ValueError, match="not a queue of this prioritizer: 'other'"):
        prioritizer.give_back("other", 0)
    with pytest.raises(ValueError, match="queue 'low' was asked for 0 tasks and cannot give back 1"):
        prioritizer.give_back("low", 1)
    prioritizer.split(100)
    with pytest.raises(ValueError, match="queue 'low' was asked for 10 tasks and cannot give back -1"):
        prioritizer.give_back("low", -1)
    prioritizer.give_back("low", 7)
    with pytest.raises(ValueError, match="queue 'low' was asked for 3 tasks and cannot give back 4"):
        prioritizer.give_back("low", 4)
    prioritizer.give_back("low", 3)

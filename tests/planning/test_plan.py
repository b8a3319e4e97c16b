"""Plans: how many children and servers, a burst, growth, memory, and when one Redis is not enough."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.planning.load import Load
from fastq.planning.model import Part
from fastq.planning.plan import Plan, Wish, make_plan
from tests.planning.sample import profile, relaxed, with_server

BOX = profile()


def planned(*loads: Load, **wished: Any) -> Plan:
    return make_plan(BOX, Wish(loads, **wished))


def test_children_are_what_runs_at_once_and_head_room() -> None:
    plan = planned(Load(700.0, 0.02, 100), utilization=0.7)
    assert plan.children_needed == 20  # 14 at once, of which each child does 0.7
    assert plan.is_enough


def test_servers_have_the_cores_that_handlers_compute_on() -> None:
    plan = planned(Load(700.0, 0.02, 100), utilization=0.7, cores=4.0)
    assert plan.servers_needed == 6  # 14 cores and a little, 2.8 of each
    assert (plan.fleet.servers, plan.fleet.children) == (6, 4)
    assert planned(Load(700.0, 0.02, 100), servers=2, cores=4.0).fleet.children == 10


def test_the_main_process_may_be_what_needs_servers() -> None:
    plan = planned(Load(90_000.0, 0.0, 100), cores=64.0)
    assert plan.servers_needed == 3  # a loop of 16 us each: 1.44 in all, 0.7 of one a server
    assert plan.use.shares[Part.MAIN] == pytest.approx(0.48)


def test_coroutines_and_plain_handlers_have_children_of_their_own() -> None:
    plan = planned(Load(7.0, 1.0, 100), Load(700.0, 1.0, 100, is_async=True), utilization=0.7)
    assert plan.children_needed == 10 + 10


def test_a_burst_is_worked_off_by_what_the_load_leaves() -> None:
    plan = planned(Load(300.0, 0.01, 100), burst=60_000, servers=1, cores=100.0, children=8)
    assert plan.burst is not None
    assert plan.burst.drain_s == pytest.approx(60_000 / (800 - 300), rel=1e-3)
    assert plan.burst.enqueue_s == pytest.approx(60_000 * 6e-6)
    assert plan.memory.with_burst - plan.memory.steady == pytest.approx(60_000 * 700)


def test_a_burst_alone_has_the_fleet_to_itself() -> None:
    plan = planned(Load(0.0, 0.01, 100), burst=80_000, servers=1, cores=100.0, children=8)
    assert plan.burst is not None
    assert plan.burst.drain_s == pytest.approx(100, rel=1e-3)
    assert plan.growth == 0
    assert plan.rate == 0


def test_a_burst_with_a_time_makes_the_fleet_bigger() -> None:
    plan = planned(Load(100.0, 0.01, 100), burst=60_000, within=60.0, cores=4.0)
    assert plan.burst is not None
    assert plan.burst.drain_s <= 60
    assert plan.children_needed == math.ceil(1100 * 0.01 / 0.7)


def test_a_queue_grows_by_what_is_not_worked_off() -> None:
    plan = planned(Load(1000.0, 0.01, 100), servers=1, cores=100.0, children=8, redis_memory=100 * 2**20)
    assert plan.growth == pytest.approx(200, rel=1e-3)
    assert not plan.is_enough
    assert plan.wait.mean_s == math.inf
    assert plan.memory.full_after_s == pytest.approx((100 - 1) * 2**20 / (200 * 700), rel=0.01)
    assert plan.limits[0].part == "children"


def test_a_burst_for_which_nothing_is_left_never_ends() -> None:
    plan = planned(Load(1000.0, 0.01, 100), burst=10, servers=1, cores=100.0, children=8)
    assert plan.burst is not None
    assert plan.burst.drain_s == math.inf


def test_the_next_limit_comes_first() -> None:
    plan = planned(Load(100.0, 0.01, 100), servers=1, cores=100.0, children=8)
    assert plan.limits[0].part == "children"
    assert plan.limits[0].rate == pytest.approx(800)
    rates = [limit.rate for limit in plan.limits]
    assert rates == sorted(rates)


def test_one_redis_goes_so_far_and_then_queues_are_spread() -> None:
    few, many = planned(Load(10_000.0, 0.0, 100)), planned(Load(200_000.0, 0.0, 100))
    assert few.redis.rate_at_most == pytest.approx(100_000, rel=0.01)
    assert few.redis.rate_with_room == pytest.approx(70_000, rel=0.01)
    assert few.redis.nodes == 1
    assert many.redis.nodes == 3  # 2.0 in all, 0.7 of each
    assert not many.is_enough
    assert planned(Load(1e9, 0.0, 100)).redis.nodes is None


def test_what_is_kept_fills_redis() -> None:
    plan = planned(Load(10.0, 0.0, 400, retention=1000.0, result=600))
    assert plan.memory.kept == pytest.approx(10_000)
    assert plan.memory.steady == pytest.approx(2**20 + 10_000 * 1700, rel=0.001)


def test_memory_of_a_server_is_its_processes_and_the_apps() -> None:
    plan = planned(Load(1.0, 0.01, 100), servers=1, children=4, child_memory=2**20)
    assert plan.memory.a_server == (50 + 4 * 11) * 2**20


def test_a_server_beside_redis_is_one() -> None:
    plan = planned(Load(1000.0, 0.02, 100), shares_redis=True)
    assert plan.servers_needed is None
    assert plan.fleet.servers == 1
    assert planned(Load(10.0, 0.02, 100), shares_redis=True).servers_needed == 1


def test_more_servers_than_anybody_has_are_none() -> None:
    assert planned(Load(1e9, 10.0, 100)).servers_needed is None


@pytest.mark.parametrize(
    ("wished", "error"),
    [
        ({"loads": ()}, "there is no load"),
        ({"loads": (Load(0.0, 1.0, 1),)}, "there is nothing to do"),
        ({"utilization": 0.0}, "utilization must be above 0"),
        ({"utilization": 1.1}, "utilization must be above 0"),
        ({"within": 5.0}, "within=5 s needs burst="),
        ({"burst": 5, "within": 0.0}, "within, the time for the burst,"),
        ({"servers": 0}, "servers must be above 0"),
        ({"children": 5000}, "children must be at most 4096"),
        ({"shares_redis": True, "servers": 2}, "only one server shares its machine"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(wished: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Wish(**{"loads": (Load(1.0, 1.0, 1),), **wished})


LOADS = st.builds(
    Load, rate=st.floats(0.01, 1e4), duration=st.floats(0, 5), payload=st.integers(0, 10**5), is_async=st.booleans()
)


@relaxed
@given(st.lists(LOADS, min_size=1, max_size=3), st.floats(0.3, 1.0), st.floats(1, 64))
def test_what_a_plan_says_is_needed_is_enough_but_for_redis(loads: list[Load], room: float, cores: float) -> None:
    plan = make_plan(with_server(BOX, overlap=0.3), Wish(loads, utilization=room, cores=cores))
    if plan.servers_needed is not None:
        for part in (Part.CHILDREN, Part.CORES, Part.MAIN):
            assert plan.use.shares[part] <= room * (1 + 1e-6)


@relaxed
@given(LOADS, st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_bigger_burst_never_takes_less_time(load: Load, one: int, other: int) -> None:
    wish = Wish([load], servers=1, children=4)
    small, big = (make_plan(BOX, replace(wish, burst=burst)).burst for burst in sorted((one, other)))
    assert small is not None
    assert big is not None
    assert small.drain_s <= big.drain_s

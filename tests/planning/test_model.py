"""The model against sums that can be done by hand, and what must hold for any load."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.planning.load import Load, scaled
from fastq.planning.model import Fleet, Part, capacity, combined, factor_until, use
from fastq.planning.profile import Curve, Machine, Wakes
from tests.planning.sample import US, flat, profile, relaxed, with_costs, with_server

BOX = profile()


def test_shares_are_rate_by_cost() -> None:
    found = use(BOX, [Load(10_000.0, 0.001, 100)], Fleet(2, 4.0, 8, link=1e8))
    assert found.slots == pytest.approx(10)  # 10 000/s of 1 ms
    assert found.shares[Part.CHILDREN] == pytest.approx(10 / 16)
    assert found.handler_cores == pytest.approx(10)
    assert found.main_cores == pytest.approx(0.1)
    assert found.shares[Part.CORES] == pytest.approx(10.1 / 8)
    assert found.shares[Part.REDIS] == pytest.approx(0.1)  # 4 us to enqueue, 6 us to process
    assert found.shares[Part.MAIN] == pytest.approx(0.08)  # 5 000/s each of 10 us, and 6 us until Redis answers
    assert found.shares[Part.NETWORK] == pytest.approx(10_000 * 400 / 1e8)


def test_redis_on_the_same_cores_takes_its_share_of_them() -> None:
    load = [Load(10_000.0, 0.0001, 100)]
    apart, together = (use(BOX, load, Fleet(1, 4.0, 4, shares_redis=shared)) for shared in (False, True))
    assert together.shares[Part.CORES] - apart.shares[Part.CORES] == pytest.approx(0.1 / 4)


def test_a_backlog_costs_no_enqueueing() -> None:
    load = [Load(10_000.0, 0.0, 100)]
    assert use(BOX, load, Fleet(1, 4.0, 4), backlog=True).shares[Part.REDIS] == pytest.approx(0.06)


def test_work_that_overlaps_shortens_the_loop() -> None:
    load, fleet = [Load(10_000.0, 0.0, 100)], Fleet(1, 4.0, 4)
    half = with_server(BOX, overlap=0.5)
    assert use(half, load, fleet).shares[Part.MAIN] == pytest.approx(0.13)  # 10 + 6 - 3 us


def test_waiting_handlers_hold_slots_and_coroutines_share_children() -> None:
    fleet = Fleet(1, 4.0, 10, async_concurrency=100)
    plain = use(BOX, [Load(100.0, 0.05, 100, cpu=0.0)], fleet)
    assert plain.slots == pytest.approx(5)
    assert plain.shares[Part.CHILDREN] == pytest.approx(0.5)
    assert plain.waiting == pytest.approx(1.0)
    assert plain.child_cores == pytest.approx(100 * 50 * US)
    coroutines = use(BOX, [Load(100.0, 0.05, 100, is_async=True)], fleet)
    assert coroutines.coroutines == pytest.approx(5)
    assert coroutines.shares[Part.CHILDREN] == pytest.approx(5 / 100 / 10)


def test_the_gap_between_coroutines_is_by_their_wait_and_no_longer_than_was_measured() -> None:
    gaps = with_server(BOX, coroutine_gap_s=Curve(((0.005, 0.001), (0.05, 0.01))))
    held = [
        use(gaps, [Load(1.0, wait_s, 1, is_async=True)], Fleet(1, 1.0, 1)).coroutines for wait_s in (0.005, 0.05, 9)
    ]
    assert held == pytest.approx([0.006, 0.06, 9.01])


def test_coroutines_that_compute_need_a_core_a_child() -> None:
    found = use(BOX, [Load(1000.0, 0.004, 100, cpu=0.003, is_async=True)], Fleet(1, 4.0, 10))
    assert found.shares[Part.CHILDREN] == pytest.approx(1000 * (0.003 + 10 * US) / 10)


def test_crowded_cores_make_computing_longer() -> None:
    crowded = replace(BOX, machine=Machine("box", 4.0, 2**30, 1.5, 0.0))
    found = use(crowded, [Load(100.0, 0.02, 100, cpu=0.01)], Fleet(1, 4.0, 4))
    assert found.handler_cores == pytest.approx(1.5)
    assert found.slots == pytest.approx(2.5)


def test_waking_up_costs_a_trickle_and_hardly_a_stream() -> None:
    woken = with_server(BOX, steady_main=Wakes(1e-3, 0.01))
    fleet = Fleet(1, 4.0, 4)
    slow, quick = (use(woken, [Load(rate, 0.0, 100)], fleet).main_cores / rate for rate in (1.0, 50_000.0))
    assert slow == pytest.approx(1e-3 + 10 * US, rel=0.02)
    assert quick < 11.5 * US


def test_coroutines_from_a_backlog_come_in_bunches() -> None:
    woken = with_server(BOX, backlog_main=Wakes(1e-4, 0.0), coroutine_wakes=0.5)
    plain, bunched = (
        use(woken, [Load(100.0, 0.0, 100, is_async=is_async)], Fleet(1, 4.0, 4), backlog=True).main_cores
        for is_async in (False, True)
    )
    assert plain == pytest.approx(0.0109, rel=0.02)
    assert bunched == pytest.approx(0.0059, rel=0.02)


def test_a_process_is_never_awake_for_longer_than_there_is_time() -> None:
    woken = with_server(BOX, steady_main=Wakes(0.1, 0.0), steady_redis=Wakes(0.1, 0.0))
    found = use(woken, [Load(20_000.0, 0.0, 100)], Fleet(1, 4.0, 4))
    assert found.main_cores <= 1
    assert found.redis_cores <= 1


def test_what_is_kept_costs_redis_more() -> None:
    fleet = Fleet(1, 4.0, 4)
    kept = use(BOX, [Load(1000.0, 0.0, 100, retention=60.0)], fleet).redis_cores
    assert kept == pytest.approx(1000 * 12 * US)


@pytest.mark.parametrize(
    ("loads", "fleet", "rate"),
    [
        pytest.param([Load(1.0, 0.02, 100)], Fleet(1, 1000.0, 10), 500, id="children"),
        pytest.param([Load(1.0, 0.02, 100)], Fleet(1, 2.0, 1000), 100, id="cores"),
        pytest.param([Load(1.0, 0.0, 100)], Fleet(1, 1000.0, 1000), 62_500 * 0.9895, id="loop, near Redis' end"),
        pytest.param([Load(1.0, 0.0, 100)], Fleet(100, 1000.0, 100), 100_000, id="Redis"),
        pytest.param([Load(1.0, 0.0, 1000)], Fleet(1, 1000.0, 1000, link=1.3e6), 1000, id="network"),
    ],
)
def test_capacity_is_where_the_fullest_part_ends(loads: list[Load], fleet: Fleet, rate: float) -> None:
    assert capacity(BOX, loads, fleet) == pytest.approx(rate, rel=0.003)


def test_parts_that_are_full_together_hinder_one_another() -> None:
    found = use(BOX, [Load(1.0, 0.0, 100)], Fleet(1, 4.0, 4))
    alone = dict.fromkeys(Part, 0.0)
    one = combined(found._replace(shares={**alone, Part.REDIS: 1.0}))
    two = combined(found._replace(shares={**alone, Part.REDIS: 1.0, Part.MAIN: 1.0}))
    assert one == pytest.approx(1.0)
    assert two == pytest.approx(2 ** (1 / 6))


def test_children_that_compute_are_no_part_beside_their_cores() -> None:
    found = use(BOX, [Load(100.0, 0.01, 100)], Fleet(1, 1.0, 1))
    full = dict.fromkeys(Part, 0.0) | {Part.CHILDREN: 1.0, Part.CORES: 1.0}
    assert combined(found._replace(shares=full, waiting=0.0)) == pytest.approx(1.0)
    assert combined(found._replace(shares=full, waiting=1.0)) == pytest.approx(2 ** (1 / 6))


def test_a_part_that_is_never_full_has_no_limit() -> None:
    fleet = Fleet(1, 4.0, 4)
    assert (
        factor_until(with_costs(BOX, process_child=flat(0.0)), [Load(5.0, 0.0, 100)], fleet, Part.CHILDREN) == math.inf
    )
    assert factor_until(BOX, [Load(5.0, 0.0, 100)], fleet, Part.NETWORK) == math.inf
    assert factor_until(BOX, [Load(100.0, 0.0, 100)], fleet, Part.REDIS) == pytest.approx(1000)


@pytest.mark.parametrize(
    "bad",
    [{"servers": 0}, {"cores": 0.0}, {"children": -1}, {"async_concurrency": 0}, {"link": 0.0}, {"cores": math.nan}],
)
def test_a_fleet_of_nothing_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be above 0"):
        Fleet(**{"servers": 1, "cores": 1.0, "children": 1, **bad})  # type: ignore[arg-type] # some are floats
    with pytest.raises(ValueError, match="only one server shares its cores with Redis"):
        Fleet(2, 1.0, 1, shares_redis=True)


WOKEN = with_server(
    BOX, steady_main=Wakes(4e-4, 1e-3), steady_redis=Wakes(1e-4, 1e-3), backlog_main=Wakes(4e-4, 1e-3), overlap=0.2
)
RATES = st.floats(0.01, 1e5)
LOADS = st.builds(Load, rate=RATES, duration=st.floats(0, 10), payload=st.integers(0, 10**6), is_async=st.booleans())
MIXES = st.lists(LOADS, min_size=1, max_size=3)
FLEETS = st.builds(Fleet, servers=st.integers(1, 50), cores=st.floats(1, 64), children=st.integers(1, 200))


@relaxed
@given(MIXES, FLEETS, st.floats(1, 10))
def test_more_load_leaves_nothing_less_busy(mix: list[Load], fleet: Fleet, factor: float) -> None:
    less, more = use(WOKEN, mix, fleet).shares, use(WOKEN, scaled(mix, factor), fleet).shares
    assert all(more[part] >= less[part] * (1 - 1e-9) for part in Part)


@relaxed
@given(MIXES, FLEETS)
def test_more_servers_never_carry_less(mix: list[Load], fleet: Fleet) -> None:
    # But for what their wake-ups cost Redis, of which this profile has none from a backlog.
    more = replace(fleet, servers=fleet.servers + 1)
    few, many = (capacity(WOKEN, mix, some, backlog=True) for some in (fleet, more))
    assert many >= few * (1 - 1e-6)


@relaxed
@given(MIXES, FLEETS, st.integers(0, 10**6))
def test_bigger_payloads_never_cost_less(mix: list[Load], fleet: Fleet, more: int) -> None:
    bigger = [replace(load, payload=load.payload + more) for load in mix]
    assert capacity(WOKEN, bigger, fleet) <= capacity(WOKEN, mix, fleet) * (1 + 1e-6)


@relaxed
@given(MIXES, FLEETS)
def test_the_whole_carries_no_more_than_any_part(mix: list[Load], fleet: Fleet) -> None:
    parts = [factor_until(WOKEN, mix, fleet, part) for part in Part]
    assert capacity(WOKEN, mix, fleet) <= min(parts) * (1 + 1e-6)

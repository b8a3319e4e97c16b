"""Facts out of samples: what went in comes out again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.planning.costs import asleep, costs_of, crowding_of, fit_wakes, others_of, server_of
from fastq.planning.model import awake
from fastq.planning.profile import Wakes
from fastq.planning.samples import COROUTINE_WAITS, PACES, SINGLY, SIZES, WAIT_S, Extent, Sample, Samples
from tests.planning.sample import relaxed

US = 1e-6
EMPTY = Sample(1, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def samples() -> Samples:
    """Return two rounds of a machine that costs 10 us here and there, and is never woken up."""
    found = Samples(main_memory=50, child_memory=10)
    for _ in range(2):
        for size in SIZES:
            put = EMPTY._replace(redis_s=4 * US, client_s=2 * US, received=size + 200.0, memory=size + 600.0)
            found.add(f"enqueue {size}", put)
            done = EMPTY._replace(
                rate=1 / (13 * US), redis_s=6 * US, main_s=10 * US, child_s=2 * US, received=50.0, sent=size + 100.0
            )
            found.add(f"process {size}", done)
        for size in SINGLY:
            found.add(f"single {size}", EMPTY._replace(redis_s=20 * US, client_s=40 * US))
        found.add("completed", EMPTY._replace(redis_s=9 * US, memory=800.0))
        waits = EMPTY._replace(rate=2 / (WAIT_S + 0.001), main_s=10 * US, redis_s=6 * US, child_s=52 * US)
        found.add("waits", waits)
        for name, wait_s in COROUTINE_WAITS.items():
            found.add(name, waits._replace(rate=200 / (1.2 * wait_s), child_s=32 * US))
        for name in ("50us", "1ms"):
            found.add(name, EMPTY._replace(rate=1000.0, main_s=10 * US, redis_s=6 * US))
        for name, rate in PACES.items():
            found.add(name, EMPTY._replace(rate=rate, main_s=10 * US, redis_s=26 * US))
        found.add("alone", EMPTY._replace(child_s=30e-9, others_cores=0.5))
        found.add("together", EMPTY._replace(child_s=36e-9))
        found.add("idle", EMPTY._replace(rate=0.5, calls_a_s=2.0, main_s=0.002, redis_s=0.001))
    return found


def test_costs_are_those_of_the_samples() -> None:
    costs = costs_of(samples())
    assert costs.process_main.at(5000) == pytest.approx(10 * US)
    assert costs.process_redis.at(5000) == pytest.approx(6 * US)
    assert costs.enqueue_one_client.at(100) == pytest.approx(40 * US)
    assert costs.redis_received.at(1000) == pytest.approx(1250)
    assert costs.redis_sent.at(1000) == pytest.approx(1100)
    assert costs.redis_memory.at(10_000) == pytest.approx(10_600)
    assert costs.completed_redis_s == pytest.approx(3 * US)
    assert costs.completed_memory_bytes == pytest.approx(100)
    assert costs.wait_child_s == pytest.approx(50 * US)
    assert costs.coroutine_child_s == pytest.approx(30 * US)


def test_a_server_behaves_as_its_samples() -> None:
    found = samples()
    server = server_of(found, costs_of(found), 2)
    assert server.overlap == pytest.approx(0.5)  # 10 and 6 us in 13
    assert server.slot_gap_s == pytest.approx(0.001)
    assert server.coroutine_gap_s.at(0.005) == pytest.approx(0.001)
    assert server.coroutine_gap_s.at(0.05) == pytest.approx(0.01)
    assert server.idle_commands_a_s == 2.0
    assert server.idle_main_cores == pytest.approx(0.001)
    assert server.backlog_main.first_s == pytest.approx(0.0, abs=1e-9)
    assert server.steady_redis.first_s == pytest.approx(0.0, abs=1e-9)
    assert (server.main_memory_bytes, server.child_memory_bytes) == (50, 10)
    assert crowding_of(found) == pytest.approx(1.2)
    assert others_of(found) == 0.0


def test_a_loop_slower_than_its_parts_has_no_overlap() -> None:
    found = samples()
    for size in SIZES:
        found.by_trial[f"process {size}"] = [
            sample._replace(rate=1 / (17 * US)) for sample in found.by_trial[f"process {size}"]
        ]
    assert server_of(found, costs_of(found), 2).overlap == pytest.approx(-1 / 6)


@relaxed
@given(st.floats(1e-6, 1e-3), st.floats(0, 0.1))
def test_wakes_are_found_again(first_s: float, shared_s: float) -> None:
    wakes = Wakes(first_s, shared_s)
    points = [(rate, wakes.a_task(rate)) for rate in (300.0, 2000.0, 20_000.0)]
    found = fit_wakes(points)
    # Nothing is read into rates below the slowest: there it may be less than it was.
    assert found.first_s <= first_s * (1 + 1e-6)
    if wakes.a_task(300.0) * 1.5 > first_s:
        for rate, extra_s in points:
            assert found.a_task(rate) == pytest.approx(extra_s, rel=1e-3)


@pytest.mark.parametrize(
    "points",
    [[], [(100.0, 0.0)], [(100.0, -1e-6)], [(100.0, 1e-4)], [(100.0, 1e-5), (1000.0, 1e-4)], [(100.0, 1e-4)] * 2],
)
def test_noise_makes_no_nonsense_of_wakes(points: list[tuple[float, float]]) -> None:
    found = fit_wakes(points)
    assert 0 <= found.first_s <= 1.5 * max([extra for _, extra in points] + [0.0])
    assert found.shared_s >= 0


@relaxed
@given(st.floats(0, 8.9))
def test_how_much_is_slept_is_undone(waking: float) -> None:
    assert asleep(awake(waking)) == pytest.approx(waking, abs=1e-9)


def test_an_extent_takes_about_the_time_that_it_is_given() -> None:
    assert Extent.of(60) == Extent(4, 1.0)
    assert Extent.of(3).rounds == 2
    for seconds in (2.0, 7.0, 60.0, 300.0):
        assert Extent.of(seconds).seconds == pytest.approx(seconds, rel=0.15)
    assert Extent.of(3).bytes < Extent.of(60).bytes == 80_000_000

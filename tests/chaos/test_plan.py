"""Plans and workloads are repeated by their seeds, and leave nothing out."""

from dataclasses import replace

import pytest

from tests.chaos.plan import Kind, Scale, kinds_named, make_plan
from tests.chaos.workload import JOBS, orders, outlasting

SCALE = Scale(servers=3, lease_s=4, grace_s=2, every_s=0.5, for_s=60, outage_s=75)


def test_a_seed_repeats_its_plan() -> None:
    assert make_plan(7, SCALE) == make_plan(7, SCALE)
    assert make_plan(7, SCALE) != make_plan(8, SCALE)


def test_every_kind_of_fault_comes_first_of_all_once() -> None:
    kinds = [fault.kind for fault in make_plan(7, SCALE)]
    assert set(kinds[: len(Kind) - 1]) == set(Kind) - {Kind.OUTAGE}
    assert len(kinds) > 2 * len(Kind)


def test_redis_is_away_for_long_once_and_at_the_end() -> None:
    plan = make_plan(7, SCALE)
    assert [fault.number for fault in plan if fault.kind is Kind.OUTAGE] == [len(plan) - 1]
    assert (plan[-1].at_s, plan[-1].for_s) == (60, 75)
    assert make_plan(7, replace(SCALE, outage_s=0)) == plan[:-1]
    assert [fault.kind for fault in make_plan(7, SCALE, [Kind.OUTAGE])] == [Kind.OUTAGE]


def test_a_plan_of_some_kinds_has_no_others() -> None:
    kinds = kinds_named("net_drop,kill_server")
    assert {fault.kind for fault in make_plan(7, SCALE, kinds)} == {Kind.NET_DROP, Kind.KILL_SERVER}
    assert kinds_named("") == list(Kind)
    with pytest.raises(ValueError, match="no fault has a name with 'flood'"):
        kinds_named("flood")


def test_a_freeze_is_longer_than_lease_and_grace_or_shorter_than_the_lease() -> None:
    lengths = [(fault.kind, fault.for_s) for fault in make_plan(7, SCALE)]
    long = (Kind.FREEZE_SERVER, Kind.FREEZE_FAMILY, Kind.FREEZE_REDIS_LONG)
    assert all(for_s > 6 for kind, for_s in lengths if kind in long)
    assert all(for_s < 4 for kind, for_s in lengths if kind is Kind.FREEZE_SHORT)


def test_a_seed_repeats_its_tasks_and_every_job_comes() -> None:
    once, again = ([(order.id, order.job.name, order.task.payload) for order in orders(500, 7)] for _ in range(2))
    assert once == again
    assert len(once) == 500
    assert {name for _, name, _ in once} == {name for name, job in JOBS.items() if job.share}


def test_what_blocks_its_loop_comes_beside_others() -> None:
    names = [order.job.name for order in orders(4000, 7)]
    at = names.index("block")
    assert names[at - 3 : at] == ["beside"] * 3


def test_some_tasks_outlast_the_outage_and_some_do_not_last_attempts_among_them() -> None:
    made = outlasting(20, 7, 75)
    assert {order.job.is_last_attempt for order in made} == {True, False}
    spans_s = [order.task.json()["ms"] / 1000 for order in made]
    assert min(spans_s) < 70
    assert max(spans_s) > 80

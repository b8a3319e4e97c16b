"""Plans and workloads are repeated by their seeds, and leave nothing out."""

import pytest

from tests.chaos.plan import Kind, Scale, kinds_named, make_plan
from tests.chaos.workload import JOBS, orders

SCALE = Scale(servers=3, lease_s=4, grace_s=2, every_s=0.5, for_s=60)


def test_a_seed_repeats_its_plan() -> None:
    assert make_plan(7, SCALE) == make_plan(7, SCALE)
    assert make_plan(7, SCALE) != make_plan(8, SCALE)


def test_every_kind_of_fault_comes_first_of_all_once() -> None:
    kinds = [fault.kind for fault in make_plan(7, SCALE)]
    assert set(kinds[: len(Kind)]) == set(Kind)
    assert len(kinds) > 2 * len(Kind)


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
    assert {name for _, name, _ in once} == set(JOBS)

"""Outage with Redis is said once for all that meet it, and its end when the last of them is through."""

import pytest

from fastq.errors import (
    BrokerConnectionError,
    BrokerError,
    BrokerOutOfMemoryError,
    BrokerReadOnlyError,
    BrokerTimeoutError,
)
from fastq.server.base.outage import MOST_TOLD, Outage
from tests.manual_clock import ManualClock

AWAY = BrokerConnectionError("away")
ODD = BrokerError("WRONGTYPE")


@pytest.mark.parametrize(
    "error", [AWAY, BrokerTimeoutError("silent"), BrokerReadOnlyError("replica"), BrokerOutOfMemoryError("full")]
)
def test_what_everybody_meets_is_said_once_and_is_over_when_the_last_is_through(error: BrokerError) -> None:
    outage = Outage()
    assert [outage.report(who, error) for who in ("a", "b", "a", "c")] == [True, False, False, False]
    assert outage
    assert [outage.clear(who) for who in ("a", "a", "c", "b", "b")] == [0, 0, 0, 4, 0]
    assert not outage
    assert outage.begun == 1
    assert outage.report("a", error), "the next one is said again"
    assert outage.begun == 2


def test_troubles_that_come_and_go_are_logged_some_times_a_minute_and_then_counted() -> None:
    clock = ManualClock()
    outage = Outage(clock)
    told = [(outage.report("a", AWAY), outage.clear("a")) for _ in range(MOST_TOLD + 3)]
    assert told == [(True, 1)] * MOST_TOLD + [(False, 0)] * 3
    assert not outage
    assert outage.take_untold() == 0
    clock.advance(60)
    assert (outage.take_untold(), outage.take_untold()) == (3, 0)
    assert (outage.report("a", AWAY), outage.clear("a")) == (True, 1)


def test_a_trouble_that_lasts_is_logged_however_many_there_were() -> None:
    clock = ManualClock()
    outage = Outage(clock)
    for _ in range(MOST_TOLD):
        outage.report("a", AWAY)
        outage.clear("a")
    said = []
    for _ in range(4):
        said.append(outage.report("a", AWAY))
        clock.advance(2.5)
    assert said == [False, False, True, False]
    assert outage.clear("a") == 4
    assert outage.take_untold(at_once=True) == 0


def test_another_kind_of_trouble_in_the_same_outage_is_said_too_but_not_by_turns() -> None:
    outage = Outage()
    slow = BrokerTimeoutError("silent")
    said = [outage.report("a", error) for error in (slow, AWAY, slow, AWAY)]
    assert said == [True, True, False, False]
    assert outage.clear("a") == 4


def test_what_is_one_s_own_is_said_by_each_and_over_for_each() -> None:
    outage = Outage()
    assert [outage.report(who, ODD) for who in ("a", "b", "a", "b")] == [True, True, False, False]
    assert not outage, "Redis itself is well"
    assert outage.begun == 0
    assert (outage.clear("a"), outage.clear("b")) == (2, 2)


def test_one_who_fails_for_good_does_not_hide_the_end_of_an_outage() -> None:
    outage = Outage()
    outage.report("odd", ODD)
    assert (outage.report("a", AWAY), outage.clear("a")) == (True, 1)
    assert (outage.report("a", AWAY), outage.clear("a")) == (True, 1)
    outage.report("odd", AWAY)
    assert outage.clear("odd") == 2


def test_the_first_success_lets_all_others_try_again_and_the_last_nobody() -> None:
    outage = Outage()
    tried: list[str] = []
    for who in "abc":
        outage.retries[who] = lambda who=who: tried.append(who)  # type: ignore[misc]  # mypy on defaults of lambdas
        outage.report(who, AWAY)
    outage.clear("a")
    assert tried == ["a", "b", "c"]
    outage.clear("b")
    tried.clear()
    outage.clear("c")
    outage.clear("c")
    assert not tried


def test_each_refusal_of_a_replica_is_passed_on_whoever_met_it() -> None:
    """Wakers ask nothing that a replica refuses, so they learn from the others that they wait at one."""
    outage, heard = Outage(), []
    outage.on_replica = lambda: heard.append("replica")
    for who in ("a", "a", "b"):
        outage.report(who, BrokerReadOnlyError("replica"))
    outage.notice(BrokerReadOnlyError("replica"))
    outage.report("a", AWAY)
    assert len(heard) == 4

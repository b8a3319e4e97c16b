"""Trouble with Redis is said once for all that meet it, and its end when the last of them is through."""

import pytest

from fastq.errors import (
    BrokerConnectionError,
    BrokerError,
    BrokerOutOfMemoryError,
    BrokerReadOnlyError,
    BrokerTimeoutError,
)
from fastq.server.trouble import Trouble

AWAY = BrokerConnectionError("away")
ODD = BrokerError("WRONGTYPE")


@pytest.mark.parametrize(
    "error", [AWAY, BrokerTimeoutError("silent"), BrokerReadOnlyError("replica"), BrokerOutOfMemoryError("full")]
)
def test_what_everybody_meets_is_said_once_and_is_over_when_the_last_is_through(error: BrokerError) -> None:
    trouble = Trouble()
    assert [trouble.meet(who, error) for who in ("a", "b", "a", "c")] == [True, False, False, False]
    assert trouble
    assert [trouble.leave(who) for who in ("a", "a", "c", "b", "b")] == [0, 0, 0, 4, 0]
    assert not trouble
    assert trouble.meet("a", error), "the next one is said again"


def test_another_kind_of_trouble_in_the_same_outage_is_said_too_but_not_by_turns() -> None:
    trouble = Trouble()
    slow = BrokerTimeoutError("silent")
    said = [trouble.meet("a", error) for error in (slow, AWAY, slow, AWAY)]
    assert said == [True, True, False, False]
    assert trouble.leave("a") == 4


def test_what_is_one_s_own_is_said_by_each_and_over_for_each() -> None:
    trouble = Trouble()
    assert [trouble.meet(who, ODD) for who in ("a", "b", "a", "b")] == [True, True, False, False]
    assert not trouble, "Redis itself is well"
    assert (trouble.leave("a"), trouble.leave("b")) == (2, 2)


def test_one_who_fails_for_good_does_not_hide_the_end_of_an_outage() -> None:
    trouble = Trouble()
    trouble.meet("odd", ODD)
    assert (trouble.meet("a", AWAY), trouble.leave("a")) == (True, 1)
    assert (trouble.meet("a", AWAY), trouble.leave("a")) == (True, 1)
    trouble.meet("odd", AWAY)
    assert trouble.leave("odd") == 2

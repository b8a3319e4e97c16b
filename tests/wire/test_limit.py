"""Limits as text and as rules."""

import random
import re

import pytest

from fastq.wire.limit import Limit, Rule, check_limited, pool_of, read_rule, write_rule


@pytest.mark.parametrize(
    ("text", "limit", "rule"),
    [
        ("2", Limit(2), "2:0:1:1"),
        ("5/s", Limit(rate="5/s"), "0:200000:1:1"),
        (" 2,5/S,burst 10 , weight 3", Limit(2, "5/s", burst=10, weight=3), "2:200000:10:3"),
        ("5/s, 2", Limit(2, "5/s"), "2:200000:1:1"),
        ("500/m", Limit(rate="500/1m"), "0:120000:1:1"),
        ("7/h", Limit(rate="7 / hour"), "0:514285715:1:1"),
        ("6/m", Limit(rate="1/10s"), "0:10000000:1:1"),
        ("1/2d", Limit(rate="1/48h"), "0:172800000000:1:1"),
        ("16/d", Limit(rate="1/1h30m"), "0:5400000000:1:1"),
        ("weight 3", Limit(weight=3), "0:0:1:3"),
        ("1, strict", Limit(1, order="strict"), "1:0:1:1:strict"),
        ("LIFO, 5/s, weight 2", Limit(rate="5/s", weight=2, order="lifo"), "0:200000:1:2:lifo"),
        ("deadline", Limit(order="deadline"), "0:0:1:1:deadline"),
        ("no limit", Limit(), "0:0:1:1"),
    ],
)
def test_a_limit_is_read_and_written(text: str, limit: Limit, rule: str) -> None:
    assert Limit.parse(text) == limit
    assert Limit.parse(str(limit)) == limit
    assert write_rule(limit) == rule
    assert read_rule(rule) == Rule(limit, False)
    assert read_rule(f"{rule}:paused") == Rule(limit, True)


def test_what_is_written_is_how_people_say_it() -> None:
    said = ("2, 5/s, burst 10, weight 3", "3/s", "100/m", "1000/h", "1/2d", "1, strict", "lifo", "deadline", "no limit")
    assert tuple(str(Limit.parse(text)) for text in said) == said


def test_any_interval_survives_its_text() -> None:
    dice = random.Random(35)
    for _ in range(2_000):
        rule = f"0:{int(10 ** dice.uniform(0, 13))}:1:1"
        found = read_rule(rule)
        assert found is not None
        assert found.limit is not None
        assert write_rule(Limit.parse(str(found.limit))) == rule


def test_a_rate_is_never_exceeded_by_rounding() -> None:
    for count in (3, 7, 9, 11, 13, 700_000):
        assert Limit(rate=f"{count}/s").interval_us * count >= 1_000_000


def test_a_pause_alone_is_a_rule_without_a_limit() -> None:
    assert read_rule("0:0:0:0:paused") == Rule(None, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2",
        "2:0:1",
        "a:0:1:1",
        "2:0:1:1:stopped",
        "1:0:1:1:paused:strict",
        "2:0:1:1:strict",
        "-1:0:1:1",
        "9999999:0:1:1",
    ],
)
def test_what_is_no_rule_is_none(text: str) -> None:
    assert read_rule(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' in '' is no part of a limit"),
        ("2,", "'' in '2,' is no part of a limit"),
        ("two", "'two' in 'two' is no part of a limit"),
        ("1.5", "'1.5' in '1.5' is no part"),
        ("2, 3", "'2, 3' has two values for concurrency"),
        ("5/s, 5/m", "two values for rate"),
        ("0", "concurrency must be at least 1, not 0; pause the lane instead"),
        ("2000000", "concurrency must be from 1 to 1,000,000, not 2000000"),
        ("0/s", "rate '0/s' lets nothing start"),
        ("5/0s", "rate '5/0s' lets nothing start"),
        ("5/", "rate '5/' is not a number of tasks in a time"),
        ("1.5/s", "rate '1.5/s' is not a number of tasks in a time"),
        ("5/week", "rate '5/week' has an invalid duration 'week'"),
        ("2000000/s", "rate '2000000/s' is more than a million tasks a second"),
        ("1/d, burst 1000", "would take more than a year"),
        ("1/500d", "would take more than a year"),
        ("strict", "order='strict' needs concurrency=1, one task after the other, not None"),
        ("2, strict", "order='strict' needs concurrency=1, one task after the other, not 2"),
        ("1, strict, lifo", "two values for order"),
        ("burst 2", "burst=2 goes with a rate only"),
        ("5/s, burst 0", "burst must be from 1 to 1,000,000, not 0"),
        ("weight 0", "weight must be from 1 to 1,000, not 0"),
        ("weight 1001", "weight must be from 1 to 1,000, not 1001"),
    ],
)
def test_bad_text_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Limit.parse(text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"concurrency": True}, "concurrency must be an int, not bool: True"),
        ({"concurrency": "2"}, "concurrency must be an int, not str: '2'"),
        ({"rate": 5}, "rate must be a text such as '5/s', not 5"),
        ({"rate": "5/s", "burst": 1.5}, "burst must be an int, not float: 1.5"),
        ({"order": 1}, "order must be strict, lifo or deadline, not int: 1"),
        ({"weight": None}, "weight must be an int, not NoneType: None"),
    ],
)
def test_a_value_of_another_type_is_named(values: dict[str, object], said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        Limit(**values)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a limit is text such as '2, 5/s', not 2"):
        Limit.parse(2)  # type: ignore[arg-type]


def test_an_order_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="order must be strict, lifo or deadline, not 'random'"):
        Limit(order="random")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["acme", "openai:acme", "a:b:c", "*", "openai:*"])
def test_what_a_limit_may_be_for(name: str) -> None:
    assert check_limited(name, Limit(2, "5/s")) == name
    assert check_limited(None, Limit(2)) == ""


@pytest.mark.parametrize(
    ("name", "limit", "said"),
    [
        ("", None, "lane must contain one or more characters that are not blank: ''"),
        ("  ", None, "not blank: '  '"),
        ("openai*", None, "'openai*' is neither a lane, nor '*' for each lane, nor a pool such as 'openai:*'"),
        ("a:b:*", None, "'a:b:*' is neither a lane"),
        (":*", None, "':*' is neither a lane"),
        ("**", None, "'**' is neither a lane"),
        ("openai:*", Limit(weight=2), "weight is for lanes; 'openai:*' is a pool"),
        ("openai:*", Limit(order="lifo"), "order='lifo' is for lanes; 'openai:*' is a pool"),
        (None, Limit(1, order="strict"), "a queue as a whole has a concurrency only, not '1, strict'"),
        (None, Limit(2, "5/s"), "a queue as a whole has a concurrency only, not '2, 5/s'"),
        (None, Limit(2, weight=2), "a queue as a whole has a concurrency only, not '2, weight 2'"),
        ("a\ud800", None, "lane must be valid Unicode text"),
    ],
)
def test_what_a_limit_may_not_be_for(name: str | None, limit: Limit | None, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        check_limited(name, limit)


def test_a_name_that_is_no_text_is_named() -> None:
    with pytest.raises(TypeError, match="lane must be a str, not int: 5"):
        check_limited(5)


def test_the_pool_is_what_is_before_the_first_colon() -> None:
    assert [pool_of(lane) for lane in ("openai:acme", "a:b:c", "acme", ":x", "")] == ["openai:*", "a:*", "", "", ""]

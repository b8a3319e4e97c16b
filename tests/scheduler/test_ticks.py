from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastq.cron import parse
from fastq.scheduler.ticks import (
    MAX_LEFT_OUT,
    MAX_MADE_UP,
    Missed,
    Pick,
    begin_at,
    count_left_out,
    pick_ticks,
    tick_ttl_s,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.mark.parametrize("missed", Missed)
@pytest.mark.parametrize("spec", ["0 13 * * *", "@every 1h"])
def test_nothing_is_picked_before_it_is_due(spec: str, missed: Missed) -> None:
    assert pick_ticks(parse(spec), NOON, NOON + timedelta(minutes=59, seconds=59), missed) is None


@pytest.mark.parametrize("missed", Missed)
@pytest.mark.parametrize("spec", ["0 13 * * *", "@every 1h"])
def test_a_tick_in_time_is_picked_whatever_the_policy(spec: str, missed: Missed) -> None:
    due = NOON + HOUR
    assert pick_ticks(parse(spec), NOON, due, missed) == Pick([due], due, leaves_out=False)
    assert pick_ticks(parse(spec), NOON, due + MINUTE, missed) == Pick([due], due, leaves_out=False)


@pytest.mark.parametrize("spec", ["0 * * * *", "@every 1h"])
def test_after_a_sleep_the_latest_tick_or_all_are_picked(spec: str) -> None:
    schedule, now = parse(spec), NOON + 3 * HOUR + 2 * MINUTE
    ticks = [NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR]
    assert pick_ticks(schedule, NOON, now, Missed.SKIP) == Pick(ticks[-1:], ticks[-1], leaves_out=True)
    assert pick_ticks(schedule, NOON, now, Missed.ONCE) == Pick(ticks[-1:], ticks[-1], leaves_out=True)
    assert pick_ticks(schedule, NOON, now, Missed.ALL) == Pick(ticks, ticks[-1], leaves_out=False)
    assert count_left_out(schedule, NOON, Pick(ticks[-1:], ticks[-1], leaves_out=True)) == 2
    assert count_left_out(schedule, NOON, Pick([], ticks[-1], leaves_out=True)) == 3


@pytest.mark.parametrize("spec", ["* * * * *", "@every 60s"])
def test_no_more_than_the_latest_thousand_are_made_up(spec: str) -> None:
    now = NOON + 30 * DAY
    pick = pick_ticks(parse(spec), NOON, now, Missed.ALL)
    assert pick is not None
    assert pick.ticks == [now - minutes * MINUTE for minutes in reversed(range(MAX_MADE_UP))]
    assert count_left_out(parse(spec), NOON, pick) == MAX_LEFT_OUT


@pytest.mark.parametrize("spec", ["* * * * *", "@every 7s", "0 0 1 1 *", "0 0 29 2 *"])
def test_the_latest_of_many_is_found_as_if_all_were_gone_through(spec: str) -> None:
    schedule, begin = parse(spec), datetime(2019, 1, 1, tzinfo=UTC)
    now = begin + (3 * DAY if spec < "0" or spec[0] == "@" else 2000 * DAY) + timedelta(seconds=30)
    ticks = []
    tick = schedule.next(begin)
    while tick is not None and tick <= now:
        ticks.append(tick)
        tick = schedule.next(tick)
    pick = pick_ticks(schedule, begin, now, Missed.ONCE)
    assert pick == Pick(ticks[-1:], ticks[-1], leaves_out=len(ticks) > 1)
    assert pick is not None
    assert count_left_out(schedule, begin, pick) == min(len(ticks) - 1, MAX_LEFT_OUT)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        ["*/7 * * * *", "0 */3 * * *", "@every 97s", "15 2 * * mon", "CRON_TZ=America/New_York 30 1 * * *"]
    ),
    st.integers(0, 60 * 60 * 24 * 10),
    st.integers(0, 60 * 60 * 24 * 3),
    st.sampled_from(Missed),
)
def test_what_is_picked_is_the_end_of_what_was_due(spec: str, start_s: int, gone_s: int, missed: Missed) -> None:
    schedule = parse(spec)
    after = datetime(2025, 10, 28, tzinfo=UTC) + timedelta(seconds=start_s)
    now = after + timedelta(seconds=gone_s)
    due: list[datetime] = []
    tick = schedule.next(after)
    while tick is not None and tick <= now:
        due.append(tick)
        tick = schedule.next(tick)
    chosen = due[-MAX_MADE_UP:] if missed is Missed.ALL else due[-1:]
    pick = pick_ticks(schedule, after, now, missed)
    assert pick == (Pick(chosen, due[-1], len(chosen) < len(due)) if due else None)
    if pick is not None:
        assert count_left_out(schedule, after, pick) == min(len(due) - len(chosen), MAX_LEFT_OUT)


def test_intervals_of_a_shared_entry_count_from_the_epoch() -> None:
    now = NOON + timedelta(seconds=17, microseconds=3)
    schedule = parse("@every 25s")
    assert begin_at(schedule, now, shared=False) == NOON + timedelta(seconds=17)
    begin = begin_at(schedule, now, shared=True)
    assert begin.timestamp() % 25 == 0
    assert now - timedelta(seconds=25) < begin <= now
    assert begin_at(parse("* * * * *"), now, shared=True) == NOON + timedelta(seconds=17)


def test_a_tick_is_known_as_long_as_somebody_may_try_it() -> None:
    assert tick_ttl_s(parse("@every 1s"), NOON, Missed.ONCE) == 3600
    assert tick_ttl_s(parse("@every 1s"), NOON, Missed.ALL) == 3600
    assert tick_ttl_s(parse("* * * * *"), NOON, Missed.ALL) == 60_000
    assert tick_ttl_s(parse("0 12 * * *"), NOON, Missed.SKIP) == 2 * 86_400
    assert tick_ttl_s(parse("0 12 * * *"), NOON, Missed.ALL) == 90 * 86_400
    assert tick_ttl_s(parse("0 12 2 3 *"), NOON, Missed.ONCE) == 90 * 86_400
    assert tick_ttl_s(parse("0 12 29 2 *"), datetime(2096, 2, 29, 12, tzinfo=UTC), Missed.ONCE) == 90 * 86_400


def test_ticks_of_a_zone_are_reckoned_in_utc() -> None:
    """Python takes two times of one zone to be as far apart as their clocks show."""
    schedule = parse("30 1 * * *", "America/New_York")
    begin = datetime(2025, 11, 2, 4, tzinfo=UTC)
    first, second = begin.replace(hour=5, minute=30), begin.replace(hour=6, minute=30)
    pick = pick_ticks(schedule, begin, second + timedelta(seconds=1), Missed.ALL)
    assert pick == Pick([first, second], second, leaves_out=False)
    assert pick.ticks[0].tzinfo is UTC
    assert tick_ttl_s(schedule, second, Missed.SKIP) == 2 * 86_400

"""Next times against a plain reading of the rules: look at every minute, and at the clock on the wall."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastq.cron import parse

MINUTE = timedelta(minutes=1)
CHANGES = [  # a zone, and a moment of UTC in the middle of four days around a change of its clocks
    ("America/New_York", "2025-03-09T07:00"),
    ("America/New_York", "2025-11-02T06:00"),
    ("America/Sao_Paulo", "2018-11-04T03:00"),
    ("America/Sao_Paulo", "2018-02-18T02:00"),
    ("Australia/Lord_Howe", "2025-10-04T15:30"),
    ("Australia/Lord_Howe", "2025-04-05T15:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("Africa/Casablanca", "2025-02-23T02:00"),
    ("Asia/Kathmandu", "2025-06-01T00:00"),
]


def lists(low: int, high: int) -> st.SearchStrategy[set[int]]:
    return st.just(set(range(low, high + 1))) | st.sets(st.integers(low, high), min_size=1, max_size=6)


def text(values: set[int], low: int, high: int) -> str:
    return "*" if values == set(range(low, high + 1)) else ",".join(map(str, sorted(values)))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CHANGES), lists(0, 59), lists(0, 23), lists(27, 31), lists(0, 6), st.integers(0, 5759))
def test_next_is_the_first_later_minute_that_matches_on_the_wall(
    change: tuple[str, str], minutes: set[int], hours: set[int], days: set[int], weekdays: set[int], start: int
) -> None:
    zone = ZoneInfo(change[0])
    middle = datetime.fromisoformat(change[1]).replace(tzinfo=UTC)
    begin, end = middle - timedelta(days=2), middle + timedelta(days=2)
    days_text, weekdays_text = text(days, 1, 31), text(weekdays, 0, 6)

    def is_due(moment: datetime) -> bool:
        wall = moment.astimezone(zone)
        day_fits, weekday_fits = wall.day in days, wall.isoweekday() % 7 in weekdays
        fits = day_fits and weekday_fits if weekdays_text == "*" else day_fits or weekday_fits
        return wall.minute in minutes and wall.hour in hours and fits

    after = begin + start * MINUTE
    expected = next((moment for moment in _minutes(after + MINUTE, end) if is_due(moment)), None)
    spec = f"{text(minutes, 0, 59)} {text(hours, 0, 23)} {days_text} * {weekdays_text}"
    found = parse(spec, change[0]).next(after + timedelta(seconds=17, microseconds=5))
    if expected is None:
        assert found is None or found > end
    else:
        assert found == expected


def _minutes(first: datetime, last: datetime) -> list[datetime]:
    return [first + n * MINUTE for n in range((last - first) // MINUTE + 1)]


@pytest.mark.parametrize(
    ("spec", "first"),
    [
        ("30 1 * * *", ["05T01:30:00+10:30", "06T01:30:00+11:00"]),
        ("0 3 * * *", ["05T03:00:00+11:00", "06T03:00:00+11:00"]),
        ("0 0 * * *", ["05T00:00:00+10:30", "06T00:00:00+11:00"]),
        ("15 2 * * *", ["06T02:15:00+11:00"]),
    ],
)
def test_a_change_by_half_an_hour_skips_only_what_is_in_the_gap(spec: str, first: list[str]) -> None:
    schedule = parse(spec, "Australia/Lord_Howe")
    moment = datetime.fromisoformat("2025-10-04T20:00:00+10:30")
    for expected in first:
        due = schedule.next(moment)
        assert due is not None
        assert due.isoformat() == f"2025-10-{expected}"
        moment = due


def test_a_repeated_time_equals_the_same_moment_of_any_zone() -> None:
    """As a time of a zone it would not, not even itself in UTC."""
    schedule = parse("30 1 * * *", "America/New_York")
    first = schedule.next(datetime(2025, 11, 2, 4, tzinfo=UTC))
    assert first == datetime(2025, 11, 2, 5, 30, tzinfo=UTC)
    second = schedule.next(first)
    assert second == datetime(2025, 11, 2, 6, 30, tzinfo=UTC)
    assert second == datetime.fromisoformat("2025-11-02T01:30:00-05:00")
    assert second - first == timedelta(hours=1)
    assert (first.isoformat(), first.tzname(), second.tzname()) == ("2025-11-02T01:30:00-04:00", "EDT", "EST")


@pytest.mark.parametrize("spec", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", ", * * * *", "* * * , *", "* * , * *"])
def test_what_never_comes_is_none(spec: str) -> None:
    assert parse(spec).next(datetime(2025, 1, 1, tzinfo=UTC)) is None
    assert parse(spec, "America/New_York").next(datetime(2025, 1, 1, tzinfo=UTC)) is None


def test_a_day_of_the_month_that_never_comes_leaves_the_day_of_the_week() -> None:
    for spec in ("0 0 30 2 mon", "0 0 , 2 mon"):
        assert parse(spec).next(datetime(2025, 1, 1, tzinfo=UTC)) == datetime(2025, 2, 3, tzinfo=UTC)


def test_a_leap_day_more_than_five_years_ahead_counts_as_never() -> None:
    leap_day = parse("0 0 29 2 *")
    assert leap_day.next(datetime(2096, 1, 1, tzinfo=UTC)) == datetime(2096, 2, 29, tzinfo=UTC)
    assert leap_day.next(datetime(2096, 3, 1, tzinfo=UTC)) is None
    assert leap_day.next(datetime(2099, 1, 1, tzinfo=UTC)) == datetime(2104, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize("spec", ["@every 1h", "@yearly", "0 0 29 2 *", "TZ=Asia/Tokyo @daily"])
def test_the_end_of_the_calendar_is_no_error(spec: str) -> None:
    assert parse(spec).next(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)) is None


def test_an_interval_counts_from_the_whole_second() -> None:
    moment = datetime(2025, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC)
    assert parse("@every 90s").next(moment) == datetime(2025, 1, 1, 0, 1, 30, tzinfo=UTC)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="after must have a time zone"):
        parse("@daily").next(datetime(2025, 1, 1))
    with pytest.raises(TypeError, match="after must be a datetime"):
        parse("@daily").next(1.0)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    ("spec", "due"),
    [
        ("0 0 */2,1-31 * fri", 2),  # every day is listed, none by a star: either field is enough
        ("0 0 *,13 * fri", 3),
        ("0 0 */1 * fri", 3),
        ("0 0 1-31 * fri", 2),
        ("0 0 3 * 0-6", 2),
        ("0 0 3 * ?", 3),
        ("0 0 */2 * fri", 3),
        ("0 0 */4 * mon", 5),
        ("0 0 * 1,2 fri", 3),
        ("0 0 * 2 fri", 38),
        ("0 0 1-31 2 fri", 32),
    ],
)
def test_both_days_must_fit_only_where_one_is_a_star(spec: str, due: int) -> None:
    wednesday = datetime(2025, 1, 1, tzinfo=UTC)
    assert parse(spec).next(wednesday) == wednesday + timedelta(days=due - 1)

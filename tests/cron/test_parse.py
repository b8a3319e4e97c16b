import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from fastq.cron import CronSpecError, Schedule, parse
from fastq.errors import FastqError

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "cron.json").read_text())

# robfig goes from hour to hour where a zone's clocks change by half of one, and misses or adds times on that day. What
# is right there, the specs of these rows by their place and change; test_schedule.py checks them without robfig.
WRONG_IN_GO = {
    ("Australia/Lord_Howe", "2025-10-04", "30 1 * * *"),
    ("Australia/Lord_Howe", "2025-10-04", "0 3 * * *"),
    ("Australia/Lord_Howe", "2025-10-04", "0 0 * * *"),
    ("Australia/Lord_Howe", "2025-04-05", "0 2 * * *"),
    ("Australia/Lord_Howe", "2025-04-05", "0 3 * * *"),
    ("Australia/Lord_Howe", "2025-04-05", "@daily"),
}


def next_times(schedule: Schedule, start: str, count: int) -> list[str]:
    """Return the next so many times with their offsets; ``never`` ends the list."""
    times: list[str] = []
    moment = datetime.fromisoformat(start)
    for _ in range(count):
        due = schedule.next(moment)
        if due is None:
            return [*times, "never"]
        times.append(due.isoformat())
        moment = due
    return times


def in_utc(times: list[str]) -> list[str]:
    return [time if time == "never" else datetime.fromisoformat(time).astimezone(UTC).isoformat() for time in times]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: repr(case["spec"]))
def test_specs_are_refused_or_have_the_next_times_as_in_go(case: dict[str, Any]) -> None:
    if case["error"] or case["panic"]:
        with pytest.raises(CronSpecError) as caught:
            parse(case["spec"])
        assert 0 <= caught.value.position <= len(case["spec"])
        return
    schedule = parse(case["spec"])
    for start, times in case["next"].items():
        assert in_utc(next_times(schedule, start, len(times))) == in_utc(times)


@pytest.mark.parametrize(
    "row", GOLDEN["dst"], ids=lambda row: f"{row['location']} {row['from'][:10]} {row['spec']}".replace(" ", "_")
)
def test_times_around_changes_of_the_clocks_are_as_in_go(row: dict[str, Any]) -> None:
    times = next_times(parse(row["spec"], row["location"]), row["from"], len(row["next"] or "1"))
    if row["hangs"]:
        assert times == ["2012-12-30T00:00:00+14:00"]  # robfig seeks the day that Apia skipped for ever
    elif (row["location"], row["from"][:10], row["spec"]) in WRONG_IN_GO:
        assert times != row["next"]
    else:
        assert times == row["next"]


def test_every_row_where_go_is_wrong_is_in_the_table() -> None:
    rows = {(row["location"], row["from"][:10], row["spec"]) for row in GOLDEN["dst"]}
    assert rows >= WRONG_IN_GO


@pytest.mark.parametrize(
    ("spec", "position", "reason"),
    [
        ("", 0, "it is empty"),
        ("* * * *", 7, "there must be exactly 5 fields (minute, hour, day of the month, month, day of the week), here"),
        ("* * * * * 0", 10, "exactly 5 fields"),
        ("60 * * * *", 0, "minute: '60' is outside 0-59"),
        ("0 0-24 * * *", 2, "hour: '0-24' is outside 0-23"),
        ("0 0 0 * *", 4, "day of the month: '0' is outside 1-31"),
        ("0 0 * 13 *", 6, "month: '13' is outside 1-12"),
        ("0 0 * * 7", 8, "day of the week: '7' is outside 0-6; Sunday is 0"),
        ("0 0 * * 1,5-7", 10, "day of the week: '5-7' is outside 0-6; Sunday is 0"),
        ("0 0 * * fri-mon", 8, "day of the week: the range 'fri-mon' begins after its end"),
        ("1,2,10-5 * * * *", 4, "minute: the range '10-5' begins after its end"),
        ("1-2-3 * * * *", 0, "minute: '1-2-3' has more than one '-'"),
        ("1/2/3 * * * *", 0, "minute: '1/2/3' has more than one '/'"),
        ("*/0 * * * *", 2, "minute: the step '0' must be 1 or more"),
        ("*/-5 * * * *", 2, "minute: the step '-5' must be 1 or more"),
        ("5/ * * * *", 2, "minute: a number is missing"),
        ("-5 * * * *", 0, "minute: a number is missing"),
        ("5- * * * *", 2, "minute: a number is missing"),
        ("*/99999999999999999999 * * * *", 2, "minute: '99999999999999999999' is not a whole number"),
        ("1-x * * * *", 2, "minute: 'x' is not a whole number"),
        ("0 0 mon * *", 4, "day of the month: 'mon' is not a whole number"),
        ("0 0 * * monday", 8, "'monday' is not a whole number nor one of sun, mon, tue, wed, thu, fri, sat"),
        ("0 0 * maj *", 6, "nor one of jan, feb"),
        ("@reboot", 0, "unknown descriptor '@reboot'; known are @yearly, "),
        ("@every 10", 7, "invalid duration '10': a unit is missing"),
        ("TZ=UTC @every x", 14, "invalid duration 'x'"),
        ("TZ=Mars/Olympus * * * * *", 3, "unknown time zone 'Mars/Olympus', names are like 'Europe/Paris'"),
        ("CRON_TZ=europe/paris @daily", 8, "unknown time zone 'europe/paris'; did you mean 'Europe/Paris'?"),
        ("CRON_TZ=../UTC @daily", 8, "unknown time zone '../UTC'"),
        ("CRON_TZ=UTC", 11, "after the time zone there must be a space and a schedule"),
        ("CRON_TZ=UTC ", 12, "there must be exactly 5 fields"),
    ],
)
def test_a_refusal_says_where_and_why(spec: str, position: int, reason: str) -> None:
    with pytest.raises(CronSpecError) as caught:
        parse(spec)
    assert (caught.value.spec, caught.value.position) == (spec, position)
    assert reason in caught.value.reason
    assert str(caught.value) == f"cron spec {spec!r}, position {position}: {caught.value.reason}"
    assert isinstance(caught.value, ValueError | FastqError)


@pytest.mark.parametrize("spec", [None, b"* * * * *", 5, ["*"]])
def test_what_is_no_text_is_a_type_error(spec: Any) -> None:
    with pytest.raises(TypeError, match="a cron spec must be a str, not "):
        parse(spec)


@pytest.mark.parametrize("tz", ["Mars/Olympus", "", "utc", "+02:00", "/etc/localtime", "Europe"])
def test_an_unknown_zone_is_refused_by_name(tz: str) -> None:
    with pytest.raises(ValueError, match=f"unknown time zone '{tz}'".replace("+", r"\+")):
        parse("@daily", tz)


def test_a_zone_that_is_none_at_all_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="a time zone must be a name such as 'Europe/Paris', or a tzinfo, not 5"):
        parse("@daily", 5)  # type: ignore[arg-type]  # what is tested


def test_a_zone_may_be_given_as_tzinfo() -> None:
    noon = parse("0 12 * * *", timezone(timedelta(hours=2)))
    assert next_times(noon, "2025-01-01T00:00:00+00:00", 1) == ["2025-01-01T12:00:00+02:00"]


def test_the_zone_of_the_spec_wins_and_local_is_the_given_one() -> None:
    start = "2025-01-01T00:00:00+00:00"
    assert next_times(parse("TZ=Asia/Tokyo 0 6 * * *", "Europe/Paris"), start, 1) == ["2025-01-02T06:00:00+09:00"]
    assert next_times(parse("TZ=Local 0 6 * * *", "Europe/Paris"), start, 1) == ["2025-01-01T06:00:00+01:00"]
    assert next_times(parse("TZ= 0 6 * * *", "Europe/Paris"), start, 1) == ["2025-01-01T06:00:00+00:00"]


def test_a_schedule_shows_its_spec_and_zone() -> None:
    schedule = parse("TZ=Asia/Tokyo @daily")
    assert repr(schedule) == "CalendarSchedule('TZ=Asia/Tokyo @daily', 'Asia/Tokyo')"
    assert (schedule.spec, str(schedule.zone)) == ("TZ=Asia/Tokyo @daily", "Asia/Tokyo")

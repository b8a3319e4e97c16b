"""The days of a time zone are made of the hours of UTC that servers have counted."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from redis import Redis

from fastq import Client, Durations, RunHistory, RunStats
from fastq.web import FastqWeb
from fastq.web.days import _RENAMED, days_of, last_days, note_on
from fastq.web.history import bars_of_days
from fastq.wire.history import BUCKETS
from tests.web.scene import add_past
from tests.web.serving import serving

HOUR = timedelta(hours=1)
NONE = Durations((0,) * BUCKETS)


def hours(first: datetime, count: int) -> list[RunStats]:
    """Return hours of UTC with a run in each."""
    return [RunStats(first + n * HOUR, 1, 0, 0, 0, 0, NONE, NONE) for n in range(count)]


def lengths(points: Sequence[RunStats], zone: str) -> dict[str, int]:
    return {str(day.date): day.stats.done for day in days_of(points, HOUR, ZoneInfo(zone))}


@pytest.mark.parametrize(
    ("zone", "change", "hours_there"),
    [
        ("America/St_Johns", datetime(2026, 11, 1), 25),
        ("America/St_Johns", datetime(2026, 3, 8), 23),
        ("Europe/Paris", datetime(2026, 10, 25), 25),
        ("Asia/Beirut", datetime(2026, 3, 29), 23),  # its midnight is the hour that is left out
        ("Asia/Kolkata", datetime(2026, 10, 25), 24),
    ],
)
def test_a_day_has_as_many_hours_as_the_clocks_give_it(zone: str, change: datetime, hours_there: int) -> None:
    found = lengths(hours(change.replace(tzinfo=UTC) - timedelta(days=3), 6 * 24), zone)
    day = timedelta(days=1)
    assert found[str(change.date())] == hours_there
    assert [found[str((change + n * day).date())] for n in (-1, 1)] == [24, 24]
    assert sum(found.values()) == 6 * 24


def test_an_hour_across_midnight_belongs_to_the_day_of_its_middle_and_the_page_says_so() -> None:
    points = hours(datetime(2026, 11, 20, tzinfo=UTC), 72)
    for zone, begins, utc_hour in (
        ("Asia/Kathmandu", "23:45", 18),  # its midnight is 18:15 UTC
        ("Asia/Kolkata", "23:30", 18),
        ("Pacific/Auckland", "00:00", 11),
    ):
        at = ZoneInfo(zone)
        days = days_of(points, HOUR, at)
        assert days[1].stats.start == datetime(2026, 11, 20, utc_hour, tzinfo=UTC), zone
        assert f"{days[1].stats.start.astimezone(at):%H:%M}" == begins, zone
        note = note_on(days[1:], at)
        assert note == (
            f"Days begin at midnight in {zone}."
            if begins == "00:00"
            else f"Runs are counted by the hours of UTC, so days in {zone} are taken to begin at {begins}."
        )


def test_14_days_are_today_and_the_13_before() -> None:
    now = datetime(2026, 11, 5, 9, tzinfo=UTC)
    points = hours(now - 335 * HOUR, 336)
    history = last_days(RunHistory("q", HOUR, points, points[0]), ZoneInfo("America/St_Johns"))
    days = days_of(history.points, HOUR, ZoneInfo("America/St_Johns"))
    assert [str(days[0].date), str(days[-1].date), len(days)] == ["2026-10-23", "2026-11-05", 14]
    assert history.total.done == sum(day.stats.done for day in days) == 12 * 24 + 25 + 7
    labels = [bar.label for bar in bars_of_days(days)]
    assert labels[0] == "Fri 2026-10-23"
    assert labels[9] == "Sun 2026-11-01, 25 hours"
    assert labels[-1] == "Thu 2026-11-05, until now"


def test_page_and_api_sum_by_the_days_of_a_zone_that_is_known(url: str, db: Redis) -> None:
    with Client(url) as client:
        for queue in ("default", "images", "low"):
            client.enqueue("t", queue=queue)
            db.set(f"asynq:{{{queue}}}:processed", 1)
    now_s = int(time.time())
    add_past(url, now_s - 30 * 3_600, 3)
    add_past(url, now_s, 1)
    with serving(FastqWeb(url, auth=None)) as served:
        page = served.get("/history?since=14d&zone=Pacific/Auckland&queue=low").text
        assert "Days begin at midnight in Pacific/Auckland." in page
        assert 'href="/history?zone=Pacific%2FAuckland&amp;queue=low&amp;since=1h"' in page
        assert "Days begin at midnight UTC." in served.get("/history?since=14d").text
        assert "Days begin" not in served.get("/history?since=24h&zone=Pacific/Auckland").text
        told = served.get("/api/v1/queues/low/runs?since=336h&zone=Asia/Tokyo").json
        assert sum(day["done"] for day in told["days"]) == told["total"]["done"] > 0
        today = datetime.fromtimestamp(now_s, ZoneInfo("Asia/Tokyo")).date()
        runs_on = [day["date"] for day in told["days"] if day["done"]]
        assert runs_on[-1] in (str(today), str(today + timedelta(days=1)))  # midnight may have passed
        assert len(runs_on) == 2
        assert {day["hours"] for day in told["days"][1:-1]} == {24}
        assert served.get("/api/v1/queues/low/runs").json["days"] == []
        for zone in ("Mars/Base", "europe/paris", "../etc/passwd", "%00", "x" * 200, "%2B05:30"):
            for path in ("/history?since=14d&zone=", "/history?zone=", "/api/v1/queues/low/runs?zone="):
                refused = served.get(f"{path}{zone}")
                assert refused.status == 400, path + zone
                assert "unknown time zone" in refused.text, path + zone
        for old, name in _RENAMED.items():
            assert f' data-zone="{name}">' in served.get(f"/history?zone={old}").text
        assert "did you mean &#39;Europe/Paris&#39;?" in served.get("/history?zone=europe/paris").text

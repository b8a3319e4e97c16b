"""Schedules in words."""

from datetime import UTC, datetime

import pytest

from fastq.cron.words import words_of


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("0 6 * * *", "every day at 06:00 UTC"),
        ("@daily", "every day at 00:00 UTC"),
        ("@hourly", "every hour"),
        ("@weekly", "every Sunday at 00:00 UTC"),
        ("@monthly", "on the 1st of every month at 00:00 UTC"),
        ("@yearly", "on the 1st of January at 00:00 UTC"),
        ("@every 90s", "every 1m30s"),
        ("*/5 * * * *", "every 5 minutes"),
        ("* * * * *", "every minute"),
        ("*/15 9-17 * * mon-fri", "every 15 minutes from 09:00 to 17:59, every weekday in UTC"),
        ("0 */2 * * *", "every 2 hours"),
        ("15 * * * *", "every hour at minute 15"),
        ("0,30 8 * * sat,sun", "every Sunday and Saturday at 08:00 and 08:30 UTC"),
        ("30 4 1,15 * *", "on the 1st and 15th of every month at 04:30 UTC"),
        ("0 0 3 6,12 *", "on the 3rd of June and December at 00:00 UTC"),
        ("CRON_TZ=Asia/Tokyo 0 6 * * mon", "every Monday at 06:00 in Asia/Tokyo"),
        ("0 0 13 * 5", ""),  # the 13th, and every Friday
        ("1-59/7 3-19/2 * * *", ""),
        ("nonsense", ""),
        ("0 0 30 2 *", "on the 30th of February at 00:00 UTC"),
    ],
)
def test_specs_in_words(spec: str, words: str) -> None:
    assert words_of(spec) == words


@pytest.mark.parametrize(
    ("spec", "tick", "words"),
    [
        ("0 3 1 * *", datetime(2026, 12, 1, 3, tzinfo=UTC), "on the 1st of every month at 03:00 UTC"),
        (
            "0 3 1 * *",
            datetime(2026, 12, 1, 2, tzinfo=UTC),
            "on the 1st of every month at 03:00 in the scheduler's time zone",
        ),
        ("*/5 * * * *", datetime(2026, 12, 1, 2, tzinfo=UTC), "every 5 minutes"),
        ("CRON_TZ=Asia/Tokyo 0 6 * * mon", datetime(2026, 12, 1, 2, tzinfo=UTC), "every Monday at 06:00 in Asia/Tokyo"),
    ],
)
def test_the_zone_of_a_spec_without_one_is_seen_by_its_next_tick(spec: str, tick: datetime, words: str) -> None:
    assert words_of(spec, tick) == words

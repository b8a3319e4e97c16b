"""Schedules in words."""

import pytest

from fastq.cron.words import words_of


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("0 6 * * *", "every day at 06:00"),
        ("@daily", "every day at 00:00"),
        ("@hourly", "every hour"),
        ("@weekly", "every Sunday at 00:00"),
        ("@monthly", "on the 1st of every month at 00:00"),
        ("@yearly", "on the 1st of January at 00:00"),
        ("@every 90s", "every 1m30s"),
        ("*/5 * * * *", "every 5 minutes"),
        ("* * * * *", "every minute"),
        ("*/15 9-17 * * mon-fri", "every 15 minutes from 09:00 to 17:59, every weekday"),
        ("0 */2 * * *", "every 2 hours"),
        ("15 * * * *", "every hour at minute 15"),
        ("0,30 8 * * sat,sun", "every Sunday and Saturday at 08:00 and 08:30"),
        ("30 4 1,15 * *", "on the 1st and 15th of every month at 04:30"),
        ("0 0 3 6,12 *", "on the 3rd of June and December at 00:00"),
        ("CRON_TZ=Asia/Tokyo 0 6 * * mon", "every Monday at 06:00 in Asia/Tokyo"),
        ("0 0 13 * 5", ""),  # the 13th, and every Friday
        ("1-59/7 3-19/2 * * *", ""),
        ("nonsense", ""),
        ("0 0 30 2 *", "on the 30th of February at 00:00"),
    ],
)
def test_specs_in_words(spec: str, words: str) -> None:
    assert words_of(spec) == words

"""Rates from look to look."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fastq.cli.dash.tracks import KEPT, Tracks
from fastq.inspector import QueueInfo

BEGIN = datetime(2026, 11, 21, tzinfo=UTC)
STATES = dict.fromkeys(("pending", "active", "scheduled", "retry", "archived", "completed", "aggregating"), 0)
NOTHING: dict[str, Any] = {**STATES, "size": 0, "groups": 0, "processed": 0, "failed": 0}
QUEUE = QueueInfo(
    "a", 1, timedelta(0), **NOTHING, processed_total=1000, failed_total=100, paused=False, timestamp=BEGIN
)


def after(seconds: float, done: int, failed: int = 0, queue: str = "a") -> QueueInfo:
    """Return the queue some time after the beginning, when so many more tasks had ended."""
    at = BEGIN + timedelta(seconds=seconds)
    return replace(QUEUE, queue=queue, timestamp=at, processed_total=1000 + done, failed_total=100 + failed)


def test_rates_are_what_was_counted_between_two_looks() -> None:
    tracks = Tracks()
    tracks.note([QUEUE])
    assert (tracks.of("a").rate, tracks.whole.rate) == (None, None)
    tracks.note([after(8, 80, 4), after(8, 0, queue="b")])
    assert (tracks.of("a").rate, tracks.of("a").failure_rate, tracks.of("b").rate) == (10.0, 0.5, None)
    tracks.note([after(10, 80, 4), after(10, 40, queue="b")])
    assert (tracks.of("a").rate, tracks.of("b").rate, tracks.whole.rate) == (0.0, 20.0, 20.0)
    assert list(tracks.whole.processed) == [10.0, 20.0]


def test_a_look_that_comes_too_soon_is_left_out() -> None:
    tracks = Tracks()
    tracks.note([QUEUE])
    tracks.note([after(0.2, 50)])
    assert tracks.of("a").rate is None
    tracks.note([after(1, 100)])
    assert list(tracks.of("a").processed) == [100.0]


def test_counters_that_went_back_tell_no_rate_nor_does_a_clock() -> None:
    tracks = Tracks()
    for info in (after(0, 100), after(8, 20), after(1, 30), after(9, 38)):
        tracks.note([info])
    assert list(tracks.of("a").processed) == [None, None, 1.0]


def test_a_queue_that_is_gone_is_forgotten_and_history_is_bounded() -> None:
    tracks = Tracks()
    for n in range(KEPT + 50):
        tracks.note([after(n, n)])
    assert len(tracks.of("a").processed) == len(tracks.whole.processed) == KEPT
    tracks.note([])
    assert tracks.of("a").rate is None
    tracks.note([after(1000, 9000)])
    assert tracks.of("a").rate is None

"""The history of runs, as the inspectors read it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fastq import Durations, Inspector, QueueNotFoundError
from fastq.broker.operation import Operation
from fastq.broker.operations.history import add_history
from fastq.broker.transport.open import open_broker
from fastq.common.clock import SystemClock
from fastq.wire import keys
from fastq.wire.history import BUCKETS, COUNTERS
from tests.inspector.harness import Ask, Seeded

NOW_S = int(datetime(2096, 11, 22, 0, 10, 30, tzinfo=UTC).timestamp())
"""Far off, so that nothing expires."""


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(SystemClock, "unix_ns", lambda clock: NOW_S * 10**9)
    return NOW_S


def counts(done: int = 0, failed: int = 0, run: int = 0, wait: int = 0) -> list[int]:
    """Return counts with ``run`` runs of at most 0.5 s and ``wait`` waits of more than an hour."""
    made = [done, failed, *(0,) * (COUNTERS - 2)]
    made[5 + 8], made[5 + 2 * BUCKETS - 1] = run, wait
    return made


@pytest.fixture
def add(queue: Seeded, url: str, now: int) -> Callable[..., None]:
    """Return what adds to the history, so long ago."""
    queue.db.set(keys.processed_total("default"), 1)

    def added(ago_s: int, **by_type: list[int]) -> None:
        broker = open_broker(url)
        operation: Operation[Any] = add_history("default", now - ago_s, by_type)
        assert broker.run(operation)
        broker.close()

    return added


def test_minutes_come_oldest_first_with_their_sums_by_type(ask: Ask, add: Callable[..., None]) -> None:
    add(0, mail=counts(done=3, run=3), image=counts(failed=1, run=1, wait=1))
    add(20 * 60, mail=counts(done=5))  # before midnight, which is in another hash
    add(59 * 60 + 30, mail=counts(done=7))
    add(60 * 60 + 30, mail=counts(done=100))  # too long ago, but in the same ten minutes as the one before
    add(62 * 60, mail=counts(done=1000))
    found = ask("run_history", "default", timedelta(hours=1), by_type=True)
    assert (found.queue, found.step, len(found.points)) == ("default", timedelta(minutes=1), 60)
    assert found.points[-1].start == datetime(2096, 11, 22, 0, 10, tzinfo=UTC)
    runs = {place: point.processed for place, point in enumerate(found.points) if point.processed}
    assert runs == {0: 7, 39: 5, 59: 4}
    total = found.total
    assert (total.done, total.failed, total.processed, total.run.count, total.wait.count) == (15, 1, 16, 4, 1)
    assert total.start == found.points[0].start
    assert total.run.quantile(0.95) == timedelta(seconds=0.5)
    assert {name: stats.processed for name, stats in found.types.items()} == {"image": 1, "mail": 115}
    assert found.types["image"].start == datetime(2096, 11, 21, 23, 10, tzinfo=UTC)
    assert ask("run_history", "default", 3600).types == {}


def test_beyond_eight_hours_there_are_hours(ask: Ask, add: Callable[..., None]) -> None:
    for ago_h in (0, 1, 25, 13 * 24, 15 * 24):
        add(3600 * ago_h, mail=counts(done=1 + ago_h))
    found = ask("run_history", "default", timedelta(days=14))
    assert (found.step, len(found.points)) == (timedelta(hours=1), 14 * 24)
    ago = {len(found.points) - 1 - place: point.done for place, point in enumerate(found.points) if point.done}
    assert ago == {312: 313, 25: 26, 1: 2, 0: 1}
    assert found.total.done == 342


def test_a_queue_without_history_has_empty_points(ask: Ask, queue: Seeded, now: int) -> None:
    found = ask("run_history", "default", 60, by_type=True)
    assert (len(found.points), found.total.processed, found.types) == (1, 0, {})
    assert found.total.run.quantile(0.5) is None
    with pytest.raises(QueueNotFoundError):
        ask("run_history", "nosuch", 60)


@pytest.mark.parametrize(
    ("since", "more", "kind", "text"),
    [
        (0, {}, ValueError, "since must be above 0 and at most 14 days: 0"),
        (-1.5, {}, ValueError, "-1.5"),
        (timedelta(days=14, seconds=1), {}, ValueError, "at most 14 days"),
        ("1h", {}, TypeError, "since must be a timedelta or seconds, not '1h'"),
        (8 * 3600 + 1, {"by_type": True}, ValueError, "by_type goes with at most 8 hours"),
    ],
)
def test_a_time_of_which_nothing_is_kept_is_refused(
    since: Any, more: dict[str, Any], kind: type[Exception], text: str, url: str
) -> None:
    with Inspector(url) as inspector, pytest.raises(kind, match=text):
        inspector.run_history("default", since, **more)


def test_a_quantile_is_the_bound_that_so_many_did_not_exceed() -> None:
    durations = Durations((1, 0, 8, 0, *(0,) * (BUCKETS - 5), 1))
    found = {share: durations.quantile(share) for share in (0.01, 0.1, 0.11, 0.9, 0.91, 1.0)}
    bounds_s = {0.01: 0.001, 0.1: 0.001, 0.11: 0.005, 0.9: 0.005, 0.91: 3600.0, 1.0: 3600.0}
    assert found == {share: timedelta(seconds=bound_s) for share, bound_s in bounds_s.items()}
    for share in (0, 1.1):
        with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
            durations.quantile(share)

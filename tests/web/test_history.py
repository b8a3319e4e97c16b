"""The charts of the history say what the servers counted."""

import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from redis import Redis

from fastq import Client, Durations, Inspector, RunStats
from fastq.web import FastqWeb
from fastq.web.history import bars_of
from fastq.wire.history import BUCKETS
from tests.web.scene import add_past
from tests.web.serving import serving

NONE = Durations((0,) * BUCKETS)


def test_the_page_has_the_sums_of_all_queues_and_of_one(url: str, db: Redis) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        for queue in ("default", "images", "low"):
            client.enqueue("t", queue=queue)
            db.set(f"asynq:{{{queue}}}:processed", 1)
        add_past(url, int(time.time()) - 120, 5)  # none of it leaves the hour, or comes into it, meanwhile
        totals = {queue: inspector.run_history(queue, 3_600).total for queue in ("default", "images", "low")}
    with serving(FastqWeb(url, queues=["default", "images"], auth=None)) as served:
        page = served.get("/history").text
        both = totals["default"].processed + totals["images"].processed
        assert f"<dt>Runs</dt><dd>{both:,}</dd>" in page
        assert totals["low"].processed
        assert "digest:mail" not in page  # of a queue that nobody sees here
        bars = [int(n.replace(",", "")) for n in re.findall(r"<title>([\d,]+) done", page)]
        assert len(bars) == 60
        assert sum(bars) == totals["default"].done + totals["images"].done
        one = served.get("/history?queue=images").text
        assert f"<dt>Runs</dt><dd>{totals['images'].processed:,}</dd>" in one
        assert served.get("/history?queue=low").status == 404
        assert served.get("/history?since=2h").status == 400


@pytest.mark.parametrize("since", ["1h", "8h", "24h", "14d"])
def test_without_a_queue_the_page_says_so(since: str, url: str) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        answer = served.get(f"/history?since={since}&zone=Asia/Kolkata")
    assert answer.status == 200
    assert "<title>" not in answer.text.partition("</head>")[2]  # no bar


def test_bars_are_as_high_as_their_share_of_the_highest() -> None:
    start = datetime(2026, 11, 22, tzinfo=UTC)
    minute = timedelta(minutes=1)
    slow = Durations((0, 0, 0, 1, *(0,) * (BUCKETS - 4)))
    points = [
        RunStats(start, 1, 0, 0, 0, 0, NONE, NONE),
        RunStats(start + minute, 2, 1, 1, 0, 0, slow, NONE),
        RunStats(start + 2 * minute, 8, 0, 0, 0, 0, NONE, NONE),
    ]
    first, second = bars_of(points, minute, 2)
    assert (first.stats.done, first.stats.failed, first.stats.retried) == (3, 1, 1)
    assert (first.done, first.failed, second.done) == (37.5, 12.5, 100.0)
    assert (first.run, first.wait, second.run) == ((100.0, 100.0), (0.0, 0.0), (0.0, 0.0))
    assert (first.stats.start, first.end) == (start, start + 2 * minute)

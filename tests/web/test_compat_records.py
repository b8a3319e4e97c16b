"""What asynqmon's API counts from its own now, and so cannot be compared with the real one: by hand."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fastq import Client, Inspector, TaskState
from fastq.web import FastqWeb
from fastq.web.compat_records import printable_text, queue_json, task_json


@pytest.mark.parametrize(
    ("latency_s", "shown", "ms"),
    [(0, "0s", 0), (0.004, "0s", 4), (0.0125, "10ms", 12), (1.23456, "1.23s", 1234), (3725.5, "1h2m5.5s", 3_725_500)],
)
def test_latency_is_rounded_and_written_as_go_does(url: str, latency_s: float, shown: str, ms: int) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        client.enqueue("t")
        told = queue_json(replace(inspector.get_queue_info("default"), latency=timedelta(seconds=latency_s)))
    assert (told["display_latency"], told["latency_msec"]) == (shown, ms)


def test_what_is_left_of_a_retention_is_whole_seconds(url: str) -> None:
    site = FastqWeb(url, auth=None).site
    with Client(url) as client:
        info = client.enqueue("t", retention=60)
    done = replace(info, state=TaskState.COMPLETED, completed_at=datetime.now(UTC) - timedelta(hours=1))
    assert -3_600 < task_json(site, done)["ttl_seconds"] <= -3_540
    assert task_json(site, info)["ttl_seconds"] == 0


def test_only_what_go_prints_is_text() -> None:
    assert [printable_text(data) for data in (b"a b", "é".encode(), b"", b"  ", b"a\nb", b"\xff")] == [
        "a b", "é", *["non-printable bytes"] * 4,
    ]  # fmt: skip

"""Lanes shared with a real asynq: its producers fill them by ``asynq.Group``, and its servers leave them alone.

Unless they have a ``GroupAggregator``: that is the danger which docs/lanes.md and ``fastq doctor`` name.
"""

import json
import signal
from base64 import b64decode
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from fastq import Client
from fastq.inspector.doctor import lanes
from tests.cli.commands import Fastq
from tests.e2e.harness import Workers
from tests.e2e.test_death import SHORT
from tests.e2e.view import View
from tests.interop.peer import SECOND_NS, GoPeer
from tests.interop.records import GoOptions, GoTask
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

SOON_NS = SECOND_NS // 100


@pytest.fixture
def fastq(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastq:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(lanes, "SWEPT_S", 0.0)
    return Fastq(redis_url)


def limit(url: str, lane: str | None, concurrency: int, order: Literal["strict"] | None = None) -> None:
    with Client(url) as client:
        client.set_limit("default", lane, concurrency=concurrency, order=order)


def fill(go: GoPeer, lane: str, count: int) -> None:
    for number in range(count):
        go.enqueue(GoTask("wait", f"{number}".encode(), None, {"group": lane, "task_id": f"{lane}-{number}"}))


def groups(go: GoPeer) -> dict[str, int]:
    return {group["group"]: group["size"] for group in go.inspect("Groups", "default")}


def warning_of_lanes(fastq: Fastq) -> str:
    found = json.loads(fastq.run("doctor", "--json").stdout)["checks"]
    (one,) = [one for one in found if (one["check"], one["level"]) == ("lanes", "warning")]
    return f"{one['seen']}: {one['why']}"


def have_told(view: View, count: int) -> bool:
    return len(view.events_so_far()) >= count


def have_started(view: View, count: int) -> None:
    wait_until(lambda: view.events_so_far().count("started") == count)


def have_been_acked(view: View, ended: int, of: int) -> None:
    wait_until(lambda: len(view.db.keys("asynq:{default}:t:*")) == of - ended)


def test_tasks_of_a_go_producers_group_run_under_the_limit(
    go: GoPeer, redis_url: str, workers: Workers, view: View
) -> None:
    limit(redis_url, "acme", 2)
    fill(go, "acme", 6)
    worker = workers.start("--concurrency", "4").is_ready()
    for ended in range(6):
        due = min(6, ended + 2)
        have_started(view, due)
        go.enqueue(GoTask("ok", b"", None, {"task_id": f"beside-{ended}"}))
        view.until("", f"beside-{ended}")  # the worker had room, and took what it might
        have_been_acked(view, ended, 6)
        assert go.inspect("GetQueueInfo", "default")["active"] == due - ended
        assert groups(go) == ({"acme": 6 - due} if due < 6 else {})
        view.open()
    wait_until(lambda: not view.db.keys("asynq:{default}:t:*"))
    assert not view.db.keys("asynq:{default}:h:*")
    assert worker.stop() == 0, worker.text


def test_a_go_server_leaves_lanes_alone_and_brings_their_retries_back(
    go: GoPeer, redis_url: str, workers: Workers, view: View, fastq: Fastq
) -> None:
    limit(redis_url, "acme", 1)
    go.enqueue(GoTask("fail", b'"no"', None, {"group": "acme", "task_id": "failed"}))
    worker = workers.start("--retry-delay", "tests.e2e.apps:quick_retry", "--delayed-task-check-interval", "3600")
    view.until("retry", "failed")
    assert worker.stop() == 0, worker.text
    fill(go, "acme", 3)
    with go.server(queues={"default": 1}, task_check_ns=SOON_NS, delayed_task_check_ns=SOON_NS):
        view.until("aggregating", "failed")
        go.enqueue(GoTask("plain"))
        (run,) = go.executions(finished=1)
        assert (run.type, groups(go)) == ("plain", {"acme": 4})
        told = warning_of_lanes(fastq)
        assert told.startswith("1 of the 1 servers of this queue, which has lanes, are asynq servers")
        worker = workers.start("--concurrency", "2").is_ready()
        have_started(view, 1)
        view.open(times=3)
        wait_until(lambda: "acme" not in groups(go))
        assert worker.stop() == 0, worker.text
    assert [run.type for run in go.executions()] == ["plain"]


def test_a_go_server_with_an_aggregator_combines_a_lane_and_is_named_before(
    go: GoPeer, redis_url: str, view: View, fastq: Fastq
) -> None:
    """It is not wanted, only known: nothing in Redis keeps a Go server from it."""
    limit(redis_url, "acme", 1)
    aggregator = {"grace_ns": SECOND_NS, "type": "bundle"}
    with go.server(groups=aggregator, task_check_ns=SOON_NS):
        go.enqueue(GoTask("plain"))
        assert "one with a GroupAggregator combines all that wait in a lane" in warning_of_lanes(fastq)
        fill(go, "acme", 3)
        _, run = go.executions(finished=2)
    assert run.type == "bundle"
    parts = json.loads(run.payload or b"")["tasks"]
    assert [b64decode(part["payload"]) for part in parts] == [b"0", b"1", b"2"]
    assert (groups(go), view.db.keys("asynq:{default}:t:*")) == ({}, [])


def test_a_go_server_goes_beyond_the_limit_of_a_queue_and_ours_count_what_it_runs(
    go: GoPeer, redis_url: str, workers: Workers, view: View, fastq: Fastq
) -> None:
    limit(redis_url, None, 2)
    waits = b'{"do": "wait", "gate": "g"}'
    with go.server(queues={"default": 1}, concurrency=3, task_check_ns=SOON_NS):
        for _ in range(3):
            go.enqueue(GoTask("of go", waits))
        go.executions(started=3)
        assert "start tasks beyond it" in warning_of_lanes(fastq)
        go.enqueue(GoTask("ok", b"", None, {"task_id": "ours"}))
        worker = workers.start("--concurrency", "2").is_ready()
        wait_until(lambda: bool(view.db.zscore("asynq:{default}:full", "")))  # it has asked, and found the queue full
        assert go.inspect("GetQueueInfo", "default")["pending"] == 1
        go.request("release", gate="g")
        go.executions(finished=3)
    view.until("", "ours")
    assert worker.stop() == 0, worker.text


def test_sequences_of_a_go_producer_keep_their_order_while_servers_are_killed(
    go: GoPeer, redis_url: str, workers: Workers, view: View
) -> None:
    """Told by the handlers, each at its begin; the Go producer's ids say in which order the tasks were enqueued."""
    limit(redis_url, "*", 1, order="strict")
    fails, names = (1, 0, 0, 2, 0), ("acme", "other", "third")
    for number, times in enumerate(fails * 2):
        for lane in names:
            options: GoOptions = {"group": lane, "task_id": f"{lane}-{number:02}"}
            go.enqueue(GoTask("stumble", b"%d" % times, None, options))
    quick = {"retry_delay": "tests.e2e.apps:quick_retry", "delayed_task_check_interval": 0.05, "concurrency": 2}
    serving = [workers.start_timed(SHORT, **quick).is_ready() for _ in range(2)]
    for kills in range(1, 4):
        wait_until(partial(have_told, view, kills * 9))
        serving.pop(0).signal(signal.SIGKILL)
        serving.append(workers.start_timed(SHORT, **quick).is_ready())
    wait_until(lambda: not view.db.keys("asynq:{default}:t:*"))
    told = view.events()
    for lane in names:
        begun = [event.task_id for event in told if event.task_id.startswith(lane)]
        assert begun == sorted(begun), "one passed another"
        assert len(set(begun)) == len(fails) * 2
        assert len(begun) >= (len(fails) + sum(fails)) * 2
    for worker in serving:
        assert worker.stop() == 0, worker.text

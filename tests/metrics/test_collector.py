"""The queues of Redis as metrics: asynq's names and values, one broken queue, Redis away, and how often it is asked."""

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families as read_prometheus
from redis import Redis

from fastq import Client, Inspector, SchedulerEntry, WorkerInfo
from fastq.metrics import QueueCollector
from fastq.wire import keys
from tests.cli.commands import NOWHERE, fill
from tests.cli.dash.scene import publish_entries, publish_server
from tests.inspector.harness import Seeded
from tests.promtool import promtool

generate_openmetrics: Any = exposition.generate_latest
read_openmetrics: Any = parser.text_string_to_metric_families


@pytest.fixture(autouse=True)
def _keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time pass between a look at one format and at the other."""
    monkeypatch.setattr("fastq.metrics.collector.KEPT_S", 1e6)


@pytest.fixture
def inspector(db: Redis, url: str) -> Iterator[Inspector]:
    fill(db, url)
    with Inspector(url) as inspector:
        yield inspector


def samples(registry: CollectorRegistry) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values by name and by the values of their labels; the same in both formats."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    both: Any = [
        *read_prometheus(as_text(registry)),
        *read_openmetrics(generate_openmetrics(registry).decode()),
    ]
    for sample in (one for family in both for one in family.samples):
        values = found.setdefault(sample.name, {})
        assert values.setdefault(tuple(sample.labels.values()), sample.value) == sample.value
    return found


def as_text(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def registered(inspector: Inspector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(QueueCollector(inspector))
    return registry


def test_prometheus_finds_fault_with_the_names_of_asynq_only(inspector: Inspector) -> None:
    said = promtool("check", "metrics", text=as_text(registered(inspector))).splitlines()
    odd = ("asynq_queue_paused_total", "asynq_tasks_enqueued_total")
    assert said == [f'{name} non-counter metrics should not have "_total" suffix' for name in odd]


def test_the_metrics_of_asynq_have_its_names_and_values(inspector: Inspector) -> None:
    found = samples(registered(inspector))
    states = found["asynq_tasks_enqueued_total"]
    assert {state: n for (queue, state), n in states.items() if queue == "default"} == {
        "pending": 3,
        "active": 2,
        "scheduled": 2,
        "retry": 1,
        "archived": 1,
        "completed": 1,
        "aggregating": 2,
    }
    assert found["asynq_queue_size"]["default",] == sum(n for (queue, _), n in states.items() if queue == "default")
    assert found["asynq_tasks_processed_total"]["default",] == 1040
    assert found["asynq_tasks_failed_total"]["default",] == 110
    assert found["asynq_queue_paused_total"] == {("critical",): 0, ("default",): 0, ("low",): 1}
    assert found["asynq_queue_latency_seconds"]["default",] > 0
    assert found["asynq_queue_memory_usage_approx_bytes"]["default",] > 0
    assert found["fastq_queue_groups"]["default",] == 1
    assert found["fastq_queue_orphaned"]["default",] == 1  # the lease of a2 has expired
    assert found["fastq_queue_oldest_scheduled_seconds"]["default",] == 0
    assert found["fastq_queue_servers"] == {("critical",): 0, ("default",): 0, ("low",): 0}
    assert found["fastq_queue_unreadable"] == {("critical",): 0, ("default",): 0, ("low",): 0}
    assert found["fastq_scheduler_entries"] == {(): 0}
    assert found["fastq_exporter_redis_up"] == {(): 1}


def test_lanes_are_counted_by_pool(db: Redis, inspector: Inspector) -> None:
    low = Seeded(db, "low")
    rules: Any = {"openai:*": "9:0:1:1", "free:*": "0:9:1:1", "acme": "1:0:1:1"}
    db.hset(keys.limits("low"), mapping=rules)
    for lane, size in {"openai:a": 2, "openai:b": 3, "acme": 4, "mails": 5, "free:x": 6, "gone:x": 7}.items():
        low.group(lane, {f"{lane}-{n}": 1.0 for n in range(size)})
    db.sadd(keys.held("low", "openai:*"), "r1", "r2")
    found = samples(registered(inspector))
    waiting = {("openai", "low"): 5, ("free", "low"): 6, ("", "low"): 4}
    assert found["fastq_lane_tasks_waiting"] == waiting, "the others are groups"
    assert found["fastq_lane_tasks_running"] == {("openai", "low"): 2}
    db.hset(keys.limits("low"), "*", "1:0:1:1")
    assert samples(registered(inspector))["fastq_lane_tasks_waiting"]["", "low"] == 16


def test_tasks_that_are_due_and_not_moved_show(db: Redis, inspector: Inspector) -> None:
    now_s = int(time.time())
    Seeded(db).add("scheduled", {"late": now_s - 50})
    Seeded(db).add("retry", {"later": now_s - 100})
    Seeded(db, "low").add("retry", {"broken": float("-inf")})
    found = samples(registered(inspector))["fastq_queue_oldest_scheduled_seconds"]
    assert 100 <= found["default",] < 1000
    assert found["low",] > 1e9


def test_servers_and_the_tasks_that_they_run_tell_how_long_the_backlog_takes(
    db: Redis, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = 1000.0
    monkeypatch.setattr("fastq.metrics.collector.KEPT_S", 0.0)
    monkeypatch.setattr("fastq.metrics.collector.KEPT_READS", 0.0)
    monkeypatch.setattr("fastq.metrics.collector.time.monotonic", lambda: clock_s)
    collector = QueueCollector(inspector)

    def value(name: str) -> float:
        found = [sample for metric in collector.collect() for sample in metric.samples]
        return next(one.value for one in found if one.name == name and one.labels == {"queue": "default"})

    assert value("fastq_queue_servers") == 0
    assert value("fastq_queue_backlog_seconds") > 0  # as long as the oldest has waited: nobody knows more
    began = datetime.now(UTC)
    workers = [WorkerInfo("h", 1, "s", f"t{n}", "t", b"", "default", began, None) for n in range(6)]
    publish_server(db, "s", "h", workers, concurrency=8)
    assert value("fastq_queue_servers") == 1
    db.incrby(keys.processed_total("default"), 30)
    clock_s += 10  # six ran at once for 10 s, and 30 ended: each ran for 2 s
    assert value("fastq_queue_backlog_seconds") == pytest.approx(3 * 2 / 8)


def test_ticks_of_schedulers_show_by_type_and_spec(db: Redis, inspector: Inspector) -> None:
    ticked = [("a", 4000), ("a", 5000), ("b", 6000), ("c", None)]
    moments = [(kind, None if at is None else datetime.fromtimestamp(at, UTC)) for kind, at in ticked]
    publish_entries(
        db, *(SchedulerEntry(f"{n}", "@daily", kind, b"", (), None, at) for n, (kind, at) in enumerate(moments))
    )
    found = samples(registered(inspector))
    assert found["fastq_scheduler_last_tick_timestamp_seconds"] == {("@daily", "a"): 5000, ("@daily", "b"): 6000}


def test_ticks_are_counted_from_zero_for_each_entry_and_go_on_without_a_scheduler(
    db: Redis, inspector: Inspector
) -> None:
    db.hset(keys.scheduler_ticks(), mapping={"enqueued:old": 40, "missed:old": 3})
    publish_entries(db, SchedulerEntry("1", "@daily", "new", b"", (), None, None))
    outcomes = ("enqueued", "duplicate", "failed", "missed")
    assert samples(registered(inspector))["fastq_scheduler_ticks_total"] == {
        **{(outcome, "new"): 0 for outcome in outcomes},
        **dict(zip(((outcome, "old") for outcome in outcomes), (40, 0, 0, 3), strict=True)),
    }


def test_entries_of_schedulers_that_are_due_and_not_enqueued_show(db: Redis, inspector: Inspector) -> None:
    now = datetime.now(UTC)
    due = [now + timedelta(hours=1), now - timedelta(seconds=100), None]
    publish_entries(db, *(SchedulerEntry(f"{n}", "@daily", "t", b"", (), at, None) for n, at in enumerate(due)))
    found = samples(registered(inspector))
    assert found["fastq_scheduler_entries"] == {(): 3}
    assert 100 <= found["fastq_scheduler_late_seconds"][()] < 1000


@pytest.mark.parametrize("key", [keys.pending("low"), keys.processed_total("low")])
def test_a_queue_that_cannot_be_read_is_left_out_counted_and_named(
    db: Redis, inspector: Inspector, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    db.set(key, "neither list nor number")
    with caplog.at_level(logging.WARNING, "fastq.metrics"):
        found = samples(registered(inspector))
    assert found["asynq_queue_size"].keys() == {("critical",), ("default",)}
    assert found["fastq_queue_unreadable"] == {("critical",): 0, ("default",): 0, ("low",): 1}
    assert found["fastq_exporter_failures_total"] == {(): 1}
    assert found["fastq_exporter_redis_up"] == {(): 1}
    assert [text for text in caplog.messages if text.startswith("cannot read queue low, ")]


def test_a_queue_whose_name_is_no_text_hides_itself_only(
    db: Redis, inspector: Inspector, caplog: pytest.LogCaptureFixture
) -> None:
    db.sadd("asynq:queues", b"odd\xff")
    found = samples(registered(inspector))
    assert "cannot read queue odd\\xff, " in caplog.text
    assert caplog.text.encode()  # what is no text could not be written to a log, either
    assert found["fastq_queue_unreadable"]["odd\\xff",] == 1
    assert found["asynq_queue_size"]["default",] > 0


def test_a_queue_that_stays_unreadable_is_counted_each_time_logged_once_and_read_last(
    db: Redis, inspector: Inspector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fastq.metrics.collector.KEPT_S", 0.0)
    monkeypatch.setattr("fastq.metrics.collector.KEPT_READS", 0.0)
    collector = QueueCollector(inspector)
    db.set(keys.pending("critical"), "no list")
    with caplog.at_level(logging.WARNING, "fastq.metrics"):
        for _ in range(3):
            shown = {metric.name: metric for metric in collector.collect()}
    assert shown["fastq_exporter_failures"].samples[0].value == 3
    assert len(caplog.messages) == 1
    monkeypatch.setattr("fastq.metrics.collector.MOST_S", -1.0)  # no time is left for any queue
    shown = {metric.name: metric for metric in collector.collect()}
    unreadable = [sample.labels["queue"] for sample in shown["fastq_queue_unreadable"].samples if sample.value]
    assert unreadable == ["default", "low", "critical"]


@pytest.mark.parametrize(
    ("key", "lacking"),
    [
        (keys.all_servers(), "fastq_queue_servers"),
        (keys.all_schedulers(), "fastq_scheduler_entries"),
        (keys.scheduler_ticks(), "fastq_scheduler_ticks_total"),
    ],
)
def test_queues_are_shown_though_servers_or_schedulers_cannot_be_read(
    db: Redis, inspector: Inspector, key: str, lacking: str
) -> None:
    publish_entries(db, SchedulerEntry("1", "@daily", "t", b"", (), None, None))
    assert lacking in samples(registered(inspector))
    db.set(key, "no set")
    found = samples(registered(inspector))
    assert lacking not in found
    assert len(found["asynq_queue_size"]) == 3
    assert found["fastq_exporter_failures_total"] == {(): 1}


def test_redis_is_asked_once_in_five_seconds(
    db: Redis, url: str, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = registered(inspector)
    before = samples(registry)["asynq_queue_size"]
    with Client(url) as client:
        client.enqueue("one more")
    assert samples(registry)["asynq_queue_size"] == before
    monkeypatch.setattr("fastq.metrics.collector.KEPT_S", 0.0)
    monkeypatch.setattr("fastq.metrics.collector.KEPT_READS", 1e9)
    assert samples(registry)["asynq_queue_size"] == before  # it took longer than a billionth of this
    monkeypatch.setattr("fastq.metrics.collector.KEPT_READS", 0.0)
    assert f'asynq_queue_size{{queue="default"}} {before["default",] + 1}\n' in as_text(registry)


def test_without_redis_the_exporter_says_so(inspector: Inspector) -> None:
    with Inspector(NOWHERE) as nowhere:
        found = samples(registered(nowhere))
    assert found == {
        "fastq_exporter_redis_up": {(): 0},
        "fastq_exporter_failures_total": {(): 1},
        "fastq_exporter_read_seconds": {(): 0},
    }

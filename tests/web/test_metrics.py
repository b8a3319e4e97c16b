"""``/metrics``: what Prometheus scrapes, who may, and that nothing waits for it."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.openmetrics import parser
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis
from starlette.requests import Request

from fastq import Client
from fastq.web import FastqWeb, User
from tests.promtool import promtool
from tests.redis_servers import redis_server
from tests.waiting import wait_until
from tests.web.serving import Answer, Served, serving

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def by_header(request: Request) -> User | None:
    """Let a header say who asks."""
    rights = request.headers.get("x-rights")
    return None if rights is None else User.of("prom", rights)


@pytest.fixture
def scraped(url: str, db: Redis) -> Iterator[Served]:
    with Client(url) as client:
        for queue in ("mail", "mails", "bank"):
            client.enqueue("t", queue=queue)
    with serving(FastqWeb(url, auth=by_header, metrics=True)) as served:
        yield served


def names(answer: Answer, label: str = "queue") -> set[str]:
    assert answer.status == 200, answer.text
    families: Any = text_string_to_metric_families(answer.text)
    return {sample.labels.get(label, "") for family in families for sample in family.samples}


def test_metrics_are_read_by_whoever_may_look_at_the_queues(scraped: Served) -> None:
    assert scraped.get("/metrics").status == 401
    told = scraped.get("/metrics", X_Rights="viewer")
    assert told.headers["content-type"].startswith("text/plain; version=")
    assert names(told) == {"mail", "mails", "bank", ""}
    assert 'asynq_tasks_enqueued_total{queue="mail",state="pending"} 1.0' in told.text
    assert "process_resident_memory_bytes" in told.text
    promtool("check", "metrics", text=told.text)
    open_told = scraped.get("/metrics", X_Rights="viewer", Accept=OPENMETRICS)
    assert open_told.headers["content-type"].startswith("application/openmetrics-text")
    read: Any = parser.text_string_to_metric_families
    assert any(family.name == "fastq_exporter_redis_up" for family in read(open_told.text))
    for odd in (
        "application/openmetrics-text; version=x",
        "text/plain; version=..",
        "*/*",
        "\x01",
        f"{OPENMETRICS}{'9' * 5_000}",
    ):
        assert names(scraped.get("/metrics", X_Rights="viewer", Accept=odd)) == {"mail", "mails", "bank", ""}
    head = scraped.ask("HEAD", "/metrics", X_Rights="viewer")
    assert (head.status, head.headers["cache-control"]) == (200, "no-store")
    assert scraped.ask("POST", "/metrics", X_Rights="admin").status == 405
    assert scraped.get("/metrics", X_Rights="admin", Host="evil.example").status == 403
    assert scraped.get("/metrics", X_Rights="admin", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors").status == 403


def test_who_sees_some_queues_reads_their_metrics_only(scraped: Served, url: str) -> None:
    told = scraped.get("/metrics", X_Rights="viewer@mail*")
    assert names(told) == {"mail", "mails", ""}
    assert "fastq_exporter_redis_up 1.0" in told.text
    assert "process_resident_memory_bytes " not in told.text
    with serving(FastqWeb(url, queues=["bank"], metrics=True, auth=None)) as served:
        assert names(served.get("/metrics")) == {"bank", ""}


def test_it_may_be_closed_twice(url: str) -> None:
    async def close_twice() -> None:
        app = FastqWeb(url, metrics=True, auth=None)
        await app.close()
        await app.close()

    asyncio.run(close_twice())


def test_without_the_option_there_are_none(url: str, db: Redis) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        answer = served.get("/metrics")
        assert (answer.status, "--enable-metrics-exporter" in answer.text) == (404, True)


def test_a_queue_that_cannot_be_read_or_written_hides_itself_only(url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="good")
    db.sadd("asynq:queues", "bad", b"odd\xff")
    db.set("asynq:{bad}:pending", "no list")
    with serving(FastqWeb(url, metrics=True, auth=None)) as served:
        told = served.get("/metrics")
    assert names(told) == {"good", "bad", "odd\\xff", ""}
    assert 'fastq_queue_unreadable{queue="bad"} 1.0' in told.text
    assert 'asynq_queue_size{queue="good"} 1.0' in told.text


def test_each_redis_has_its_own(url: str, db: Redis) -> None:
    with redis_server() as other:
        for at, queue in ((url, "here"), (other.url, "there")):
            with Client(at) as client:
                client.enqueue("t", queue=queue)
        with serving(FastqWeb(url, also={"staging": other.url}, metrics=True, auth=None)) as served:
            assert names(served.get("/metrics")) == {"here", ""}
            assert names(served.get("/@staging/metrics")) == {"there", ""}


def test_nothing_waits_for_metrics_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.web.metrics.LIMIT_S", 0.2)
    with redis_server() as redis, serving(FastqWeb(redis.url, metrics=True, auth=None)) as served:
        redis.process.send_signal(signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(12) as scrapers:
                statuses = list(scrapers.map(lambda _: served.get("/metrics").status, range(12)))
            assert set(statuses) == {503}
            assert served.get("/settings").status == 200
            assert sum(thread.name.startswith("metrics") for thread in threading.enumerate()) == 1
        finally:
            redis.process.send_signal(signal.SIGCONT)
        wait_until(lambda: served.get("/metrics").status == 200)


def test_a_redis_that_is_down_is_a_metric(url: str, db: Redis) -> None:
    with serving(FastqWeb("redis://127.0.0.1:1/0", metrics=True, auth=None)) as served:
        assert "fastq_exporter_redis_up 0.0" in served.get("/metrics").text

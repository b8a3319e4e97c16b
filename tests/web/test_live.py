"""Open pages are brought up to date: one look at Redis for all viewers, none without viewers."""

import asyncio
import gzip
import http.client
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from redis import Redis

from fastq import Client
from fastq.web import FastqWeb
from fastq.web.live import Live, TroubleError, changed
from tests.redis_servers import redis_server
from tests.waiting import PATIENCE_S, wait_until
from tests.web.serving import Served, serving


@contextmanager
def stream(served: Served, page: str) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """Open the stream of a page; gives its events."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
    connection.request("GET", f"/events?of={quote(page)}")
    reply = connection.getresponse()
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-store"

    def events() -> Iterator[tuple[str, dict[str, Any]]]:
        name = ""
        while line := reply.readline().decode():
            if line.startswith("event: "):
                name = line.removeprefix("event: ").strip()
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))

    try:
        yield events()
    finally:
        reply.close()
        connection.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.web.live.TICK_S", 0.02)
    monkeypatch.setattr("fastq.web.live.REST", 1)


def test_an_open_page_gets_the_parts_that_change_and_nothing_else(url: str, db: Redis) -> None:
    app = FastqWeb(url, auth=None)
    with Client(url) as client, serving(app) as served:
        client.enqueue("t", queue="q", task_id="first", process_in=3_600)
        with stream(served, "/queues/q/scheduled?size=5") as events, stream(served, "/queues/q/pending") as others:
            name, first = next(events)
            assert (name, sorted(first["parts"])) == ("parts", ["facts", "tasks"])
            assert "first" in first["parts"]["tasks"]
            assert "No pending tasks" in next(others)[1]["parts"]["tasks"]
            client.enqueue("t", queue="q", task_id="second", process_in=3_600)
            while "second" not in next(events)[1]["parts"].get("tasks", ""):
                pass
            assert next(others)[1]["parts"].keys() == {"facts"}  # its own list has not changed
            assert app.site.live.viewers == 2
        wait_until(lambda: app.site.live.viewers == 0)
        wait_until(lambda: app.site.live._poller is not None and app.site.live._poller.done())
        for page in ("/nowhere", "/queues/q/tasks/x/payload", "/api/queues", "https://example.com/"):
            assert served.get(f"/events?of={quote(page)}").status == 404


def test_a_redis_that_is_down_is_told_and_found_again() -> None:
    with (
        redis_server() as redis,
        redis.client() as db,
        serving(FastqWeb(redis.url, auth=None)) as served,
        stream(served, "/") as events,
    ):
        assert "There are no queues yet" in next(events)[1]["parts"]["queues"]
        db.ping()
        away = f"{redis.socket_path}.away"
        os.rename(redis.socket_path, away)
        db.client_kill_filter(_type="normal", skipme=True)
        name, told = next(events)
        assert name == "trouble"
        assert "Redis does not answer" in told["text"]
        os.rename(away, redis.socket_path)
        with Client(redis.url) as client:
            client.enqueue("t", queue="back")
        while (event := next(events))[0] != "parts" or "back" not in event[1]["parts"].get("queues", ""):
            pass


def test_fifty_viewers_cost_what_one_does() -> None:
    asyncio.run(_fifty_viewers())


async def _fifty_viewers() -> None:
    live, renders, value = Live(), 0, "a"

    async def render() -> Mapping[str, str]:
        nonlocal renders
        renders += 1
        if value == "trouble":
            raise TroubleError("it rains")
        return {"changing": value, "still": f'<time datetime="x">{renders}s ago</time>'}

    watched = [live.watch("page", render) for _ in range(50)]
    seen = [await _event(each) for each in watched]
    assert {event["parts"]["changing"] for event in seen} == {"a"}
    before, value = renders, "b"
    seen = [await _event(each) for each in watched]
    # The time is renewed by browsers; and a viewer is woken once, however often the page was rendered meanwhile.
    assert [event["parts"] for event in seen] == [{"changing": "b"}] * 50
    assert renders - before < 10
    late = live.watch("page", render)
    assert (await _event(late))["parts"]["changing"] == "b"
    value = "trouble"
    assert (await _event(late))["text"] == "it rains"
    for each in [*watched, late]:
        await each.aclose()  # type: ignore[attr-defined]  # an async generator
    assert live.viewers == 0
    poller = live._poller
    assert poller is not None
    await poller
    after = renders
    await asyncio.sleep(0)
    assert renders == after
    await live.close()


def test_one_user_does_not_take_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.web.live.MOST_OF_A_USER", 2)
    monkeypatch.setattr("fastq.web.live.MOST_VIEWERS", 5)

    async def look() -> None:
        live = Live()

        async def render() -> Mapping[str, str]:
            return {"a": "b"}

        async def open_stream(user: str) -> Any:
            watched = live.watch("page", render, user=user)
            await _event(watched)
            return watched

        streams = [await open_stream(user) for user in ("ann", "ann", "", "")]
        assert [live.is_full(user) for user in ("ann", "ben", "")] == [True, False, False]
        streams.append(await open_stream("ben"))
        assert [live.is_full(user) for user in ("ben", "")] == [True, True]
        for each in streams:
            await each.aclose()
        await live.close()

    asyncio.run(look())


def test_rows_that_have_not_changed_are_sent_as_their_numbers() -> None:
    def table(*rows: str) -> str:
        return "<tbody>" + "".join(f'<tr data-key="{row[0]}"><td>{row}</td></tr>' for row in rows) + "</tbody>"

    before = table("a1", 'b<time datetime="x">1s</time>', "c1")
    after = table("c1", "a2", 'b<time datetime="x">3s</time>')
    assert changed(before, "") == before
    assert changed(after, before) == (
        '<tbody><tr data-same="2"></tr><tr data-key="a"><td>a2</td></tr><tr data-same="1"></tr></tbody>'
    )


def test_what_is_sent_of_a_table_is_what_this_viewer_lacks(url: str) -> None:
    with Client(url) as client, serving(FastqWeb(url, auth=None)) as served:
        for n in range(30):
            client.enqueue("t", queue=f"q{n:02}")
        with stream(served, "/") as events:
            whole = next(events)[1]["parts"]["queues"]
            client.enqueue("t", queue="q07")
            while "q07" not in (part := next(events)[1]["parts"].get("queues", "")):
                pass
            assert (part.count("<tr data-key="), part.count("<tr data-same=")) == (1, 29)
            assert len(part) < len(whole) / 10
            with stream(served, "/") as late:
                assert next(late)[1]["parts"]["queues"].count("<tr data-key=") == 30


def test_pages_and_streams_are_compressed_for_browsers_that_take_it(url: str) -> None:
    with Client(url) as client, serving(FastqWeb(url, auth=None)) as served:
        for n in range(30):
            client.enqueue("t", queue=f"q{n:02}")
        plain, packed = served.get("/"), served.get("/", accept_encoding="br, gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
        assert len(packed.body) < len(plain.body) / 6
        assert gzip.decompress(packed.body).count(b"<tr data-key=") == 30
        for none in ("identity", "gzip;q=0", "x-gzip"):
            assert "content-encoding" not in served.get("/", accept_encoding=none).headers
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
        connection.request("GET", "/events?of=/", headers={"accept-encoding": "gzip"})
        reply = connection.getresponse()
        assert reply.headers["content-encoding"] == "gzip"
        unpacker, text = zlib.decompressobj(31), b""
        while b"event: parts" not in text or not text.endswith(b"\n\n"):
            text += unpacker.decompress(reply.read1())
        assert text.count(b"<tr data-key=") == 30
        reply.close()
        connection.close()


async def _event(watched: Any) -> dict[str, Any]:
    async for text in watched:
        if text.startswith("event: "):
            data: dict[str, Any] = json.loads(text.partition("data: ")[2])
            return data
    raise AssertionError("the stream has ended")

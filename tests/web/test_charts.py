"""The charts of Prometheus' series, from a real Prometheus; and what is said where there is none, or a wrong one."""

import base64
import http.server
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest
from redis import Redis
from starlette.requests import Request

from fastq import Client, Task
from fastq.web import FastqWeb, User, charts
from fastq.web.prometheus import Times
from fastq.wire import keys
from tests.waiting import PATIENCE_S, wait_until
from tests.web.prometheus import prometheus
from tests.web.scene import HOSTILE_QUEUE
from tests.web.serving import serving
from tests.web.test_pages import text_of

PAGE = "/history/prometheus"
ODD = ('a",queue!="x', "a|bank", "b\\", "line\nbreak", ".*", "é ü", "a,b", HOSTILE_QUEUE)
TITLES = {"Runs", "Failed runs", "Errors", "Tasks", "Latency", "Memory", "Pending", "Retry", "Archived"}
CREDENTIALS = "authorization: {credentials: secret}"


def by_header(request: Request) -> User | None:
    """Let a header say who asks."""
    rights = request.headers.get("x-rights")
    if request.headers.get("authorization") == "Bearer secret":
        return User.of("prometheus", "viewer")
    return None if rights is None else User.of("ann", rights)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "SETTLE_S", PATIENCE_S)
    monkeypatch.setattr(charts, "KEPT_S", 0.0)
    monkeypatch.setattr("fastq.metrics.collector.KEPT_S", 0.0)
    monkeypatch.setattr("fastq.metrics.collector.KEPT_READS", 0.0)


def legend(text: str) -> dict[str, dict[str, str]]:
    """Return the last value of each queue, by the title of the chart."""
    found = {}
    for section in re.findall(r'<section class="card chart">(.*?)</section>', text, re.DOTALL):
        (title,) = re.findall(r"<h2>([^<]*\w)", section)
        rows = re.findall(r'<li>.*?<a href="[^"]*">([^<]*)</a> <b>([^<]*)</b>', section, re.DOTALL)
        found[title] = {unescape(queue): value for queue, value in rows}
    return found


@pytest.mark.parametrize("auth", [None, by_header])
def test_queues_are_shown_as_prometheus_has_them(url: str, db: Redis, tmp_path: Path, auth: Any) -> None:
    with Client(url) as client:
        for n, queue in enumerate(("bank", "mail", *ODD)):
            client.enqueue_many([Task("t")] * (n + 1), queue=queue)
    with (
        serving(FastqWeb(url, metrics=True, auth=auth)) as scraped,
        prometheus(tmp_path, f"127.0.0.1:{scraped.port}", credentials=CREDENTIALS if auth else "") as server,
        serving(FastqWeb(url, prometheus=server, auth=auth)) as served,
    ):

        def look(**query: str) -> dict[str, dict[str, str]]:
            answer = served.get(f"{PAGE}?{urlencode(query)}", X_Rights="viewer")
            assert answer.status == 200
            assert "<script>" not in answer.text
            return legend(answer.text)

        def has_rates() -> bool:
            db.incrby(keys.processed_total("bank"), 4)
            db.incrby(keys.failed_total("bank"), 1)
            told = look(queue="bank")
            return told.get("Errors", {}).get("bank", "-") not in ("-", "0.00%")

        wait_until(has_rates, interval_s=0.3)
        told = look(queue="bank")
        assert set(told) == TITLES
        assert re.fullmatch(r"[\d.]+/s", told["Runs"]["bank"])
        assert (told["Tasks"], told["Pending"], told["Retry"]) == ({"bank": "1"}, {"bank": "1"}, {"bank": "0"})
        assert told["Memory"]["bank"].endswith("B")
        for n, queue in enumerate(ODD):  # a name is a name, whatever it would be in a query
            assert look(queue=queue)["Pending"] == {queue: f"{n + 3}"}, queue
        everything = look()["Pending"]
        assert len(everything) == charts.MOST_LINES
        assert everything["bank"] == "1"
        for since in charts.SPANS:
            assert "bank" in look(since=since, queue="bank")["Pending"], since
        early = served.get(f"{PAGE}?since=1h&until={int(time.time()) - 90_000}", X_Rights="viewer")
        assert "Prometheus has no series of these queues in this time" in early.text
        path = re.search(r'<a href="([^"]*)">Later</a>', early.text)
        assert path is not None
        assert served.get(unescape(path[1]), X_Rights="viewer").status == 200
        if auth:
            who = {"X_Rights": "viewer@ma*"}
            assert legend(served.get(PAGE, **who).text)["Pending"] == {"mail": "2"}
            assert served.get(f"{PAGE}?queue=bank", **who).status == 404
            raw = served.get(f"/api/metrics?queues={quote(ODD[0])},bank,mail", **who).json
            assert {each["metric"]["queue"] for each in raw["queue_size"]["data"]["result"]} == {"mail"}
            assert "bank" not in json.dumps(raw)


def test_a_bad_question_is_refused_and_without_prometheus_it_is_said(url: str, db: Redis) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        assert "fastq web --prometheus-addr URL names the one" in text_of(served.get(PAGE))
        assert PAGE not in served.get("/history").text
    with serving(FastqWeb(url, prometheus="http://127.0.0.1:1", auth=None)) as served:
        assert f'href="{PAGE}"' in served.get("/history").text
        assert served.get(f"{PAGE}?since=2h").status == 400
        assert served.get(f"{PAGE}?queue=none").status == 404
        assert "There are no queues yet" in text_of(served.get(f"{PAGE}?until={'9' * 5_000}"))
    for wrong in ("localhost:9090", "ftp://x", "http://", "http://me:secret@host:port", "file:///etc/passwd"):
        with pytest.raises(ValueError, match="must be like") as caught:
            FastqWeb(url, prometheus=wrong, auth=None)
        assert "secret" not in str(caught.value)


class Wrong(http.server.BaseHTTPRequestHandler):
    """A server that is no Prometheus; its path says in what way."""

    def do_GET(self) -> None:
        kind = self.path.split("/")[1]
        self.server.asked.append((self.path, self.headers.get("Authorization")))  # type: ignore[attr-defined]  # ours
        if kind == "elsewhere":
            self.send_response(302)
            self.send_header("Location", "/empty/found")
            self.end_headers()
            self.wfile.write(b'{"status": "success", "data": {"result": []}}')
        elif kind == "garbage":
            self.wfile.write(b"\0\1\2 no HTTP\r\n\r\n")
        else:
            bodies = {
                "html": b"<h1>Log in</h1>",
                "odd": b'{"status": "success", "data": {"result": [{"metric": 1}]}}',
                "text": b'{"status": "success", "data": {"result": [{"metric": {}, "values": [[1, "x"]]}]}}',
                "nested": b'{"a": ' * 100_000,
                "large": b'{"status": "success", "a": "' + b"x" * 8_000_000 + b'"}',
                "refuses": b'{"status": "error", "error": "query <timed> out"}',
                "empty": b'{"status": "success", "data": {"result": []}}',
            }
            self.send_response(503 if kind == "refuses" else 200)
            self.end_headers()
            self.wfile.write(bodies[kind])

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def wrong_server() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Wrong) as server:
        server.asked = []  # type: ignore[attr-defined]  # ours
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", server.asked  # type: ignore[attr-defined]  # ours
        finally:
            server.shutdown()
            thread.join()


def test_a_host_that_can_be_no_name_is_told_as_trouble(url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="q")
    with serving(FastqWeb(url, prometheus=f"http://{'a' * 64}.example:9090", auth=None)) as served:
        wait_until(lambda: "label" in text_of(served.get(PAGE)))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("elsewhere", "HTTP status 302: redirects are not followed"),
        ("nested", "HTTP status 200, and no reply of Prometheus"),
        ("large", "the reply has more than 8,000,000 bytes"),
        ("html", "HTTP status 200, and no reply of Prometheus"),
        ("odd", "HTTP status 200, and no reply of Prometheus"),
        ("text", "HTTP status 200, and no reply of Prometheus"),
        ("garbage", "it speaks no HTTP"),
        ("refuses", "query <timed> out"),
        ("empty", "Prometheus has no series of these queues in this time"),
    ],
)
def test_a_server_that_is_none_is_named_without_its_password(
    url: str, db: Redis, path: str, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.web.prometheus.LIMIT_S", PATIENCE_S)
    with Client(url) as client:
        client.enqueue("t", queue="q")
    with wrong_server() as (host, asked):
        app = FastqWeb(url, prometheus=f"http://me:s3cret%21@{host}/{path}/?tenant=a#x", auth=by_header)
        with serving(app) as served:
            for rights, is_told in (("admin", True), ("admin@q", False), ("viewer", False)):
                answer = served.get(PAGE, X_Rights=rights)
                assert answer.status == 200
                assert said in text_of(answer)
                assert (f"http://{host}/{path}" in text_of(answer)) == (is_told and path != "empty")
                assert "s3cret" not in answer.text
            api = served.get("/api/metrics", X_Rights="viewer")
            assert api.status == (500 if path in ("elsewhere", "nested", "large", "html", "garbage") else 200)
            assert "s3cret" not in api.text
    assert "s3cret" not in caplog.text
    sent = f"Basic {base64.b64encode(b'me:s3cret!').decode()}"
    assert {credentials for _, credentials in asked} == {sent}
    assert {urlsplit(each).path for each, _ in asked} == {f"/{path}/api/v1/query_range"}
    assert all(parse_qs(urlsplit(each).query)["tenant"] == ["a"] for each, _ in asked)


def test_one_that_does_not_listen_or_reply_is_said_and_nothing_waits_for_it(
    url: str, db: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with Client(url) as client:
        client.enqueue("t", queue="q")
    with serving(FastqWeb(url, prometheus="http://127.0.0.1:1", auth=None)) as served:
        text = text_of(served.get(PAGE))
        assert "Prometheus at http://127.0.0.1:1 does not answer as it should: Connection refused." in text
    monkeypatch.setattr("fastq.web.prometheus.LIMIT_S", 0.3)
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as silent,
        serving(FastqWeb(url, prometheus=f"http://127.0.0.1:{silent.getsockname()[1]}", auth=None)) as served,
    ):
        monkeypatch.setattr(charts, "SETTLE_S", 0.0)
        assert "Prometheus is being asked" in served.get(PAGE).text
        wait_until(lambda: "no reply within 0.3 s" in served.get(PAGE).text)
        assert served.get("/api/metrics").status == 500
        assert served.get("/").status == 200
    assert caplog.text == ""


def test_lines_are_cut_where_points_are_missing_and_reach_the_top(url: str, db: Redis) -> None:
    times = Times(1_000, 2_000, 10)
    rows = [[1_000, "5"], [1_010, "10"], [1_500, "2.5"], [1_990, "NaN"], [2_000, "0"]]
    body = {"status": "success", "data": {"result": [{"metric": {"queue": "q"}, "values": rows}]}}
    values = charts._values(json.dumps(body).encode(), times)
    chart = charts._chart(charts._ALL[3], values, ["gone", "q"], times)
    (line,) = chart.lines
    assert line.pieces == ("0,50 10,0", "500,75 500,75", "1000,100 1000,100")
    assert (line.queue, line.last, chart.most) == ("q", "0", "10")

"""A whole server that is scraped and probed: one process for all tests of the file, in their order."""

import asyncio
import contextlib
import http.client
import re
import signal
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from fastq import Client
from fastq.server.monitoring.listener import MOST_CONNECTIONS, Listener, _Answer
from tests.e2e.harness import Worker, workers_on
from tests.pool.harness import run
from tests.promtool import promtool
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import PATIENCE_S, until, wait_until

as_openmetrics: Any = read_openmetrics
"""Without types."""


class Site:
    """A server with its Redis, and requests to it."""

    def __init__(self, worker: Worker, redis: RedisServer, heard: list[str]) -> None:
        self.worker, self.redis, self.heard = worker, redis, heard
        worker.wait_for("/metrics")
        found = re.search(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", worker.text)
        assert found
        self.port = int(found[1])

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def says(self, path: str) -> tuple[int, str]:
        status, _, text = self.ask(path)
        return status, text.strip()

    def samples(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Return the values by name and by the values of their labels."""
        found: dict[str, dict[tuple[str, ...], float]] = {}
        parsed: Any = read_prometheus(self.ask("/metrics")[2])
        for family in parsed:
            for sample in family.samples:
                found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("workers")) as site:
        yield site


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """A site for a test that counts from the start, or that leaves it in another state."""
    with open_site(tmp_path, "--retry-delay", "tests.e2e.apps:late_retry") as site:
        yield site


@contextlib.contextmanager
def open_site(directory: Path, *more: str) -> Iterator[Site]:
    with redis_server() as redis, workers_on(redis.url, directory) as workers, listening(directory) as heard:
        flags = "--metrics-listen", "127.0.0.1:0", "--concurrency", "2", "--queues", "default,low", *more
        worker = workers.start(*flags, env={"NOTIFY_SOCKET": str(directory / "notify"), "WATCHDOG_USEC": "200000"})
        yield Site(worker, redis, heard)


@contextlib.contextmanager
def listening(directory: Path) -> Iterator[list[str]]:
    """Hear what systemd would."""
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(directory / "notify"))

        def listen() -> None:
            while (words := ear.recv(1000).decode()) != "enough":
                heard.append(words)

        thread = threading.Thread(target=listen)
        thread.start()
        yield heard
        ear.sendto(b"enough", str(directory / "notify"))
        thread.join()


def test_a_server_is_healthy_at_once_and_ready_when_it_fetches(site: Site) -> None:
    assert site.says("/healthz") == (200, "ok")
    site.worker.is_ready()
    wait_until(lambda: site.says("/readyz") == (200, "ok"))
    wait_until(lambda: "READY=1" in site.heard)
    assert "STOPPING=1" not in site.heard


def test_tasks_are_counted_by_queue_pattern_and_outcome(own_site: Site) -> None:
    with Client(own_site.redis.url) as client:
        for number in range(20):
            client.enqueue(f"ok:{number}")
        client.enqueue("ok", queue="low", retention=60)
        client.enqueue("revoke")
        client.enqueue("fail", 1)
        client.enqueue("fail", 1, max_retry=0)
        client.enqueue("then what", max_retry=0)
    ends = {
        ("default", "ok", "done"): 20,
        ("low", "ok", "completed"): 1,
        ("default", "revoke", "deleted"): 1,
        ("default", "fail", "retried"): 1,
        ("default", "fail", "archived"): 1,
        ("default", "unknown", "archived"): 1,
    }

    def ended() -> dict[tuple[str, ...], float]:
        found = own_site.samples().get("fastq_tasks_total", {})
        return {labels: n for labels, n in found.items() if labels[-1] != "requeued"}  # by a busy machine

    wait_until(lambda: ended() == ends)
    samples = own_site.samples()
    assert samples["fastq_task_failures_total"] == {
        ("default", "revoke", "revoked"): 1,
        ("default", "fail", "error"): 2,
        ("default", "unknown", "not_found"): 1,
    }
    assert samples["fastq_task_run_seconds_count"]["default", "ok"] == 20
    attempts = {labels: n for labels, n in samples["fastq_task_attempts_count"].items() if n}
    assert attempts == {
        **dict.fromkeys((("low", "ok"), ("default", "revoke"), ("default", "fail")), 1),
        **{("default", "ok"): 20, ("default", "unknown"): 1},
    }
    assert samples["fastq_tasks_lost_total"]["default", "ok"] == 0
    for each in ("fastq_fetch_tasks_count", "fastq_ack_tasks_count"):
        assert samples[each][()] >= 1
    assert samples["fastq_redis_round_trip_seconds_count"]["ack",] >= 1
    idle = {("starting",): 0, ("idle",): 2, ("busy",): 0, ("leaving",): 0}
    wait_until(lambda: own_site.samples()["fastq_pool_children"] == idle)
    wait_until(lambda: own_site.samples()["fastq_tasks_in_flight"] == {(): 0})


def test_both_formats_have_the_same_metrics(site: Site) -> None:
    _, headers, text = site.ask("/metrics")
    assert promtool("check", "metrics", text=text) == ""
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    _, open_headers, open_text = site.ask("/metrics?x=1", Accept="application/openmetrics-text;version=1.0.0,*/*;q=0.1")
    assert open_headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    parsed: Any = {one.name: (one.type, one.documentation) for one in read_prometheus(text)}
    open_parsed: Any = {one.name: (one.type, one.documentation) for one in as_openmetrics(open_text)}
    occurring = {"fastq_redis_errors", "fastq_pool_children_ended"}  # between the two, at worst
    assert len(parsed) > 20
    assert {*parsed.items()} ^ {*open_parsed.items()} <= {(name, open_parsed.get(name)) for name in occurring}


def test_other_requests_get_an_answer_too(site: Site) -> None:
    status, headers, text = site.ask("/metrics", "HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 1000
    assert site.says("/") == (404, "there are /metrics, /healthz and /readyz")
    status, headers, _ = site.ask("/metrics", "POST")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    for garbage in (b"\r\n\r\n", b"\xff\xfe\r\n\r\n", b"GET\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_S) as connection:
            connection.sendall(garbage)
            assert connection.recv(12) in (b"HTTP/1.1 405", b"HTTP/1.1 404")
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"x" * 100_000)  # a head without end
        assert is_closed(connection)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_second_server_on_the_same_port_says_so_and_ends(site: Site, tmp_path: Path) -> None:
    with workers_on(site.redis.url, tmp_path) as workers:
        second = workers.start("--metrics-listen", f"127.0.0.1:{site.port}")
        assert second.ended() == 1
        assert f"metrics_listen: cannot listen on 127.0.0.1:{site.port}: " in second.text


def test_a_server_is_ready_while_the_tasks_of_any_queue_can_run(site: Site) -> None:
    pending = [f"asynq:{{{queue}}}:pending" for queue in ("default", "low")]
    with site.redis.client() as db:
        wait_until(lambda: not db.exists(*pending))
        db.set(pending[0], "no list")
        wait_until(lambda: "queue default: dequeue: " in site.worker.text)
        assert site.says("/readyz") == (200, "ok")
        db.set(pending[1], "no list")
        wait_until(lambda: site.says("/readyz")[0] == 503)
        assert "WRONGTYPE" in site.says("/readyz")[1]
        db.delete(*pending)
        wait_until(lambda: site.says("/readyz") == (200, "ok"))


def test_a_server_whose_redis_takes_no_writes_says_why_it_is_not_ready(site: Site) -> None:
    paused = [f"asynq:{{{queue}}}:paused" for queue in ("default", "low")]
    wait_until(lambda: site.says("/readyz") == (200, "ok"))
    with site.redis.client() as db, Client(site.redis.url) as client:
        db.mset(dict.fromkeys(paused, "1"))
        for queue in ("default", "low"):
            client.enqueue("ok", queue=queue)
        for key in paused:
            db.pexpire(key, 500)  # an idle queue would not be asked, and none can be resumed then
        db.config_set("min-replicas-to-write", 1)
        wait_until(lambda: "Redis takes no writes because too few of its replicas" in site.says("/readyz")[1])
        db.config_set("min-replicas-to-write", 0)
        wait_until(lambda: site.says("/readyz") == (200, "ok"))


def test_a_server_without_redis_is_healthy_but_not_ready(own_site: Site) -> None:
    wait_until(lambda: own_site.says("/readyz")[0] == 200)
    own_site.redis.stop()
    refused = f"cannot reach Redis at {own_site.redis.socket_path}"  # a command on its way tells of its own end first
    wait_until(lambda: refused in own_site.says("/readyz")[1])
    assert own_site.says("/readyz")[0] == 503
    assert own_site.says("/healthz") == (200, "ok")
    samples = own_site.samples()
    assert samples["fastq_redis_up"] == {(): 0}
    assert sum(samples["fastq_redis_errors_total"].values()) >= 1


def test_the_metrics_of_a_worker_are_those_of_the_documents(own_site: Site) -> None:
    text = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text().partition("## Queues")[0]
    cells = re.findall(r"^\| (`(?:fastq|process)_.*?) \|", text, re.MULTILINE)
    documented = {name for cell in cells for name in re.findall(r"\w+", cell)}
    with Client(own_site.redis.url) as client:
        client.enqueue("fail", 1)

    def shown() -> set[str]:
        parsed: Any = read_prometheus(own_site.ask("/metrics")[2])
        return {family.name + "_total" * (family.type == "counter") for family in parsed}

    wait_until(lambda: "fastq_tasks_total" in shown())
    own_site.redis.stop()  # errors of Redis are told once there was one
    wait_until(lambda: "fastq_redis_errors_total" in shown())
    assert shown() == documented - {"fastq_batch_tasks", "fastq_batch_wait_seconds"}, "no handler here has batches"


def test_a_quiet_server_is_not_ready_and_tells_why(own_site: Site) -> None:
    own_site.worker.is_ready()
    own_site.worker.signal(signal.SIGTSTP)
    wait_until(lambda: own_site.says("/readyz") == (503, "quiet: fetches no tasks"))
    assert own_site.says("/healthz") == (200, "ok")


def test_the_port_is_free_when_the_server_has_ended(own_site: Site) -> None:
    wait_until(lambda: "READY=1" in own_site.heard and own_site.heard.count("WATCHDOG=1") > 3)
    assert own_site.worker.stop() == 0
    assert is_refused(own_site.port)
    wait_until(lambda: "STOPPING=1" in own_site.heard)
    assert own_site.heard.count("STOPPING=1") == own_site.heard.count("READY=1") == 1


def test_whoever_holds_connections_without_asking_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        nobody: Any = None  # a path that does not exist needs no server behind it
        listener = Listener(nobody)
        server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setattr("fastq.server.monitoring.listener.HEAD_S", 1e6)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_CONNECTIONS)]
        await until(lambda: len(listener._connections) == MOST_CONNECTIONS)
        for reader, _ in silent[:3]:
            asks = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""  # the oldest
            asks[1].write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await asks[0].read()).startswith(b"HTTP/1.1 404 ")
            asks[1].close()
            silent.append(await asyncio.open_connection("127.0.0.1", port))
        silent[-1][1].write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await silent[-1][0].read()).startswith(b"HTTP/1.1 404 ")
        monkeypatch.setattr("fastq.server.monitoring.listener.HEAD_S", 0.0)
        late, late_writer = await asyncio.open_connection("127.0.0.1", port)
        assert await late.read() == b""
        server.close()
        await listener.close()
        for each in (late_writer, *(one for _, one in silent)):
            each.close()

    run(test())


def test_whoever_reads_no_answer_keeps_neither_probes_waiting_nor_a_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def answer_to(self: Listener, method: str, path: str, headers: str) -> _Answer:
        blocks = ["x" * 100_000] * 100 if path == "/metrics" else ["ok"]
        return _Answer(HTTPStatus.OK, "text/plain", iter(blocks))

    async def test() -> None:
        nobody: Any = None
        listener = Listener(nobody)
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            await listener.serve(reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        clients = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(MOST_CONNECTIONS)]
        for _, each in clients:
            each.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await until(lambda: sum(each.transport.get_write_buffer_size() > 0 for each in writers) == MOST_CONNECTIONS)
        asks = await asyncio.open_connection("127.0.0.1", port)
        asks[1].write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await asks[0].read()).endswith(b"ok")
        monkeypatch.setattr("fastq.server.monitoring.listener.PATIENCE_S", 0.0)
        late = await asyncio.open_connection("127.0.0.1", port)
        late[1].write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert len(await late[0].read()) < 10_000_000
        assert "CancelledError" not in caplog.text
        await listener.close()
        await until(lambda: all(each.transport.get_write_buffer_size() == 0 for each in writers))
        server.close()
        for _, each in (*clients, asks, late):
            each.close()

    monkeypatch.setattr("fastq.server.monitoring.listener.PATIENCE_S", 1e6)
    monkeypatch.setattr(Listener, "_answer_to", answer_to)
    run(test())


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    return False

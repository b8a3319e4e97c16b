"""The crawler of docs/lanes.md: ten hosts, two requests at once and five a second to each."""

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client, Inspector, LaneState, Task
from tests.docs.blocks import ROOT, blocks_of
from tests.waiting import PATIENCE_S, wait_until

GUIDE = ROOT / "docs" / "lanes.md"
HOSTS = 10
PAGES = 6
AT_ONCE = 2
INTERVAL_S = 0.2


class Site:
    """Ten hosts on loopback, which answer once the gate is open and count what they are asked at once."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.lock = threading.Lock()
        self.now, self.most, self.seen = Counter[str](), Counter[str](), Counter[str]()

    def answer(self, host: str) -> None:
        with self.lock:
            self.now[host] += 1
            self.seen[host] += 1
            self.most[host] = max(self.most[host], self.now[host])
        self.gate.wait(PATIENCE_S)
        with self.lock:
            self.now[host] -= 1


@pytest.fixture
def site() -> Iterator[tuple[Site, list[str]]]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.answer(self.headers["Host"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"page")

        def log_message(self, format: str, *args: object) -> None: ...

    with ExitStack() as stack:
        port, hosts = 0, []
        for number in range(1, HOSTS + 1):
            server = stack.enter_context(ThreadingHTTPServer((f"127.0.0.{number}", port), Handler))
            port = server.server_address[1]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            hosts.append(f"127.0.0.{number}:{port}")
        yield site, hosts
        site.gate.set()


def test_the_crawler_keeps_its_limits(db: Redis, url: str, site: tuple[Site, list[str]], tmp_path: Path) -> None:
    crawled, hosts = site
    (program,) = [
        block.code for block in blocks_of(ROOT / "docs" / "lanes.md") if block.code.startswith("# crawler.py")
    ]
    (tmp_path / "crawler.py").write_text(program)
    (command,) = re.findall(r"^fastq-worker (.*)$", (ROOT / "docs" / "lanes.md").read_text(), re.MULTILINE)
    words = [str(Path(sys.executable).parent / "fastq-worker"), *command.split()]
    environment = {**os.environ, "FASTQ_REDIS_URL": url, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    with closing(Client(url)) as client, closing(Inspector(url)) as inspector:
        began_s = time.monotonic()
        client.enqueue_many(
            Task("crawl.fetch", {"host": host, "path": f"/{page}"}, queue="crawl", lane=host, retention=600)
            for host in hosts
            for page in range(PAGES)
        )
        worker = subprocess.Popen(words, env=environment, cwd=tmp_path)
        try:
            wait_until(lambda: all(crawled.now[host] == AT_ONCE for host in hosts))
            lanes = {info.lane: info for info in inspector.lanes("crawl")[0]}
            for host in hosts:
                assert (lanes[host].state, lanes[host].running) == (LaneState.FULL, AT_ONCE)
                assert lanes[host].waiting == PAGES - AT_ONCE
            crawled.gate.set()
            wait_until(lambda: inspector.get_queue_info("crawl").completed == HOSTS * PAGES)
            took_s = time.monotonic() - began_s
        finally:
            worker.terminate()
            worker.wait(PATIENCE_S)
    assert crawled.most == dict.fromkeys(hosts, AT_ONCE)
    assert crawled.seen == dict.fromkeys(hosts, PAGES)
    assert took_s >= (PAGES - 1) * INTERVAL_S

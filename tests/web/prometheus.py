"""A real Prometheus that scrapes a server of the loopback interface every second; and a past that was made up."""

import http.server
import json
import os
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import cos, sin
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: fastq
  metrics_path: {path}
  {credentials}
  static_configs: [{{targets: ["{target}"]}}]
"""


@contextmanager
def prometheus(directory: Path, target: str, path: str = "/metrics", credentials: str = "") -> Iterator[str]:
    """Run it meanwhile, and give its URL; skips the test where it is not installed, but fails in CI."""
    program = shutil.which("prometheus")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no prometheus on PATH")
    (directory / "prometheus.yml").write_text(CONFIG.format(path=path, target=target, credentials=credentials))
    port = free_port()
    words = [f"--web.listen-address=127.0.0.1:{port}", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *words], cwd=directory, stdout=log, stderr=log)
    try:

        def is_ready() -> bool:
            assert process.poll() is None, (directory / "prometheus.log").read_text()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=PATIENCE_S):
                    return True
            except urllib.error.URLError:
                return False

        wait_until(is_ready)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(PATIENCE_S)


class _Recorded(http.server.BaseHTTPRequestHandler):
    """A Prometheus with a past that was made up: each queue has its waves."""

    queues: Sequence[str] = ()

    def do_GET(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        times = range(int(asked["start"]), int(asked["end"]) + 1, int(asked["step"]))
        scale = next(scale for name, scale in SCALES if name in asked["query"])
        rows = [
            {
                "metric": {"queue": queue},
                "values": [[at, f"{scale / (n + 1) * _wave(at, n + 1)}"] for at in times],
            }
            for n, queue in enumerate(self.queues)
        ]
        body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _wave(at_s: int, pace: int) -> float:
    return 1.2 + sin(at_s * pace / 4_000) + cos(at_s / 300) / 5


SCALES = (
    (" / ", 0.02),
    ("failed", 0.4),
    ("processed", 31.0),
    ("latency", 9.0),
    ("memory", 4_000_000.0),
    ("asynq", 1_700.0),
)


@contextmanager
def recorded(*queues: str) -> Iterator[str]:
    """Serve what a Prometheus would have recorded of some queues, for pictures and looks; give its URL."""
    handler = type("Recorded", (_Recorded,), {"queues": queues})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()

"""The program asynqmon, as published: its flags and variables, and its ``/metrics`` beside that of ``fastq web``."""

import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from fastq.web import FastqWeb
from tests.cli.commands import fill
from tests.docs.test_web_ui import FLAGS
from tests.interop.build import build
from tests.interop.peer import GoPeer
from tests.interop.test_exporter import by_name, compare
from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until
from tests.web.serving import serving

pytestmark = pytest.mark.interop

OF_GO = {"process_virtual_memory_max_bytes"}
"""Of the process, what prometheus_client has not."""


@pytest.fixture(scope="module")
def asynqmon() -> Path:
    return build("asynqmon_command", package="github.com/hibiken/asynqmon/cmd/asynqmon")


def help_of(binary: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what its help says of each flag."""
    done = subprocess.run([binary, "--help"], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    parts = re.split(r"^  -([\w-]+)", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_table_has_all_of_its_flags_and_variables(asynqmon: Path) -> None:
    plain = help_of(asynqmon, {})
    assert {f"--{name}" for name in plain} == FLAGS.keys()
    for flag, (variable, _, value) in FLAGS.items():
        with_it = help_of(asynqmon, {variable: value or "true"})
        changed = {f"--{name}" for name in plain if plain[name] != with_it[name]}
        assert changed == {flag}, variable


@contextmanager
def running(binary: Path, socket: Path) -> Iterator[str]:
    """Run it with its exporter, and give its URL."""
    port = free_port()
    words = ["--enable-metrics-exporter", f"--port={port}", f"--redis-url=redis-socket://{socket}"]
    process = subprocess.Popen([binary, *words], stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        assert process.poll() is None
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S):
                return True
        except urllib.error.URLError:
            return False

    try:
        wait_until(is_ready)
        yield url
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_the_metrics_of_the_web_ui_are_those_of_asynqmon(
    asynqmon: Path, redis_socket: Path, db: redis.Redis, go: GoPeer
) -> None:
    url = f"unix://{redis_socket}"
    fill(db, url)
    go.request("enqueue", type="of-go", payload="", options={"queue": "go's"})
    with (
        running(asynqmon, redis_socket) as monitor,
        serving(FastqWeb(url, metrics=True, auth=None)) as served,
        urllib.request.urlopen(f"{monitor}/metrics", timeout=PATIENCE_S) as answer,
    ):
        theirs, ours = by_name(answer.read().decode()), by_name(served.get("/metrics").text)
    compare({name: told for name, told in theirs.items() if name.startswith("asynq_")}, ours)
    others = {name for name in theirs if not name.startswith(("asynq_", "go_"))}
    assert others - ours.keys() == OF_GO

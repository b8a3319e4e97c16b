"""asynq's own exporter and fastq's show the same metrics of one Redis."""

import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import redis
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fastq import Inspector
from fastq.metrics import QueueCollector
from tests.cli.commands import fill
from tests.interop.build import build
from tests.interop.peer import GoPeer
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.interop

NEAR_S = 120.0
Values = dict[tuple[tuple[str, str], ...], float]


def test_the_metrics_of_asynq_are_those_of_its_exporter(redis_socket: Path, db: redis.Redis, go: GoPeer) -> None:
    url = f"unix://{redis_socket}"
    fill(db, url)
    go.request("enqueue", type="of-go", payload="", options={"queue": "go's"})
    theirs = by_name(scraped(build("exporter"), redis_socket))
    registry = CollectorRegistry()
    with Inspector(url) as inspector:
        registry.register(QueueCollector(inspector))
        ours = by_name(generate_latest(registry).decode())
    compare(theirs, ours)


def compare(theirs: dict[str, tuple[str, Values]], ours: dict[str, tuple[str, Values]]) -> None:
    """Assert that the metrics of theirs are in ours, and are the same."""
    assert len(theirs) == 7
    for name, (kind, values) in theirs.items():
        our_kind, our_values = ours[name]
        assert our_kind == kind, name
        if name == "asynq_tasks_enqueued_total":  # asynq leaves the tasks in groups out
            our_values = {key: value for key, value in our_values.items() if ("state", "aggregating") not in key}
        assert our_values.keys() == values.keys(), name
        # Clocks go on, and memory is estimated from other tasks.
        near = NEAR_S if name == "asynq_queue_latency_seconds" else 0.0
        share = 0.5 if name == "asynq_queue_memory_usage_approx_bytes" else 0.0
        for key, value in values.items():
            assert our_values[key] == pytest.approx(value, rel=share, abs=near), (name, key)


def scraped(binary: Path, socket: Path) -> str:
    """Return what asynq's exporter serves."""
    with subprocess.Popen([binary, "--socket", socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
            text: str = answer.read().decode()
        process.communicate(timeout=PATIENCE_S)
    return text


def by_name(text: str) -> dict[str, tuple[str, Values]]:
    """Return the type and the values of each metric; the values by their labels."""
    families: Any = text_string_to_metric_families(text)
    return {
        family.samples[0].name: (
            family.type,
            {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples},
        )
        for family in families
        if family.samples
    }

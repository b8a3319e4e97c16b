"""The metrics of a Redis in the formats of Prometheus; importing this module needs ``fastq-worker[metrics]``."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from fastq.inspector import Inspector
from fastq.metrics import QueueCollector
from fastq.web.view import View

OF_NO_QUEUE: Final = "fastq_exporter_"
"""Of the metrics without a queue, users who see only some queues get those whose names begin with this."""


class Exporter:
    """The metrics of a Redis' queues and of this process, as in asynqmon."""

    def __init__(self, redis: str | None) -> None:
        self._inspector = Inspector(redis)
        self._registry = CollectorRegistry()
        self._registry.register(QueueCollector(self._inspector))
        ProcessCollector(registry=self._registry)
        # A separate thread, so that scrapes wait only for other scrapes, and pages and logins do not wait for scrapes.
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._is_closed = False

    async def text(self, accept: str, view: View) -> tuple[bytes, str]:
        """Return the metrics that a user may see, in an accepted format, and the format's name."""
        try:
            write, kind = choose_encoder(accept)
        except TypeError:  # the header names a version that does not exist
            write, kind = choose_encoder("")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(write, _Seen(self._registry, view))), kind

    def close(self) -> None:
        """Close the connections after the last scrape, without waiting for it; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thread.submit(self._inspector.close)
        self._thread.shutdown(wait=False)


@dataclass(frozen=True, slots=True)
class _Seen(Collector):
    """The metrics of the queues that a user sees."""

    registry: CollectorRegistry
    view: View

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        for metric in self.registry.collect():
            seen = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            seen.samples = [sample for sample in metric.samples if self._sees(sample)]
            if seen.samples:
                yield seen

    def _sees(self, sample: Sample) -> bool:
        queue = sample.labels.get("queue")
        if queue is None:
            return self.view.is_of_all or sample.name.startswith(OF_NO_QUEUE)
        return self.view.sees(queue)

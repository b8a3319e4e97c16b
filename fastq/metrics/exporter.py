"""The HTTP side of ``fastq exporter``; importing it needs ``fastq-worker[metrics]``."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from fastq.inspector import Inspector
from fastq.metrics.collector import QueueCollector

__all__ = ["exporting"]


@contextmanager
def exporting(inspector: Inspector, host: str, port: int) -> Iterator[int]:
    """Serve the metrics of all queues meanwhile, and give the port; ``OSError`` if the address cannot be used."""
    registry = CollectorRegistry()
    registry.register(QueueCollector(inspector))
    server, thread = start_http_server(port, host, registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

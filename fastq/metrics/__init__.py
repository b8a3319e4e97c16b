"""Metrics of queues, as any inspector sees them; needs ``fastq-worker[metrics]``.

The metrics of a running server are its own: ``fastq-worker --metrics-listen``.
"""

from fastq.metrics.collector import QueueCollector

__all__ = ["QueueCollector"]

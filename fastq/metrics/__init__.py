"""Metrics of queues, from what every inspector can read in Redis; needs ``fastq-worker[metrics]``.

Each running server has metrics of its own: ``fastq-worker --metrics-listen``.
"""

from fastq.metrics.collector import QueueCollector

__all__ = ["QueueCollector"]

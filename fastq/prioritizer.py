"""Queue choice, weighted or strict: which queue is next, and how a batch is split between queues."""

from fastq._prioritizer import Prioritizer, is_blank, normalize_queues

__all__ = ["Prioritizer", "is_blank", "normalize_queues"]

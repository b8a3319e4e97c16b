"""fastq: a task queue for heavy batch work that speaks Go asynq's protocol on Redis."""

from fastq._version import __version__

__all__ = ["__version__"]

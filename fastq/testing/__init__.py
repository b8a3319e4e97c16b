"""Helpers for tests of apps: run handlers in this process, drain queues, check enqueued tasks, use a private Redis.

``fastq.testing.plugin`` has a pytest fixture: ``pytest_plugins = ["fastq.testing.plugin"]``.
"""

from fastq.broker.operations.finish import RunOutcome
from fastq.testing.assertions import assert_enqueued
from fastq.testing.draining import drain
from fastq.testing.grouping import aggregate_groups
from fastq.testing.inline import AsyncInlineClient, InlineClient
from fastq.testing.private_redis import embedded_redis
from fastq.testing.runs import TaskRun, run_task

__all__ = [
    "AsyncInlineClient",
    "InlineClient",
    "RunOutcome",
    "TaskRun",
    "aggregate_groups",
    "assert_enqueued",
    "drain",
    "embedded_redis",
    "run_task",
]

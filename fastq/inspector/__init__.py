"""Inspector and AsyncInspector, which show and change queues, tasks, servers and schedulers.

Each method is a flow of broker operations, written once in a class such as ``QueueMethods``; ``driver`` makes both
inspectors from these. The command and its dashboard talk to Redis only through this package. Servers do not use it.
"""

from fastq.inspector.doctor.examination import Report
from fastq.inspector.doctor.finding import Finding, Level
from fastq.inspector.doctor.repairs import Repair
from fastq.inspector.filters import TaskFilter
from fastq.inspector.inspectors import AsyncInspector, Inspector
from fastq.inspector.jobs import Job
from fastq.inspector.progress import Progress
from fastq.inspector.records import (
    ClusterNode,
    DailyStats,
    Drain,
    FailedAttempt,
    GroupInfo,
    ImportReport,
    LaneInfo,
    LaneState,
    Moved,
    PoolInfo,
    QueueInfo,
    ServerInfo,
    TaskEvent,
    TaskLocks,
)
from fastq.inspector.runs import Durations, RunHistory, RunStats
from fastq.inspector.transfer import MovePlan

__all__ = [
    "AsyncInspector",
    "ClusterNode",
    "DailyStats",
    "Drain",
    "Durations",
    "FailedAttempt",
    "Finding",
    "GroupInfo",
    "ImportReport",
    "Inspector",
    "Job",
    "LaneInfo",
    "LaneState",
    "Level",
    "MovePlan",
    "Moved",
    "PoolInfo",
    "Progress",
    "QueueInfo",
    "Repair",
    "Report",
    "RunHistory",
    "RunStats",
    "ServerInfo",
    "TaskEvent",
    "TaskFilter",
    "TaskLocks",
]

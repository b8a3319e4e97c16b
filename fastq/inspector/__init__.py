"""Inspector and AsyncInspector: look at queues, tasks, servers and schedulers, and act on what is there.

Each method is a flow of broker operations, written once as part of a class such as ``QueueMethods``; ``driver`` makes
both inspectors of these. Servers use none of it.
"""

from fastq.inspector.inspectors import AsyncInspector, Inspector
from fastq.inspector.progress import Progress
from fastq.inspector.records import ClusterNode, DailyStats, GroupInfo, QueueInfo, ServerInfo

__all__ = [
    "AsyncInspector",
    "ClusterNode",
    "DailyStats",
    "GroupInfo",
    "Inspector",
    "Progress",
    "QueueInfo",
    "ServerInfo",
]

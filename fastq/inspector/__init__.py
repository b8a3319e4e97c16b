"""Inspector and AsyncInspector: look at queues, tasks, servers and schedulers, and act on what is there.

Each method is a flow of broker operations, written once in ``queues``, ``tasks``, ``bulk`` and ``processes``;
``blocking`` and ``aio`` only drive them. Servers never use any of it.
"""

from fastq.inspector.aio import AsyncInspector
from fastq.inspector.blocking import Inspector
from fastq.inspector.records import ClusterNode, DailyStats, GroupInfo, QueueInfo, ServerInfo

__all__ = ["AsyncInspector", "ClusterNode", "DailyStats", "GroupInfo", "Inspector", "QueueInfo", "ServerInfo"]

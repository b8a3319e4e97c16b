"""fastq: a task queue for heavy batch work that speaks Go asynq's protocol on Redis."""

from fastq._version import __version__
from fastq.client import AsyncClient, Client
from fastq.errors import (
    BrokerAuthError,
    BrokerConnectionError,
    BrokerError,
    BrokerOutOfMemoryError,
    BrokerReadOnlyError,
    BrokerTimeoutError,
    CronSpecError,
    DuplicateTaskError,
    FastqError,
    HandlerNotFoundError,
    InvalidMessageError,
    LeaseExpiredError,
    QueueNotEmptyError,
    QueueNotFoundError,
    QueueStateError,
    RevokeTask,
    SchedulerEntryNotFoundError,
    SemaphoreFullError,
    ServerClosedError,
    ServerStartError,
    SkipRetry,
    TaskCanceled,
    TaskEndedError,
    TaskIDConflictError,
    TaskNotFoundError,
    TaskStateError,
    TaskTimeout,
    WorkerCrashedError,
)
from fastq.info import TaskInfo
from fastq.inspector import AsyncInspector, ClusterNode, DailyStats, GroupInfo, Inspector, QueueInfo, ServerInfo
from fastq.mux import ServeMux
from fastq.periodic import PeriodicTaskConfig, PeriodicTaskManager
from fastq.results import EnqueueResults
from fastq.scheduler import Scheduler
from fastq.semaphore import Semaphore
from fastq.server.config import ServerConfig
from fastq.server.server import Server
from fastq.states import TaskState
from fastq.task import Task
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry, WorkerInfo
from fastq.worker.running import current_task

__all__ = [
    "AsyncClient",
    "AsyncInspector",
    "BrokerAuthError",
    "BrokerConnectionError",
    "BrokerError",
    "BrokerOutOfMemoryError",
    "BrokerReadOnlyError",
    "BrokerTimeoutError",
    "Client",
    "ClusterNode",
    "CronSpecError",
    "DailyStats",
    "DuplicateTaskError",
    "EnqueueResults",
    "FastqError",
    "GroupInfo",
    "HandlerNotFoundError",
    "Inspector",
    "InvalidMessageError",
    "LeaseExpiredError",
    "PeriodicTaskConfig",
    "PeriodicTaskManager",
    "QueueInfo",
    "QueueNotEmptyError",
    "QueueNotFoundError",
    "QueueStateError",
    "RevokeTask",
    "Scheduler",
    "SchedulerEnqueueEvent",
    "SchedulerEntry",
    "SchedulerEntryNotFoundError",
    "Semaphore",
    "SemaphoreFullError",
    "ServeMux",
    "Server",
    "ServerClosedError",
    "ServerConfig",
    "ServerInfo",
    "ServerStartError",
    "SkipRetry",
    "Task",
    "TaskCanceled",
    "TaskEndedError",
    "TaskIDConflictError",
    "TaskInfo",
    "TaskNotFoundError",
    "TaskState",
    "TaskStateError",
    "TaskTimeout",
    "WorkerCrashedError",
    "WorkerInfo",
    "__version__",
    "current_task",
]

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
    RevokeTask,
    ServerClosedError,
    ServerStartError,
    SkipRetry,
    TaskCanceled,
    TaskIDConflictError,
    TaskNotFoundError,
    TaskTimeout,
    WorkerCrashedError,
)
from fastq.info import TaskInfo
from fastq.mux import ServeMux
from fastq.results import EnqueueResults
from fastq.scheduler import Scheduler
from fastq.server.config import ServerConfig
from fastq.server.server import Server
from fastq.states import TaskState
from fastq.task import Task
from fastq.worker.running import current_task

__all__ = [
    "AsyncClient",
    "BrokerAuthError",
    "BrokerConnectionError",
    "BrokerError",
    "BrokerOutOfMemoryError",
    "BrokerReadOnlyError",
    "BrokerTimeoutError",
    "Client",
    "CronSpecError",
    "DuplicateTaskError",
    "EnqueueResults",
    "FastqError",
    "HandlerNotFoundError",
    "InvalidMessageError",
    "LeaseExpiredError",
    "QueueNotEmptyError",
    "QueueNotFoundError",
    "RevokeTask",
    "Scheduler",
    "ServeMux",
    "Server",
    "ServerClosedError",
    "ServerConfig",
    "ServerStartError",
    "SkipRetry",
    "Task",
    "TaskCanceled",
    "TaskIDConflictError",
    "TaskInfo",
    "TaskNotFoundError",
    "TaskState",
    "TaskTimeout",
    "WorkerCrashedError",
    "__version__",
    "current_task",
]

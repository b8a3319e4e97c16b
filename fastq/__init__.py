"""fastq: a task queue for heavy batch work that speaks Go asynq's protocol on Redis.

The names for producers and handlers are imported at once. The others, with their dependencies, are imported on first
use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from fastq._version import __version__
from fastq.client import AsyncClient, Client
from fastq.encoding import PayloadCodec
from fastq.errors import (
    BadLinesError,
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
    PayloadError,
    QueueNotEmptyError,
    QueueNotFoundError,
    QueuePausedError,
    QueueStateError,
    Retry,
    RevokeTask,
    SchedulerEntryNotFoundError,
    SemaphoreFullError,
    ServerClosedError,
    ServerNotListeningError,
    ServerStartError,
    SkipRetry,
    Snooze,
    TaskCanceled,
    TaskEndedError,
    TaskIDConflictError,
    TaskNotFoundError,
    TaskStateError,
    TaskTimeout,
    WorkerCrashedError,
)
from fastq.hooks import Hooks
from fastq.info import TaskInfo
from fastq.middleware import ClientMiddleware, Sender
from fastq.mux import Handler, Middleware, ServeMux
from fastq.options import EnqueueOptions
from fastq.results import EnqueueResults
from fastq.running import GroupedTask, RunningTask, current_task
from fastq.semaphore import Semaphore
from fastq.states import TaskState
from fastq.task import Task
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry, WorkerInfo

if TYPE_CHECKING:
    from fastq.app.app import App
    from fastq.app.context import Context
    from fastq.inspector import (
        AsyncInspector,
        ClusterNode,
        DailyStats,
        Drain,
        GroupInfo,
        ImportReport,
        Inspector,
        Job,
        Moved,
        MovePlan,
        Progress,
        QueueInfo,
        ServerInfo,
        TaskEvent,
        TaskFilter,
    )
    from fastq.periodic import PeriodicTaskConfig, PeriodicTaskManager
    from fastq.scheduler import Scheduler
    from fastq.server.config import ServerConfig
    from fastq.server.server import Server

__all__ = [
    "App",
    "AsyncClient",
    "AsyncInspector",
    "BadLinesError",
    "BrokerAuthError",
    "BrokerConnectionError",
    "BrokerError",
    "BrokerOutOfMemoryError",
    "BrokerReadOnlyError",
    "BrokerTimeoutError",
    "Client",
    "ClientMiddleware",
    "ClusterNode",
    "Context",
    "CronSpecError",
    "DailyStats",
    "Drain",
    "DuplicateTaskError",
    "EnqueueOptions",
    "EnqueueResults",
    "FastqError",
    "GroupInfo",
    "GroupedTask",
    "Handler",
    "HandlerNotFoundError",
    "Hooks",
    "ImportReport",
    "Inspector",
    "InvalidMessageError",
    "Job",
    "LeaseExpiredError",
    "Middleware",
    "MovePlan",
    "Moved",
    "PayloadCodec",
    "PayloadError",
    "PeriodicTaskConfig",
    "PeriodicTaskManager",
    "Progress",
    "QueueInfo",
    "QueueNotEmptyError",
    "QueueNotFoundError",
    "QueuePausedError",
    "QueueStateError",
    "Retry",
    "RevokeTask",
    "RunningTask",
    "Scheduler",
    "SchedulerEnqueueEvent",
    "SchedulerEntry",
    "SchedulerEntryNotFoundError",
    "Semaphore",
    "SemaphoreFullError",
    "Sender",
    "ServeMux",
    "Server",
    "ServerClosedError",
    "ServerConfig",
    "ServerInfo",
    "ServerNotListeningError",
    "ServerStartError",
    "SkipRetry",
    "Snooze",
    "Task",
    "TaskCanceled",
    "TaskEndedError",
    "TaskEvent",
    "TaskFilter",
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

_LATER: Final = {
    "App": "fastq.app.app",
    "AsyncInspector": "fastq.inspector",
    "ClusterNode": "fastq.inspector",
    "Context": "fastq.app.context",
    "DailyStats": "fastq.inspector",
    "Drain": "fastq.inspector",
    "GroupInfo": "fastq.inspector",
    "ImportReport": "fastq.inspector",
    "Inspector": "fastq.inspector",
    "Job": "fastq.inspector",
    "MovePlan": "fastq.inspector",
    "Moved": "fastq.inspector",
    "PeriodicTaskConfig": "fastq.periodic",
    "PeriodicTaskManager": "fastq.periodic",
    "Progress": "fastq.inspector",
    "QueueInfo": "fastq.inspector",
    "Scheduler": "fastq.scheduler",
    "Server": "fastq.server.server",
    "ServerConfig": "fastq.server.config",
    "ServerInfo": "fastq.inspector",
    "TaskEvent": "fastq.inspector",
    "TaskFilter": "fastq.inspector",
}
"""Where the names are that are imported when they are first asked for."""


if not TYPE_CHECKING:  # a type checker that saw it would accept any name

    def __getattr__(name: str) -> Any:
        module = _LATER.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(module), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

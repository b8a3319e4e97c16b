"""fastq: a task queue for heavy batch work that speaks Go asynq's protocol on Redis.

A name is imported, with its dependencies, when it is first used. So a producer does not import the server, and
``fastq --help`` does not import redis-py.
"""

import os
import warnings
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from fastq import errors
from fastq._version import __version__
from fastq.errors import *  # noqa: F403 - that module's own list says what is public

if TYPE_CHECKING:
    from fastq.app.app import App
    from fastq.app.context import Context
    from fastq.batch import Batch
    from fastq.client import AsyncClient, Client
    from fastq.common.encoding import PayloadCodec
    from fastq.common.states import KeyOutcome, TaskState
    from fastq.enqueueing.results import EnqueueResults
    from fastq.handles.handle import AsyncHandle, Handle
    from fastq.hooks import Hooks
    from fastq.info import TaskInfo
    from fastq.inspector import (
        AsyncInspector,
        ClusterNode,
        DailyStats,
        Drain,
        Durations,
        FailedAttempt,
        GroupInfo,
        ImportReport,
        Inspector,
        Job,
        LaneInfo,
        LaneState,
        Moved,
        MovePlan,
        PoolInfo,
        Progress,
        QueueInfo,
        RunHistory,
        RunStats,
        ServerInfo,
        TaskEvent,
        TaskFilter,
        TaskLocks,
    )
    from fastq.middleware import ClientMiddleware, Sender
    from fastq.mux import Handler, Middleware, ServeMux
    from fastq.options import EnqueueOptions
    from fastq.running import GroupedTask, RunningTask, current_task
    from fastq.scheduler import Scheduler
    from fastq.scheduler.periodic import PeriodicTaskConfig, PeriodicTaskManager
    from fastq.semaphore import Semaphore
    from fastq.server.base.config import ServerConfig
    from fastq.server.server import Server
    from fastq.task import Task, TaskCall
    from fastq.wire.limit import Limit, LimitParts
    from fastq.wire.messages import ChildInfo, Places, SchedulerEnqueueEvent, SchedulerEntry, WorkerInfo
    from fastq.wire.progress import TaskProgress

__all__ = [
    "App",
    "AsyncClient",
    "AsyncHandle",
    "AsyncInspector",
    "Batch",
    "ChildInfo",
    "Client",
    "ClientMiddleware",
    "ClusterNode",
    "Context",
    "DailyStats",
    "Drain",
    "Durations",
    "EnqueueOptions",
    "EnqueueResults",
    "FailedAttempt",
    "GroupInfo",
    "GroupedTask",
    "Handle",
    "Handler",
    "Hooks",
    "ImportReport",
    "Inspector",
    "Job",
    "KeyOutcome",
    "LaneInfo",
    "LaneState",
    "Limit",
    "LimitParts",
    "Middleware",
    "MovePlan",
    "Moved",
    "PayloadCodec",
    "PeriodicTaskConfig",
    "PeriodicTaskManager",
    "Places",
    "PoolInfo",
    "Progress",
    "QueueInfo",
    "RunHistory",
    "RunStats",
    "RunningTask",
    "Scheduler",
    "SchedulerEnqueueEvent",
    "SchedulerEntry",
    "Semaphore",
    "Sender",
    "ServeMux",
    "Server",
    "ServerConfig",
    "ServerInfo",
    "Task",
    "TaskCall",
    "TaskEvent",
    "TaskFilter",
    "TaskInfo",
    "TaskLocks",
    "TaskProgress",
    "TaskState",
    "WorkerInfo",
    "__version__",
    "current_task",
]
__all__ += errors.__all__

_LATER: Final = {
    "App": "fastq.app.app",
    "AsyncClient": "fastq.client",
    "AsyncHandle": "fastq.handles.handle",
    "AsyncInspector": "fastq.inspector",
    "Batch": "fastq.batch",
    "ChildInfo": "fastq.wire.messages",
    "Client": "fastq.client",
    "ClientMiddleware": "fastq.middleware",
    "ClusterNode": "fastq.inspector",
    "Context": "fastq.app.context",
    "DailyStats": "fastq.inspector",
    "Drain": "fastq.inspector",
    "Durations": "fastq.inspector",
    "EnqueueOptions": "fastq.options",
    "EnqueueResults": "fastq.enqueueing.results",
    "FailedAttempt": "fastq.inspector",
    "GroupInfo": "fastq.inspector",
    "GroupedTask": "fastq.running",
    "Handle": "fastq.handles.handle",
    "Handler": "fastq.mux",
    "Hooks": "fastq.hooks",
    "ImportReport": "fastq.inspector",
    "Inspector": "fastq.inspector",
    "Job": "fastq.inspector",
    "KeyOutcome": "fastq.common.states",
    "LaneInfo": "fastq.inspector",
    "LaneState": "fastq.inspector",
    "Limit": "fastq.wire.limit",
    "LimitParts": "fastq.wire.limit",
    "Middleware": "fastq.mux",
    "MovePlan": "fastq.inspector",
    "Moved": "fastq.inspector",
    "PayloadCodec": "fastq.common.encoding",
    "PeriodicTaskConfig": "fastq.scheduler.periodic",
    "PeriodicTaskManager": "fastq.scheduler.periodic",
    "Places": "fastq.wire.messages",
    "PoolInfo": "fastq.inspector",
    "Progress": "fastq.inspector",
    "QueueInfo": "fastq.inspector",
    "RunHistory": "fastq.inspector",
    "RunStats": "fastq.inspector",
    "RunningTask": "fastq.running",
    "Scheduler": "fastq.scheduler",
    "SchedulerEnqueueEvent": "fastq.wire.messages",
    "SchedulerEntry": "fastq.wire.messages",
    "Semaphore": "fastq.semaphore",
    "Sender": "fastq.middleware",
    "ServeMux": "fastq.mux",
    "Server": "fastq.server.server",
    "ServerConfig": "fastq.server.base.config",
    "ServerInfo": "fastq.inspector",
    "Task": "fastq.task",
    "TaskCall": "fastq.task",
    "TaskEvent": "fastq.inspector",
    "TaskFilter": "fastq.inspector",
    "TaskLocks": "fastq.inspector",
    "TaskInfo": "fastq.info",
    "TaskProgress": "fastq.wire.progress",
    "TaskState": "fastq.common.states",
    "WorkerInfo": "fastq.wire.messages",
    "current_task": "fastq.running",
}
"""The module of each name that is imported only when first used."""


if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with _importing:
            found = globals()[name] = getattr(import_module(_LATER[name]), name)
        return found


_importing: Final = RLock()
# If a child were forked while another thread imports a module, it would wait for ever for that module's import lock.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release
    )


if os.path.exists(os.path.join(os.path.dirname(__file__), "_fastq.py")):  # a file of another project of this name
    warnings.warn(
        "the PyPI project 'fastq', which reads DNA data, is installed into the same package as fastq-worker: removing "
        "or upgrading one of them breaks the other. Give each an environment of its own, here with: "
        "pip uninstall --yes fastq fastq-worker && pip install fastq-worker",
        RuntimeWarning,
        stacklevel=2,
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

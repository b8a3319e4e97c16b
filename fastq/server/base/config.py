"""Every setting of a server: its default, its check, and its help text.

``ServerConfig`` is the one source of truth; ``settings`` derives the command line, environment variables and TOML keys
from its fields.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from typing import Any, Final, TypeAlias

from fastq._prioritizer import normalize_queues
from fastq.broker.operations.archive_rule import ArchiveFull, ArchiveRule
from fastq.common.cpus import whole_cpus
from fastq.common.devices import find_devices, hidden
from fastq.common.durations import nanoseconds_of
from fastq.options import check_text
from fastq.worker.shared.names import AppNameError, name_of

Duration: TypeAlias = float | timedelta
Hook: TypeAlias = str | Callable[..., Any] | None

START_METHODS: Final = ("forkserver", "spawn")
LOOPS: Final = ("asyncio", "uvloop")
UNKNOWN_TASKS: Final = ("auto", "retry", "return")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")
LOG_TRACEBACKS: Final = ("never", "archived", "always")
MAX_LOST: Final = 3
ALL_OTHERS: Final = "*"
"""The key, in a setting by queue, for all queues that the setting does not name."""
_DEVICE: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z/_-]*")
MAX_PORT: Final = 65_535
MAX_WEIGHT: Final = 2**31 - 1
"""The largest number that a ServerInfo can hold; a server with a larger weight could not publish itself."""


class _Default(int):
    """A number that is a default, not a user's choice."""


def _one_a_cpu() -> int:
    return _Default(whole_cpus())


def _setting(kind: str, default: Any, help: str, **limits: Any) -> Any:
    metadata = {"kind": kind, "help": help, **limits}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def setting_kind(setting: Field[Any]) -> str:
    """Return the kind of a field of ``ServerConfig``, a name in ``_CHECKS``."""
    return str(setting.metadata["kind"])


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A server's settings, checked: durations in seconds or ``timedelta``, memory in bytes.

    Hooks are named ``module:attr`` or given as module-level functions, since child processes import them.
    ``ValueError`` or ``TypeError`` names the setting and its value.
    """

    concurrency: int = _setting(
        "count",
        _one_a_cpu,
        "child processes, each running one plain handler at a time; one for each of --devices if there are any",
        least=1,
        most=4096,
    )
    threads: int = _setting(
        "count", 1, "plain handlers that one child runs at once, in threads; for those that wait", least=1, most=1000
    )
    devices: Any = _setting(
        "devices",
        None,
        "GPUs that children get by turns, as in CUDA_VISIBLE_DEVICES; auto: those that the driver shows",
    )
    queues: Mapping[str, int] = _setting("queues", lambda: {"default": 1}, "queues and their weights")
    strict_priority: bool = _setting("flag", False, "serve a queue only while those of higher weight are empty")
    shutdown_timeout: Duration = _setting("seconds", 8.0, "how long running handlers may go on after SIGTERM", least=0)
    task_check_interval: Duration = _setting("seconds", 1.0, "how often an empty queue is polled", least=0.001)
    delayed_task_check_interval: Duration = _setting(
        "seconds", 5.0, "how often due scheduled and retry tasks of Go producers are searched for", least=0.01
    )
    health_check_interval: Duration = _setting("seconds", 15.0, "how often Redis is pinged", least=0.01)
    health_check: Hook = _setting("hook", None, "called with None or the error after each ping")
    janitor_interval: Duration = _setting("seconds", 8.0, "how often expired completed tasks are deleted", least=0.01)
    janitor_batch_size: int = _setting("count", 100, "expired tasks deleted in one script call", least=1, most=1000)
    group_grace_period: Duration = _setting(
        "seconds", 60.0, "how long a group waits for another task before it is aggregated", least=1
    )
    group_max_delay: Duration = _setting(
        "seconds", 0.0, "how long the oldest task of a group waits at most; 0: no limit", least=0
    )
    group_max_size: int = _setting(
        "count",
        0,
        "size at which a group is aggregated without waiting, and tasks aggregated at once; 0: 5000",
        least=0,
        most=5000,
    )
    group_aggregator: Hook = _setting("hook", None, "combines a group's tasks into one: called with its name and tasks")
    retry_delay: Hook = _setting("hook", None, "seconds until the next attempt: n**4 + 15 + rand(30)*(n+1) by default")
    is_failure: Hook = _setting("hook", None, "whether an error counts as a failure; all do by default")
    error_handler: Hook = _setting("hook", None, "called with the task and its error")
    max_lost: int = _setting(
        "count", MAX_LOST, "how often a task lost with its server is retried before it is archived; 0: never", least=0
    )
    takeover_after: Duration = _setting(
        "seconds",
        8.0,
        "how long a server whose connection to Redis is closed may be silent before others take its tasks; 0: only "
        "when its leases have ended",
        least=0,
    )
    archive_max: Any = _setting(
        "by_queue",
        None,
        "failed tasks that the archive of a queue keeps; asynq's 10000 if unset",
        each="count",
        least=1,
    )
    archive_ttl: Any = _setting(
        "by_queue", None, "how long the archive keeps a task; asynq's 90 days if unset", each="seconds", least=1
    )
    archive_full: Any = _setting(
        "by_queue",
        None,
        "what a full archive does: trim (delete the oldest, as asynq), pause (the queue), spill (the oldest to a file)",
        each="choice",
        of=tuple(ArchiveFull),
    )
    archive_spill_to: str | None = _setting(
        "path", None, "the directory for tasks of archives that spill, a file a queue and day"
    )
    unknown_tasks: str = _setting(
        "choice",
        "auto",
        "what to do with a task whose type has no handler here: retry charges an attempt; return puts it back into its "
        "queue; auto does so if another server of the queue has a handler, else retries",
        of=UNKNOWN_TASKS,
    )
    start_method: str = _setting(
        "choice",
        "forkserver",
        "how children start; spawn for apps that start threads or use a GPU at import",
        of=START_METHODS,
    )
    max_tasks_per_child: int = _setting("count", 0, "replace a child after this many tasks; 0: never", least=0)
    max_memory_per_child: int = _setting("bytes", 0, "replace a child above this memory; 0: no limit", least=0)
    memory_limit: int = _setting(
        "bytes",
        0,
        "end a task that makes its child grow above this memory, as its timeout would; 0: no limit",
        least=0,
    )
    start_timeout: Duration = _setting(
        "seconds", 60.0, "limit for the import of the app, and for the start of a child", least=0.1
    )
    timeout_grace: Duration = _setting(
        "seconds", 5.0, "how long a handler that timed out may clean up before it is killed; 0: at once", least=0
    )
    async_concurrency: int = _setting("count", 100, "coroutines that one child runs at once", least=1, most=100_000)
    prefetch_time: Duration = _setting("seconds", 0.05, "how much work to prefetch for a child", least=0.001)
    loop: str = _setting("choice", "asyncio", "event loop of the main process", of=LOOPS)
    history: bool = _setting("flag", True, "keep what tasks did in Redis: 8 hours by minute, 14 days by hour")
    metrics_listen: str | None = _setting(
        "address", None, "serve /metrics, /healthz and /readyz here, for example 127.0.0.1:9464; port 0: any free one"
    )
    task_log: str | None = _setting("file", None, "a file that gets a line of JSON for each attempt; - for stdout")
    log_level: str = _setting("choice", "info", "lowest level to log", of=LOG_LEVELS)
    log_format: str = _setting("choice", "text", "format of the log", of=LOG_FORMATS)
    log_tracebacks: str = _setting(
        "choice", "archived", "which failed tasks are logged with a traceback", of=LOG_TRACEBACKS
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            check = _CHECKS[setting_kind(setting)]
            object.__setattr__(self, setting.name, check(setting, getattr(self, setting.name)))
        if isinstance(self.concurrency, _Default):
            object.__setattr__(self, "concurrency", len(self.devices) or int(self.concurrency))
        if ArchiveFull.SPILL in self.archive_full.values() and self.archive_spill_to is None:
            raise ValueError("archive_full: spill needs archive_spill_to, the directory to write to")

    def archive_rule(self, queue: str) -> ArchiveRule | None:
        """Return the rule for the archive of a queue, with asynq's values for unset parts; None if nothing is set."""
        given = {
            name: value
            for name, by_queue in (
                ("most", self.archive_max),
                ("ttl_s", self.archive_ttl),
                ("full", self.archive_full),
            )
            if (value := by_queue.get(queue, by_queue.get(ALL_OTHERS))) is not None
        }
        if not given:
            return None
        rule = ArchiveRule()._replace(**given)
        return rule._replace(ttl_s=int(rule.ttl_s), full=ArchiveFull(rule.full))


def seconds_of(duration: Duration) -> float:
    """Return the seconds of a checked duration: ``ServerConfig`` converts all of them to seconds."""
    assert isinstance(duration, float)
    return duration


def _count(setting: Field[Any], value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{setting.name} must be an int, not {type(value).__name__}: {value!r}")
    _within(setting, value, value)
    return value


def _seconds(setting: Field[Any], value: object) -> float:
    seconds = nanoseconds_of(value, name=setting.name) / 1e9
    _within(setting, seconds, value)
    return seconds


def _within(setting: Field[Any], number: float, value: object) -> None:
    least, most = setting.metadata.get("least"), setting.metadata.get("most")
    if least is not None and number < least:
        raise ValueError(f"{setting.name} must be at least {least}: {value!r}")
    if most is not None and number > most:
        raise ValueError(f"{setting.name} must be at most {most}: {value!r}")


def _by_queue(setting: Field[Any], value: object) -> dict[str, object]:
    """Return values by queue; a single value applies to all queues."""
    if value is None:
        return {}
    check = _CHECKS[setting.metadata["each"]]
    by_queue = value if isinstance(value, Mapping) else {ALL_OTHERS: value}
    return {check_text(queue, f"{setting.name}: queue name"): check(setting, each) for queue, each in by_queue.items()}


def _devices(setting: Field[Any], value: object) -> tuple[str, ...]:
    """Return the names or numbers of devices; "auto" means the devices that are found."""
    if value is None or value == () or value == []:
        return ()
    if value == "auto":
        if not (found := find_devices()):
            raise ValueError(f"{setting.name}: auto finds no GPU: neither a variable nor a driver's file names one")
        return found
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, Sequence) or not all(type(each) in (str, int) for each in given):
        raise TypeError(f"{setting.name} must be 'auto', or name devices as in '0,1' or [0, 1], not {value!r}")
    devices = tuple(str(each).strip() for each in given)
    for device in devices:
        if not _DEVICE.fullmatch(device):
            raise ValueError(f"{setting.name}: {device!r} is neither the number nor the UUID of a device: {value!r}")
    if len({*devices}) < len(devices):
        raise ValueError(f"{setting.name}: a device is named twice; children get them by turns anyway: {value!r}")
    if why := hidden(devices):
        raise ValueError(f"{setting.name}: {why}")
    return devices


def _path(setting: Field[Any], value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{setting.name} must be a path, not {value!r}")
    return os.fspath(value)


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of ``HOST:PORT``; ``ValueError`` for another form. An IPv6 host is in brackets."""
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_host = bool(bare) and (":" in bare) == (bare != host)
    if not colon or not is_host or not (port.isascii() and port.isdigit()) or int(port) > MAX_PORT:
        raise ValueError(f"must be HOST:PORT, for example 127.0.0.1:9464, not {address!r}")
    return bare, int(port)


def _address(setting: Field[Any], value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{setting.name} must be HOST:PORT, not {value!r}")
    try:
        host_and_port(value)
    except ValueError as error:
        raise ValueError(f"{setting.name} {error}") from None
    return value


def _flag(setting: Field[Any], value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{setting.name} must be True or False, not {value!r}")
    return value


def _choice(setting: Field[Any], value: object) -> str:
    if value not in setting.metadata["of"]:
        raise ValueError(f"{setting.name} must be one of {', '.join(setting.metadata['of'])}: {value!r}")
    return str(value)


def _queues(setting: Field[Any], value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{setting.name} must map queue names to weights, not {value!r}")
    for queue, weight in value.items():
        check_text(queue, f"{setting.name}: queue name")
        if "}" in queue:
            raise ValueError(
                f"{setting.name}: queue name must not contain '}}', which breaks the hash tag of its keys: {queue!r}"
            )
        if "*" in queue or "?" in queue:
            raise ValueError(f"{setting.name}: {queue!r}: wildcards are not supported; name each queue")
        if not isinstance(weight, int) or isinstance(weight, bool):
            raise TypeError(f"{setting.name}: the weight of queue {queue!r} must be an int: {weight!r}")
        if weight > MAX_WEIGHT:
            raise ValueError(f"{setting.name}: the weight of queue {queue!r} must be at most {MAX_WEIGHT}: {weight}")
    if value and all(weight <= 0 for weight in value.values()):
        raise ValueError(f"{setting.name}: no queue has a weight above 0: {dict(value)!r}")
    return {queue: weight for queue, weight in value.items() if weight > 0} or normalize_queues({})


def _hook(setting: Field[Any], value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) and not callable(value):
        raise TypeError(f"{setting.name} must be callable or named 'module:attr', not {value!r}")
    try:
        return name_of(value, setting.name)
    except AppNameError as error:
        raise AppNameError(f"{setting.name}: {error}") from None


_CHECKS: Final[dict[str, Callable[[Field[Any], object], object]]] = {
    "count": _count,
    "bytes": _count,
    "seconds": _seconds,
    "flag": _flag,
    "choice": _choice,
    "queues": _queues,
    "hook": _hook,
    "by_queue": _by_queue,
    "devices": _devices,
    "path": _path,
    "file": _path,
    "address": _address,
}

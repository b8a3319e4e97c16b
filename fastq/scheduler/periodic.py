"""``PeriodicTaskManager``: a scheduler whose entries come from a provider, which is called periodically. The provider's
entries are compared with the registered entries: missing entries are removed, new entries are registered, and the
others continue undisturbed. If the provider fails, the entries do not change.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from typing import Final, Self, TypeAlias, TypedDict, Unpack

from fastq.broker.transport.open import BlockingRedis
from fastq.common.durations import nanoseconds_of
from fastq.errors import ServerClosedError, ServerStartError
from fastq.options import OPTIONS, EnqueueOptions
from fastq.scheduler.hooks import PostEnqueue, PreEnqueue
from fastq.scheduler.option_list import config_hash, option_strings
from fastq.scheduler.scheduler import Scheduler
from fastq.task import Task, lock_payload

MIN_INTERVAL_S: Final = 0.1
PROVIDER_MAY_TAKE_S: Final = 5.0
"""How long ``shutdown`` waits for a provider that is being called."""

_log = logging.getLogger("fastq.scheduler.periodic")


@dataclass(frozen=True, slots=True)
class PeriodicTaskConfig:
    """A periodic task: the arguments of ``Scheduler.register``, which refuses a bad spec or option."""

    cronspec: str
    task: Task | str
    options: EnqueueOptions = field(default_factory=EnqueueOptions)
    name: str | None = None
    tz: str | tzinfo | None = None
    missed: str = "skip"

    def __post_init__(self) -> None:
        if not isinstance(self.cronspec, str):
            raise TypeError(f"cronspec must be a str, not {self.cronspec!r}")
        if not self.cronspec:
            raise ValueError("cronspec must not be empty")
        if not isinstance(self.task, Task | str):
            raise TypeError(f"task must be a fastq.Task or a type name, not {self.task!r}")
        if not isinstance(self.options, Mapping):
            raise TypeError(f"options must be a mapping, not {self.options!r}")


Provider: TypeAlias = Callable[[], Iterable[PeriodicTaskConfig]]


class SchedulerOptions(TypedDict, total=False):
    """The options that a manager passes on to its ``Scheduler``."""

    location: str | tzinfo
    heartbeat_interval: float | timedelta
    pre_enqueue: PreEnqueue | None
    post_enqueue: PostEnqueue | None


class PeriodicTaskManager:
    """A scheduler whose entries come from a provider: ``run`` until a signal, or ``start`` … ``shutdown`` on threads.

    ``provider()`` returns all entries as ``PeriodicTaskConfig``. It is called at the start, and then every
    ``sync_interval`` (seconds or a ``timedelta``) on its own thread. If the provider raises, or returns anything else,
    this is logged and the entries stay; at the start it raises a ``ServerStartError``. A configuration that cannot be
    registered is logged and tried again at every sync, without affecting the others.
    """

    def __init__(
        self,
        provider: Provider,
        redis: str | BlockingRedis | None = None,
        sync_interval: float | timedelta = 180,
        **scheduler: Unpack[SchedulerOptions],
    ) -> None:
        if not callable(provider):
            raise TypeError(f"provider must be a callable that returns the configurations, not {provider!r}")
        self._interval_s = nanoseconds_of(sync_interval, name="sync_interval") / 1e9
        if self._interval_s < MIN_INTERVAL_S:
            raise ValueError(f"sync_interval must be at least {MIN_INTERVAL_S} seconds: {sync_interval!r}")
        self._provider: Provider = provider
        self._scheduler = Scheduler(redis, **scheduler)
        self._entries: dict[Hashable, list[str]] = {}
        self._refused: dict[Hashable, str] = {}
        self._syncing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fastq periodic", daemon=True)

    def run(self) -> None:
        """Enqueue until SIGTERM or SIGINT, then shut down; only in the main thread."""
        self._begin()
        try:
            self._scheduler.run()
        finally:
            self.shutdown()

    def start(self) -> None:
        """Call the provider, start the threads, and return."""
        self._begin()
        self._scheduler.start()

    def shutdown(self) -> None:
        """Shut down, and remove the published entries; may be called twice."""
        self._ended.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(PROVIDER_MAY_TAKE_S)
            if self._thread.is_alive():
                _log.warning(
                    "the provider has not returned for %g s; shutting down without waiting for it", PROVIDER_MAY_TAKE_S
                )
        self._scheduler.shutdown()

    def ping(self) -> None:
        """Ask Redis for a sign of life; ``BrokerError`` if it does not answer."""
        self._scheduler.ping()

    def sync(self) -> None:
        """Call the provider now, and apply its answer. Exceptions propagate; a wrong answer raises ``TypeError``."""
        with self._syncing:
            self._follow(_configs_of(self._provider()))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _follow(self, configs: Sequence[tuple[Hashable, PeriodicTaskConfig]]) -> None:
        wanted = Counter(identity for identity, _ in configs)
        for identity in [*self._entries]:
            while len(self._entries[identity]) > wanted[identity]:
                self._scheduler.unregister(self._entries[identity].pop())
            if not self._entries[identity]:
                del self._entries[identity]
        self._refused = {identity: said for identity, said in self._refused.items() if identity in wanted}
        for identity, config in configs:
            if len(self._entries.get(identity, ())) < wanted[identity]:
                self._register(identity, config)

    def _begin(self) -> None:
        if self._ended.is_set():
            raise ServerClosedError("the manager was shut down; make another one")
        if self._thread.is_alive():
            raise RuntimeError("the manager is already running")
        try:
            self.sync()
        except Exception as error:
            raise ServerStartError(f"the provider failed at the start: {type(error).__name__}: {error}") from error
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            try:
                self.sync()
            except Exception as error:  # noqa: BLE001 - the provider is the user's code, and is called again later
                if not self._ended.is_set():
                    _log.warning("the provider failed; keeping its last entries: %s: %s", type(error).__name__, error)

    def _register(self, identity: Hashable, config: PeriodicTaskConfig) -> None:
        try:
            entry_id = self._scheduler.register(
                config.cronspec, config.task, config.name, config.tz, config.missed, **config.options
            )
        except (TypeError, ValueError) as error:
            if self._refused.get(identity) != str(error):
                self._refused[identity] = str(error)
                _log.warning("%r cannot be registered: %s", config, error)
        else:
            self._entries.setdefault(identity, []).append(entry_id)
            self._refused.pop(identity, None)


def _configs_of(answer: object) -> list[tuple[Hashable, PeriodicTaskConfig]]:
    if not isinstance(answer, Iterable) or isinstance(answer, str | bytes | Mapping):
        raise TypeError(f"the provider must return PeriodicTaskConfig objects, not {answer!r}")
    configs = list(answer)
    for config in configs:
        if not isinstance(config, PeriodicTaskConfig):
            raise TypeError(f"the provider must return PeriodicTaskConfig objects, but one is {config!r}")
    return [(_identity(config), config) for config in configs]


def _identity(config: PeriodicTaskConfig) -> Hashable:
    """Return a value that changes with the configuration: asynq's hash, and the parts that the hash leaves out."""
    try:
        task = config.task if isinstance(config.task, Task) else Task(config.task)
        known = config_hash(config.cronspec, task.type, task.payload, option_strings(config.options))
    except (TypeError, ValueError):
        return repr(config)  # it cannot be registered, so its repr is enough
    unlisted = [config.options.get(spec.name) for spec in OPTIONS if not spec.go]
    further = {**task.headers}, {**task.options}, lock_payload(task) is None, unlisted
    return known, config.cronspec, task.type, repr(further), config.name, str(config.tz), config.missed

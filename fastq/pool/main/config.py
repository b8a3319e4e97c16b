"""Every setting of the pool, checked in one place."""

import math
from dataclasses import dataclass

_START_METHODS = ("forkserver", "spawn")


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """The number of children, their runner and their limits.

    ``runner`` is ``module:attr`` of a ``RunnerFactory``, called with ``argument``. ``name`` is the app's name in
    errors, by default ``runner``. Times are in seconds, memory in bytes. For ``max_tasks_per_child``,
    ``max_memory_per_child`` and ``memory_limit`` 0 means no limit; for ``timeout_grace`` it means to kill at once. A
    child above ``max_memory_per_child`` is replaced after its task. A child above ``memory_limit`` is replaced, and its
    task is ended. ``start_timeout`` limits the import of the app and the start of a child. While ``child_start`` raises
    in all first children, others are tried for ``start_patience``. Children get ``devices`` in turn, if there are any.
    """

    runner: str
    argument: str = ""
    name: str = ""
    processes: int = 1
    start_method: str = "forkserver"
    timeout_grace: float = 5.0
    max_tasks_per_child: int = 0
    max_memory_per_child: int = 0
    memory_limit: int = 0
    async_concurrency: int = 100
    threads: int = 1
    prefetch_time: float = 0.05
    start_timeout: float = 60.0
    start_patience: float = 0.0
    ring_bytes: int = 1 << 20
    prefetch_records: int = 1024
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.runner)
        if not all(self.runner.partition(":")):
            raise ValueError(f"runner must be 'module:attr', not {self.runner!r}")
        if self.start_method not in _START_METHODS:
            raise ValueError(f"start_method must be one of {_START_METHODS}, not {self.start_method!r}")
        self._at_least("processes", 1)
        self._at_least("async_concurrency", 1)
        self._at_least("threads", 1)
        self._at_least("prefetch_records", 1)
        for name in ("start_patience", "timeout_grace", "max_tasks_per_child", "max_memory_per_child", "memory_limit"):
            self._at_least(name, 0)
        for name in ("prefetch_time", "start_timeout"):
            self._at_least(name, 0.001)

    def _at_least(self, name: str, least: float) -> None:
        value = getattr(self, name)
        if not math.isfinite(value) or value < least:
            raise ValueError(f"{name} must be at least {least}, not {value!r}")

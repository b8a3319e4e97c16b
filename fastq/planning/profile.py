"""A profile: the facts that ``fastq bench`` measured, as a JSON file that ``fastq plan`` reads.

Costs are CPU seconds per task. A cost that depends on the payload is a curve through the measurements at some sizes.
"""

import dataclasses
import json
import math
import os
import platform
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, get_type_hints

__all__ = ["Costs", "Curve", "Machine", "Profile", "RedisFacts", "ServerFacts", "Wakes"]
__all__ += ["VERSION", "default_path", "load_profile", "save"]

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Curve:
    """A value that depends on a payload's bytes or a wait's seconds: lines through points, in ascending order."""

    points: Sequence[tuple[float, float]]

    def __post_init__(self) -> None:
        sizes, values = zip(*self.points, strict=True) if self.points else ((), ())
        if len(sizes) < 2 or list(sizes) != sorted(set(sizes)) or list(values) != sorted(values) or values[0] < 0:
            raise ValueError(f"a curve needs at least two rising points: {self.points!r}")

    @classmethod
    def through(cls, measured: Mapping[float, float]) -> Self:
        """Return a curve through measured points; where noise would make it fall, neighbors get their mean."""
        pools: list[tuple[list[float], float]] = []
        for size, value in sorted(measured.items()):
            pools.append(([size], max(0.0, value)))
            while len(pools) > 1 and pools[-2][1] > pools[-1][1]:
                (sizes, mean), (more, other) = pools[-2:]
                both = sizes + more
                pools[-2:] = [(both, (mean * len(sizes) + other * len(more)) / len(both))]
        return cls(tuple((size, mean) for sizes, mean in pools for size in sizes))

    def at(self, size: float) -> float:
        """Return the value for a payload; beyond the points, the line through the last two continues."""
        right = bisect_right(self.points, size, key=lambda point: point[0])
        right = min(max(right, 1), len(self.points) - 1)
        (x0, y0), (x1, y1) = self.points[right - 1 : right + 1]
        if size <= self.points[0][0]:
            return self.points[0][1]
        return y0 + (y1 - y0) * (size - x0) / (x1 - x0)


@dataclass(frozen=True, slots=True)
class Wakes:
    """The cost of wake-ups, which tasks in full batches do not cause: ``first_s`` CPU seconds per task if tasks are
    rare.

    If tasks arrive less than ``shared_s`` apart, one wake-up serves several.
    """

    first_s: float
    shared_s: float

    def a_task(self, rate: float) -> float:
        """Return the CPU seconds per task at a rate in tasks per second."""
        return self.first_s / (1 + rate * self.shared_s)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of the measurement.

    ``crowding`` is the CPU time of a computation while all cores are busy, divided by its CPU time alone.
    """

    host: str
    cores: float
    memory_bytes: int
    crowding: float
    others_cores: float


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """The measured Redis. ``is_here`` means that it ran on the same machine; ``limit_bytes`` is 0 without maxmemory."""

    version: str
    is_here: bool
    round_trip_s: float
    limit_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of a task in full batches: CPU seconds per process, bytes on the wire, bytes in Redis."""

    enqueue_one_redis: Curve
    enqueue_one_client: Curve
    enqueue_many_redis: Curve
    enqueue_many_client: Curve
    process_redis: Curve
    process_main: Curve
    process_child: Curve
    redis_received: Curve
    redis_sent: Curve
    redis_memory: Curve
    completed_redis_s: float
    completed_memory_bytes: float
    coroutine_main_s: float
    coroutine_child_s: float
    wait_child_s: float


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The behavior of a server: the cost of wake-ups with and without a backlog, gaps between tasks, memory, idle load.

    Coroutines end in bunches, so they cause fewer wake-ups than plain tasks: ``coroutine_wakes`` is the ratio.
    ``coroutine_gap_s`` is the time from the end of one to the start of the next. Redis and the main process partly work
    at the same time: ``overlap`` is that time, divided by the work of the less busy of the two.
    """

    backlog_main: Wakes
    backlog_redis: Wakes
    steady_main: Wakes
    steady_redis: Wakes
    coroutine_wakes: float
    overlap: float
    no_op_rate: float
    slot_gap_s: float
    coroutine_gap_s: Curve
    main_memory_bytes: int
    child_memory_bytes: int
    idle_commands_a_s: float
    idle_main_cores: float
    idle_redis_cores: float


@dataclass(frozen=True, slots=True)
class Profile:
    """All measurements, made with ``children`` children.

    ``loop_s`` is the time of one loop of a handler that runs alone.
    """

    version: int
    fastq: str
    python: str
    measured_at: str
    seconds: float
    children: int
    loop_s: float
    machine: Machine
    redis: RedisFacts
    costs: Costs
    server: ServerFacts

    def as_record(self) -> dict[str, Any]:
        """Return the profile as a dict for JSON."""
        return dataclasses.asdict(self)


def default_path() -> Path:
    """Return the path of a machine's profile: $XDG_STATE_HOME/fastq/bench-HOST.json, by default in ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "fastq" / f"bench-{platform.node()}.json"


def save(profile: Profile, path: Path) -> None:
    """Write a profile atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(profile.as_record(), indent=2) + "\n")
    new.replace(path)


def load_profile(path: Path) -> Profile:
    """Read a profile; ``ValueError`` with the reason if the file is not a profile."""
    try:
        record = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(
            f"there is no profile {path}: run fastq bench to make one, or name one with --profile"
        ) from None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(record, dict) or record.get("version") != VERSION:
        raise ValueError(f"{path} is not a profile of version {VERSION}: run fastq bench again")
    try:
        profile: Profile = _read(Profile, record)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a profile: {error}; run fastq bench again") from None
    return profile


def _read(kind: Any, value: Any) -> Any:
    if kind is Curve:
        return Curve(tuple((_finite(size), _finite(y)) for size, y in value["points"]))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{field.name: _read(hints[field.name], value[field.name]) for field in dataclasses.fields(kind)})
    if kind is float:
        return _finite(value)
    if type(value) is not kind:
        raise ValueError(f"{value!r} is not of type {kind.__name__}")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)

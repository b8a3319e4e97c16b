"""The model: how much of each part of a fleet a load uses, and the capacity of the fleet. All functions are pure.

Each part has a share, which is 1 when the part is fully used. In full batches, each task costs the same. The cost of
wake-ups per task falls as the rate grows, and is 0 when the main process is never idle.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from fastq.planning.load import Load, scaled, total_rate
from fastq.planning.profile import Profile

SHARPNESS: Final = 6.0
"""With this exponent, two full parts have a share of 1.12 together, because each sometimes waits for the other."""
_STEPS: Final = 45
_MOST_FACTOR: Final = 1e12


class Part(Enum):
    """The parts of a fleet that may be its limit."""

    CHILDREN = "children"
    CORES = "cores"
    MAIN = "main process"
    REDIS = "Redis CPU"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Identical servers: the cores and children of each, and the bytes per second of Redis' network.

    ``shares_redis`` says that Redis runs on the cores of the only server. ``ValueError`` names a bad value.
    """

    servers: int
    cores: float
    children: int
    async_concurrency: int = 100
    shares_redis: bool = False
    link: float = math.inf

    def __post_init__(self) -> None:
        for name in ("servers", "cores", "children", "async_concurrency", "link"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0: {getattr(self, name)!r}")
        if self.shares_redis and self.servers != 1:
            raise ValueError(f"only one server shares its cores with Redis, not {self.servers}")


class Use(NamedTuple):
    """The utilization of a fleet by a load: the shares, and the figures behind them.

    ``slots`` is how many plain handlers run at once, ``coroutines`` how many ``async def`` handlers. ``*_cores`` are
    CPU seconds per second of the whole fleet. ``waiting`` is the part of the slots' time in which handlers wait.
    """

    shares: Mapping[Part, float]
    slots: float
    coroutines: float
    handler_cores: float
    child_cores: float
    main_cores: float
    redis_cores: float
    redis_received: float
    redis_sent: float
    waiting: float


def use(profile: Profile, loads: Sequence[Load], fleet: Fleet, *, backlog: bool = False) -> Use:
    """Compute the utilization of a fleet by a load; with ``backlog``, from a full queue without new tasks."""
    costs, server = profile.costs, profile.server
    rate = total_rate(loads)
    main_s = sum(load.rate * _main_s(profile, load) for load in loads)
    process_s = sum(load.rate * _redis_s(profile, load) for load in loads)
    enqueue_s = 0.0 if backlog else sum(load.rate * costs.enqueue_many_redis.at(load.payload) for load in loads)
    loop = (main_s + process_s - server.overlap * min(main_s, process_s)) / fleet.servers
    main_wakes, redis_wakes = (
        (server.backlog_main, server.backlog_redis) if backlog else (server.steady_main, server.steady_redis)
    )
    redis_s = process_s + enqueue_s
    idle = max(0.0, 1 - loop)
    a_server = rate / fleet.servers
    waking = sum(load.rate * (server.coroutine_wakes if load.is_async and backlog else 1.0) for load in loads)
    main_s += fleet.servers * idle * awake(waking / fleet.servers * main_wakes.a_task(a_server))
    redis_s += max(0.0, min(idle, 1 - redis_s)) * awake(waking * redis_wakes.a_task(a_server))

    slots, coroutines = _held(profile, loads)
    handlers = sum(load.rate * load.cpu_s for load in loads) * profile.machine.crowding
    children_s = sum(load.rate * _child_s(profile, load) for load in loads)
    received, sent = (
        sum(load.rate * curve.at(load.payload) for load in loads) for curve in (costs.redis_received, costs.redis_sent)
    )
    on_servers = handlers + children_s + main_s + (redis_s if fleet.shares_redis else 0.0)
    children = fleet.servers * fleet.children
    waiting = sum(load.rate * load.wait_s for load in loads if not load.is_async)
    shares = {
        Part.CHILDREN: (slots + _children_for_coroutines(profile, loads, fleet, coroutines)) / children,
        Part.CORES: on_servers / (fleet.servers * fleet.cores),
        Part.MAIN: loop,
        Part.REDIS: redis_s,
        Part.NETWORK: max(received, sent) / fleet.link,
    }
    return Use(
        shares, slots, coroutines, handlers, children_s, main_s, redis_s, received, sent,
        waiting / slots if slots else 1.0,
    )  # fmt: skip


def awake(waking: float) -> float:
    """Return the share of its idle time in which a process is awake, given the seconds per second that wake-ups cost.

    A process that is awake need not be woken up.
    """
    return waking / (1 + waking)


def _main_s(profile: Profile, load: Load) -> float:
    costs = profile.costs
    return costs.process_main.at(load.payload) + (costs.coroutine_main_s if load.is_async else 0.0)


def _redis_s(profile: Profile, load: Load) -> float:
    costs = profile.costs
    return costs.process_redis.at(load.payload) + (costs.completed_redis_s if load.retention else 0.0)


def _child_s(profile: Profile, load: Load) -> float:
    """Return the CPU seconds that a child takes per task, without those of the handler."""
    costs = profile.costs
    extra_s = costs.coroutine_child_s if load.is_async else costs.wait_child_s if load.wait_s else 0.0
    return costs.process_child.at(load.payload) + extra_s


def _held(profile: Profile, loads: Sequence[Load]) -> tuple[float, float]:
    """Return the number of slots and coroutines in use, by Little's law: rate times time."""
    slots = coroutines = 0.0
    for load in loads:
        busy_s = load.cpu_s * profile.machine.crowding + load.wait_s
        if load.is_async:
            coroutines += load.rate * (busy_s + _coroutine_gap_s(profile, load))
        else:
            gap_s = profile.server.slot_gap_s if load.wait_s else 0.0
            slots += load.rate * (busy_s + gap_s + profile.costs.process_child.at(load.payload))
    return slots, coroutines


def _coroutine_gap_s(profile: Profile, load: Load) -> float:
    """Return the time from a coroutine's end to the next one's start, at most as measured with the longest wait."""
    gaps = profile.server.coroutine_gap_s
    return gaps.at(min(load.wait_s, gaps.points[-1][0]))


def _children_for_coroutines(profile: Profile, loads: Sequence[Load], fleet: Fleet, coroutines: float) -> float:
    """Return the number of children that coroutines keep busy, by the number of coroutines or by their CPU time."""
    crowding = profile.machine.crowding
    computing = sum(load.rate * (load.cpu_s * crowding + _child_s(profile, load)) for load in loads if load.is_async)
    return max(coroutines / fleet.async_concurrency, computing)


def combined(found: Use) -> float:
    """Return one share for the whole fleet: parts that are nearly full at the same time slow each other down.

    Children that compute do not count as a part, since their cores do; children that wait count.
    """
    shares = dict(found.shares)
    children, cores = shares.pop(Part.CHILDREN), shares.pop(Part.CORES)
    machine = max(children, _together(cores, children * found.waiting))
    return _together(machine, *shares.values())


def _together(*shares: float) -> float:
    most = max(shares)
    return most * sum((share / most) ** SHARPNESS for share in shares) ** (1 / SHARPNESS) if most else 0.0


def capacity(profile: Profile, loads: Sequence[Load], fleet: Fleet, *, backlog: bool = False) -> float:
    """Return the largest multiple of the loads' rates that the fleet carries."""
    return _solve(lambda factor: combined(use(profile, scaled(loads, factor), fleet, backlog=backlog)), 1.0)


def factor_until(profile: Profile, loads: Sequence[Load], fleet: Fleet, part: Part, share: float = 1.0) -> float:
    """Return the multiple of the loads' rates at which a part alone reaches a share; infinite if it never does."""
    return _solve(lambda factor: use(profile, scaled(loads, factor), fleet).shares[part], share)


def _solve(share_at: Callable[[float], float], share: float) -> float:
    """Find the factor at which a growing share reaches a value, to twelve digits."""
    low, high = 0.0, 1.0
    while share_at(high) < share:
        low, high = high, high * 2
        if high > _MOST_FACTOR:
            return math.inf
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if share_at(middle) < share else (low, middle)
    return high

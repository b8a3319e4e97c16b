"""Computes a plan from loads and a profile: children, servers, Redis, memory, a burst, the next limit. No I/O."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fastq.planning.load import Load, scaled, total_rate
from fastq.planning.model import Fleet, Part, Use, capacity, factor_until, use
from fastq.planning.profile import Profile
from fastq.planning.waiting import Waiting, spread, waiting

MOST_SERVERS: Final = 100_000
MOST_NODES: Final = 1_000
"""The largest recommended size of a Redis cluster."""
MOST_CHILDREN: Final = 4_096
"""The largest number of children of one server."""
PREFETCH_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Wish:
    """The input of a plan: the loads, and the given parts of the fleet; None means to be determined.

    ``utilization`` is the largest share of any part. ``burst`` is a number of tasks that arrive at once on top of the
    loads; ``within``, if given, is the seconds to process them. ``redis_memory`` and ``child_memory`` (used by the app
    itself, in each child) are in bytes. ``ValueError`` names a bad value.
    """

    loads: Sequence[Load]
    utilization: float = 0.7
    burst: int = 0
    within: float | None = None
    servers: int | None = None
    cores: float | None = None
    children: int | None = None
    async_concurrency: int = 100
    shares_redis: bool = False
    link: float = 1.25e9
    redis_memory: int | None = None
    child_memory: int = 0

    def __post_init__(self) -> None:
        if not self.loads:
            raise ValueError("there is no load to plan for")
        if not 0 < self.utilization <= 1:
            raise ValueError(f"utilization must be above 0 and at most 1: {self.utilization:g}")
        if not total_rate(self.loads) and not self.burst:
            raise ValueError("there is nothing to do: every rate is 0, and there is no burst")
        if self.within is not None and not self.burst:
            raise ValueError(f"within={self.within:g} s needs burst=<how many tasks come at once>")
        if self.within is not None and self.within <= 0:
            raise ValueError(f"within, the time for the burst, must be above 0: {self.within:g} s")
        if self.shares_redis and (self.servers or 1) != 1:
            raise ValueError(f"only one server shares its machine with Redis, not {self.servers}")
        for name in ("servers", "cores", "children"):
            given = getattr(self, name)
            if given is not None and given <= 0:
                raise ValueError(f"{name} must be above 0: {given:g}")
        if self.children is not None and self.children > MOST_CHILDREN:
            raise ValueError(f"children must be at most {MOST_CHILDREN} per server: {self.children}")


class Limit(NamedTuple):
    """The rate of this mix, in tasks a second, at which a part is full, and how full it is at the load."""

    part: str
    share: float
    rate: float


class RedisNeed(NamedTuple):
    """The tasks per second that one Redis carries, with headroom and at most, and the number of nodes needed.

    ``nodes`` is None if no cluster is big enough.
    """

    share: float
    rate_with_room: float
    rate_at_most: float
    nodes: int | None


class Memory(NamedTuple):
    """Memory in bytes: a task in Redis; Redis under the load, and with the burst; its limit (0: none); a server.

    ``waiting`` and ``kept`` are numbers of tasks; ``full_after_s`` is the time until a growing queue has filled Redis.
    """

    a_task: float
    waiting: float
    kept: float
    steady: float
    with_burst: float
    limit: int
    full_after_s: float
    a_server: float


class Burst(NamedTuple):
    """The time of a burst: for one producer to enqueue it, and for the fleet to process it; may be infinite."""

    tasks: int
    enqueue_s: float
    drain_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for a wish. Rates are tasks per second; ``growth`` is the growth of queues if the fleet is too small."""

    wish: Wish
    rate: float
    fleet: Fleet
    children_needed: int
    servers_needed: int | None
    use: Use
    capacity: float
    growth: float
    wait: Waiting
    limits: Sequence[Limit]
    redis: RedisNeed
    memory: Memory
    burst: Burst | None

    @property
    def is_enough(self) -> bool:
        """Return whether every part keeps its headroom."""
        shares = self.use.shares.values()
        return not self.growth and max(shares) <= self.wish.utilization + 1e-9


def make_plan(profile: Profile, wish: Wish) -> Plan:
    """Compute a plan."""
    loads = wish.loads if total_rate(wish.loads) else tuple(replace(load, rate=1.0) for load in wish.loads)
    is_burst_only = loads is not wish.loads
    children, servers = _needed(profile, wish, _to_carry(wish, loads))
    fleet = _fleet(profile, wish, children, servers)
    found = use(profile, wish.loads, fleet)
    rate = total_rate(wish.loads)
    most = capacity(profile, loads, fleet) * total_rate(loads)
    growth = 0.0 if is_burst_only else max(0.0, rate - most)
    wait = _wait(wish, fleet, found)
    return Plan(
        wish=wish,
        rate=rate,
        fleet=fleet,
        children_needed=children,
        servers_needed=servers,
        use=found,
        capacity=most,
        growth=growth,
        wait=wait,
        limits=sorted(_limits(profile, loads, fleet, found), key=lambda limit: limit.rate),
        redis=_redis(profile, wish, loads, fleet, found),
        memory=_memory(profile, wish, fleet, found, wait, growth),
        burst=_burst(profile, wish, loads, fleet) if wish.burst else None,
    )


def _to_carry(wish: Wish, mix: Sequence[Load]) -> Sequence[Load]:
    """Return the loads, with the additional rate of a burst that has a time limit."""
    more = wish.burst / wish.within if wish.within else 0.0
    return scaled(mix, (total_rate(wish.loads) + more) / total_rate(mix))


def _fleet(profile: Profile, wish: Wish, children: int, servers: int | None) -> Fleet:
    count = wish.servers or servers or 1
    return Fleet(
        servers=count,
        cores=wish.cores or profile.machine.cores,
        children=wish.children or min(MOST_CHILDREN, math.ceil(children / count)),
        async_concurrency=wish.async_concurrency,
        shares_redis=wish.shares_redis,
        link=wish.link,
    )


def _needed(profile: Profile, wish: Wish, loads: Sequence[Load]) -> tuple[int, int | None]:
    """Return the number of children and servers that keep the headroom; None if no number of servers does."""
    cores = wish.cores or profile.machine.cores
    one = Fleet(1, cores, 1, wish.async_concurrency)
    plain = use(profile, [load for load in loads if not load.is_async], one).shares[Part.CHILDREN]
    coroutines = use(profile, [load for load in loads if load.is_async], one).shares[Part.CHILDREN]
    # Computed separately, because a child runs only one sort at a time.
    children = math.ceil(plain / wish.utilization - 1e-9) + math.ceil(coroutines / wish.utilization - 1e-9)
    children = children or max(1, int(cores))  # without a time limit for a burst: as many as a server has by default

    def is_enough(servers: int) -> bool:
        fleet = Fleet(servers, cores, math.ceil(children / servers), wish.async_concurrency, wish.shares_redis)
        shares = use(profile, loads, fleet).shares
        most = wish.utilization + 1e-9
        return fleet.children <= MOST_CHILDREN and shares[Part.CORES] <= most and shares[Part.MAIN] <= most

    if wish.shares_redis:
        return children, 1 if is_enough(1) else None
    return children, _least(is_enough, MOST_SERVERS)


def _least(is_enough: Callable[[int], bool], most: int) -> int | None:
    """Return the least number that is enough; more are assumed never to carry less."""
    high = 1
    while not is_enough(high):
        high *= 2
        if high > most:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _wait(wish: Wish, fleet: Fleet, found: Use) -> Waiting:
    """Estimate how long plain tasks wait; coroutines begin at once unless all are in use."""
    plain = [load for load in wish.loads if not load.is_async]
    rate = total_rate(plain)
    if not rate:
        return Waiting(0.0, 0.0, 0.0)
    slots = fleet.servers * fleet.children
    if max(found.shares.values()) >= 1:
        return Waiting(1.0, math.inf, math.inf)
    # Children that coroutines keep busy have no slot for plain tasks.
    free = max(1, slots - math.ceil(found.shares[Part.CHILDREN] * slots - found.slots - 1e-9))
    return waiting(free, found.slots, found.slots / rate, spread(plain))


def _limits(profile: Profile, loads: Sequence[Load], fleet: Fleet, found: Use) -> Iterator[Limit]:
    rate = total_rate(loads)
    for part in Part:
        yield Limit(part.value, found.shares[part], rate * factor_until(profile, loads, fleet, part))


def _redis(profile: Profile, wish: Wish, loads: Sequence[Load], fleet: Fleet, found: Use) -> RedisNeed:
    rate = total_rate(loads)
    with_room, most = (
        rate * factor_until(profile, loads, fleet, Part.REDIS, share) for share in (wish.utilization, 1.0)
    )

    def is_enough(nodes: int) -> bool:
        each = replace(fleet, servers=max(1, fleet.servers // nodes))
        share = use(profile, scaled(wish.loads, 1 / nodes), each).shares[Part.REDIS]
        return share <= wish.utilization + 1e-9

    return RedisNeed(found.shares[Part.REDIS], with_room, most, _least(is_enough, MOST_NODES))


def _memory(profile: Profile, wish: Wish, fleet: Fleet, found: Use, wait: Waiting, growth: float) -> Memory:
    costs = profile.costs
    rate = total_rate(wish.loads)
    weights = [load.rate / rate if rate else 1 / len(wish.loads) for load in wish.loads]
    a_task = sum(weight * costs.redis_memory.at(load.payload) for weight, load in zip(weights, wish.loads, strict=True))
    kept = sum(load.rate * load.retention for load in wish.loads)
    kept_bytes = sum(
        load.rate * load.retention * (costs.redis_memory.at(load.payload + load.result) + costs.completed_memory_bytes)
        for load in wish.loads
    )
    queued = rate * wait.mean_s if math.isfinite(wait.mean_s) else 0.0
    running = min(found.slots + found.coroutines, fleet.servers * fleet.children * (1.0 + wish.async_concurrency))
    tasks = queued + running + rate * PREFETCH_S
    steady = profile.redis.used_bytes + tasks * a_task + kept_bytes
    limit = profile.redis.limit_bytes if wish.redis_memory is None else wish.redis_memory
    left = limit - steady - wish.burst * a_task
    full_after_s = max(0.0, left) / (growth * a_task) if limit and growth else math.inf
    a_server = profile.server.main_memory_bytes + fleet.children * (
        profile.server.child_memory_bytes + wish.child_memory
    )
    return Memory(a_task, tasks, kept, steady, steady + wish.burst * a_task, limit, full_after_s, a_server)


def _burst(profile: Profile, wish: Wish, loads: Sequence[Load], fleet: Fleet) -> Burst:
    costs = profile.costs
    rate = total_rate(loads)
    put_s = sum(
        load.rate / rate * (costs.enqueue_many_redis.at(load.payload) + costs.enqueue_many_client.at(load.payload))
        for load in loads
    )
    spare = capacity(profile, loads, fleet, backlog=True) * rate - total_rate(wish.loads)
    return Burst(wish.burst, wish.burst * put_s, wish.burst / spare if spare > 0 else math.inf)

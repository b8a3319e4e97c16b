"""A plan as text: each figure with its source, and advice at the end."""

import math
from collections.abc import Iterator
from typing import Final, TypeAlias

from fastq.cli.figures import count, duration, microseconds, percent, rate, traffic
from fastq.cli.tables import Cell, Column, heading, table
from fastq.planning.load import Load
from fastq.planning.model import Part
from fastq.planning.plan import Plan
from fastq.planning.profile import Profile
from fastq.planning.waiting import Range
from fastq.terminal.screen import Screen
from fastq.text.human import clean, number, size

Row: TypeAlias = tuple[str, str, str]

_COLUMNS: Final = (Column("WHAT"), Column("FIGURE", right=True), Column("WHY", cut=True))
_WAITING: Final = 0.5
"""If a plain handler waits for more than this share of its time, the report advises ``async def``."""


def show_plan(screen: Screen, profile: Profile, plan: Plan) -> None:
    """Print a plan."""
    machine = profile.machine
    for load in plan.wish.loads:
        screen.say(f"Load      {_described(load)}")
    screen.say(
        f"Measured  {clean(machine.host)}, {machine.cores:g} cores, {profile.redis.version}, {profile.measured_at}, "
        f"fastq {profile.fastq}"
    )
    for title, rows in (
        ("Servers", _servers(profile, plan)),
        ("Redis", _redis(profile, plan)),
        ("Time", _time(plan)),
        ("Limits, lowest first", _limits(plan)),
    ):
        screen.say()
        heading(screen, title)
        table(screen, _COLUMNS, list(rows))
    screen.say()
    for line, colour in _verdict(plan):
        screen.say(line, **({"fg": colour} if colour else {}))


def _described(load: Load) -> str:
    kind = "async def" if load.is_async else "plain"
    kept = f", kept for {duration(load.retention)}" if load.retention else ""
    computes = f"{duration(load.cpu_s)} of it CPU" if load.wait_s else "all of it CPU"
    return f"{rate(load.rate)} of {duration(load.duration)}, {computes}, {kind}; payload {size(load.payload)}{kept}"


def _servers(profile: Profile, plan: Plan) -> Iterator[Row]:
    use, fleet, wish = plan.use, plan.fleet, plan.wish
    if use.slots:
        yield "plain handlers at once", count(use.slots), "rate x time in a slot (Little's law)"
    if use.coroutines:
        why = f"rate x time plus a gap before the next one; {fleet.async_concurrency} per child"
        yield "coroutines at once", count(use.coroutines), why
    yield "children needed", number(plan.children_needed), f"no more than {percent(wish.utilization)} busy"
    yield (
        "CPU of handlers",
        f"{count(use.handler_cores)} cores",
        f"x {profile.machine.crowding:.2f} for computing with all cores busy",
    )
    main = f"{microseconds(use.main_cores / plan.rate)} per task, wake-ups included" if plan.rate else "nothing to do"
    yield "CPU of main processes", f"{count(use.main_cores)} cores", main
    yield "other CPU of children", f"{count(use.child_cores)} cores", "taking tasks, returning results, waiting"
    needed = "no number is enough" if plan.servers_needed is None else number(plan.servers_needed)
    yield (
        "servers needed",
        needed,
        f"of {fleet.cores:g} cores, cores and main process within {percent(wish.utilization)}",
    )
    yield (
        "servers x children",
        f"{number(fleet.servers)} x {number(fleet.children)}",
        ("as given" if wish.servers or wish.children else "assumed below"),
    )
    app = "plus the app's own memory" if not wish.child_memory else f"{size(wish.child_memory)} per child for the app"
    yield "memory of a server", size(round(plan.memory.a_server)), app


def _redis(profile: Profile, plan: Plan) -> Iterator[Row]:
    use, memory, redis = plan.use, plan.memory, plan.redis
    if plan.rate:
        yield "CPU", percent(redis.share), f"{microseconds(use.redis_cores / plan.rate)} per task, enqueue and process"
    yield (
        "one Redis carries",
        rate(redis.rate_with_room),
        f"of this mix at {percent(plan.wish.utilization)} of its one core",
    )
    yield "at the very most", rate(redis.rate_at_most), "with its core full"
    yield "network", f"{traffic(use.redis_received)} in", f"{traffic(use.redis_sent)} out"
    yield "memory of a waiting task", size(round(memory.a_task)), "as measured at this payload"
    if memory.kept:
        yield "completed tasks kept", number(round(memory.kept)), "rate x retention"
    yield "memory", size(round(memory.steady)), f"{size(profile.redis.used_bytes)} before, plus the tasks in the system"
    if plan.burst:
        yield "memory with the burst", size(round(memory.with_burst)), f"{number(plan.burst.tasks)} tasks waiting"


def _time(plan: Plan) -> Iterator[Row]:
    wait = plan.wait
    if plan.growth:
        yield "queues grow by", rate(plan.growth), f"{rate(plan.rate)} arrive, {rate(plan.capacity)} are processed"
        if plan.memory.limit:
            yield "Redis is full after", duration(plan.memory.full_after_s), f"at {size(plan.memory.limit)}"
    elif plan.use.slots:
        yield (
            "tasks that wait for a slot",
            percent(wait.probability),
            "Erlang C: assumes that tasks arrive independently",
        )
        yield "mean wait", _range(wait.mean_range), f"of all tasks; {duration(wait.mean_s)} in one queue for all slots"
        yield "one in a hundred waits", _range(wait.p99_range), f"or longer; {duration(wait.p99_s)} in one queue"
    if plan.burst:
        yield "to enqueue the burst", duration(plan.burst.enqueue_s), "by one producer, enqueue_many"
        spare = f"{rate(plan.burst.tasks / plan.burst.drain_s)} on top of the load" if plan.burst.drain_s else ""
        yield (
            "to process the burst",
            duration(plan.burst.drain_s),
            spare if math.isfinite(plan.burst.drain_s) else "no capacity is left",
        )


def _range(waits: Range) -> str:
    return f"{duration(waits.least_s)} to {duration(waits.most_s)}"


def _limits(plan: Plan) -> Iterator[Row]:
    yield "all together", rate(plan.capacity), "capacity of the fleet; parts that are full at once slow each other down"
    for limit in plan.limits:
        colour = "red" if limit.share >= 1 else "yellow" if limit.share > plan.wish.utilization else None
        yield limit.part, rate(limit.rate), Cell(f"{percent(limit.share)} busy at this load", fg=colour)
    if plan.memory.limit:
        part = plan.memory.with_burst / plan.memory.limit
        yield "Redis memory", size(plan.memory.limit), f"{percent(part)} full, with all waiting tasks"


def _verdict(plan: Plan) -> Iterator[tuple[str, str | None]]:
    limit = percent(plan.wish.utilization)
    if plan.is_enough:
        yield f"This is enough: nothing is more than {limit} busy. The next limit: {plan.limits[0].part}.", "green"
    elif plan.growth:
        yield f"This is not enough: queues grow by {rate(plan.growth)}. The limit: {plan.limits[0].part}.", "red"
    else:
        over = ", ".join(limit.part for limit in plan.limits if limit.share > plan.wish.utilization)
        yield f"This works, but with less headroom than asked for. More than {limit} busy: {over}.", "yellow"
    yield from ((line, None) for line in _advice(plan))


def _advice(plan: Plan) -> Iterator[str]:
    if plan.redis.nodes is None:
        yield "Even a cluster of 1,000 nodes cannot carry this: use fewer and bigger tasks."
    elif plan.redis.nodes > 1:
        yield (
            f"One Redis is not enough: spread the tasks over {plan.redis.nodes} queues or more, in a cluster of "
            f"{plan.redis.nodes} nodes. A queue lives on one node."
        )
    if plan.memory.limit and plan.memory.with_burst > plan.memory.limit:
        yield f"Redis would need {size(round(plan.memory.with_burst))}, and may use {size(plan.memory.limit)}."
    plain = [load for load in plan.wish.loads if not load.is_async]
    if any(load.wait_s > _WAITING * load.duration for load in plain):
        yield "Handlers that mostly wait take a child each; written as async def, many of them share a child."
    if plain and len(plain) < len(plan.wish.loads):
        yield "A child runs either plain handlers or coroutines: give each sort its own queues and servers."
    if plan.use.shares[Part.MAIN] > plan.wish.utilization:
        yield "A server has one main process: more and smaller servers share its work."

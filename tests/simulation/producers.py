"""Who else makes tasks: a blocking client, schedulers, and a client that fills groups."""

import asyncio
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from fastq import AsyncClient, Client, Scheduler, Task
from fastq.cron.schedule import Schedule
from fastq.errors import BrokerError, TaskIDConflictError
from fastq.scheduler.entry import Entry, check_registration
from tests.simulation.blocking import blocking, install
from tests.simulation.happenings import Grouped, Keyed, Ticked
from tests.simulation.judge import Answered, Sent
from tests.simulation.limited import hold_tokens
from tests.simulation.loop import Machine

if TYPE_CHECKING:
    from tests.simulation.world import World

GROUP: Final = "of-all"
KEEPS_S: Final = 86_400
PERIOD_S: Final = 6


async def group_tasks(world: "World", machine: Machine) -> None:
    """Fill a group; take tokens and enqueue by key beside it."""
    beside = asyncio.gather(hold_tokens(world, machine), enqueue_by_key(world, machine))
    draw = Random(f"{world.seed} {machine}")
    client = AsyncClient(world.url, timeout=10)
    queue = "default" if world.limits else "low"  # where a limit for each lane would make it one
    for number in range(world.size.of(15)):
        await asyncio.sleep(draw.expovariate(1.0))
        task_id = f"g{number:03}"
        is_acknowledged: bool | None = None
        try:
            await client.enqueue("work", task_id.encode(), task_id=task_id, queue=queue, group=GROUP)
            is_acknowledged = True
        except BrokerError as error:
            is_acknowledged = None if error.maybe_applied else False
        world.tell("grouped", task_id, is_acknowledged)
        world.history.others.append(Grouped(world.now_s, task_id, is_acknowledged))
    await client.close()
    await beside


async def produce_blocking(world: "World", machine: Machine) -> None:
    """Enqueue by a blocking client, and take tokens beside it."""
    install()
    producing = blocking(partial(_produce, world, Random(f"{world.seed} {machine}")))
    await asyncio.gather(producing, hold_tokens(world, machine))


def _produce(world: "World", draw: Random) -> None:
    client = Client(world.url, timeout=10)
    for number in range(world.size.of(12)):
        time.sleep(draw.expovariate(0.7))
        task_id, queue, max_retry = f"b{number:03}", draw.choice(world.queues), draw.choice((0, 1))
        world.queue_of[task_id] = queue
        world.history.note(Sent(world.now_s, task_id, world.now_s, max_retry, "", True))
        may_be_there = False
        while True:
            try:
                client.enqueue(
                    "work", task_id.encode(), task_id=task_id, queue=queue, max_retry=max_retry, retention=KEEPS_S
                )
            except TaskIDConflictError:
                world.history.note(Answered(world.now_s, task_id, may_be_there))
            except BrokerError as error:
                may_be_there |= error.maybe_applied
                time.sleep(0.5)
                continue
            else:
                world.history.note(Answered(world.now_s, task_id, True))
            world.tell("answer", task_id)
            break
    client.close()


async def enqueue_by_key(world: "World", machine: Machine) -> None:
    """Enqueue by a few keys, so often that many come while a task with the key waits or runs."""
    draw = Random(f"{world.seed} {machine} keys")
    client = AsyncClient(world.url, timeout=10)
    numbers: defaultdict[str, int] = defaultdict(int)
    for _ in range(world.size.of(40)):
        await asyncio.sleep(draw.expovariate(1.5))
        key = f"k{draw.randrange(3)}"
        numbers[key] += 1
        await _put(world, client, key, numbers[key], draw)
    await client.close()


async def _put(world: "World", client: AsyncClient, key: str, number: int, draw: Random) -> None:
    name, is_stored = f"{key}#{number}", None
    options: dict[str, Any] = {"if_there": draw.choice(("rerun", "rerun", "postpone", "replace"))}
    if options["if_there"] == "postpone":
        options |= {"process_in": draw.uniform(0, 8), "latest": 10}
    world.queue_of[key] = world.queue_of[name] = "default"
    world.history.note(Sent(world.now_s, name, world.now_s, world.size.retries, "", True))
    try:
        info = await client.enqueue(
            "work", name.encode(), key=key, max_retry=world.size.retries, retention=KEEPS_S, **options
        )
        is_stored = info.key_outcome != "kept"
    except BrokerError as error:
        is_stored = None if error.maybe_applied else False
    world.tell("by key", name, options["if_there"], is_stored)
    world.history.others.append(Keyed(world.now_s, key, number, is_stored))


class _Aligned(Schedule):
    """Due at whole multiples of a period, so that all schedulers have the same ticks within a minute."""

    def _next(self, after: datetime) -> datetime | None:
        at_s = int(after.timestamp())
        return after + timedelta(seconds=PERIOD_S - at_s % PERIOD_S)


async def schedule(world: "World", machine: Machine) -> None:
    """Be one of two schedulers of the same entry."""
    install()
    await blocking(partial(_schedule, world))


def _schedule(world: "World") -> None:
    scheduler = Scheduler(world.url)
    engine: Any = scheduler._engine
    task = Task("tick", b"tick", queue="default", retention=KEEPS_S, max_retry=1)
    registration = check_registration(_Aligned("@every 6s", UTC), task, {}, "tick", "skip")
    engine.add(Entry(registration, engine.now()))
    compose = engine._compose

    def told(entry: Entry, due: datetime) -> Any:
        made = compose(entry, due)
        if made is not None:
            world.tell("tick", due.isoformat(), made.info.id)
            world.history.others.append(Ticked(world.now_s, "tick", due.timestamp(), made.info.id))
        return made

    engine._compose = told
    engine.begin()
    while not world.is_produced:
        time.sleep(scheduler._loop._guarded_turn())
    engine.clear()
    scheduler._broker.close()

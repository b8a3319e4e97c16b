"""Who else acts in a world: inspectors at random, and clients that wait for results."""

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from fastq import AsyncClient, AsyncInspector
from fastq.errors import (
    BrokerError,
    FastqError,
    TaskFailedError,
    TaskGoneError,
    TaskIDConflictError,
    TaskNotFoundError,
)
from tests.simulation.happenings import Acted, Paused, Told
from tests.simulation.judge import Answered, Sent, Struck
from tests.simulation.loop import Machine

if TYPE_CHECKING:
    from tests.simulation.world import World

KEEPS_S: Final = 86_400
ACTS: Final = ("cancel", "cancel", "run", "archive", "delete")
SUBMITS: Final = 12
WRITTEN: Final = {"done": ["completed"], "failed": ["archived"], "gone": []}
"""Where a task is that has ended so."""


async def inspect(world: "World", machine: Machine) -> None:
    """Do by hand what operators do, to tasks and queues."""
    draw = Random(f"{world.seed} {machine}")
    inspector = AsyncInspector(world.url)
    while not world.is_produced:
        await asyncio.sleep(draw.expovariate(1 / 6))
        if draw.random() < 0.2:
            await pause(world, inspector, draw.choice(world.queues), draw.uniform(1, 12))
        elif (known := [one for one in world.history.acknowledged if one[0] in "tl"]) and draw.random() < 0.6:
            what = draw.choice(ACTS)
            running = [one for one in known if what == "cancel" and one in world.keyspace.active(world.queue_of[one])]
            await act(world, inspector, draw.choice(running or known[-8:]), what)
    for queue in world.queues:  # that it was done is lost with a master, perhaps
        await until_done(partial(inspector.unpause_queue, queue))
    await inspector.close()


async def act(world: "World", inspector: AsyncInspector, task_id: str, what: str) -> None:
    """Do something with a task, and note what came of it."""
    queue = world.queue_of[task_id]
    at_s = world.now_s
    is_done: bool | None = True
    try:
        match what:
            case "cancel":
                await inspector.cancel_processing(task_id, queue=queue)
            case "run":
                await inspector.run_task(queue, task_id)
            case "archive":
                await inspector.archive_task(queue, task_id)
            case "delete":
                await inspector.delete_task(queue, task_id)
    except BrokerError as error:
        is_done = None if error.maybe_applied else False
    except FastqError as error:
        world.tell("refused", "inspector", what, task_id, type(error).__name__)
        is_done = False
    world.tell("acted", "inspector", what, task_id, is_done)
    if is_done is not False:
        world.history.others.append(Acted(at_s, task_id, what, is_done))


async def pause(world: "World", inspector: AsyncInspector, queue: str, for_s: float) -> None:
    """Pause a queue for a while; what waits there has a reason."""
    began_s = world.now_s
    is_paused = await until_done(lambda: inspector.pause_queue(queue))
    world.tell("paused", queue, is_paused)
    before = set(world.keyspace.active(queue))
    await asyncio.sleep(for_s)
    taken = tuple(sorted(set(world.keyspace.active(queue)) - before)) if is_paused else ()
    world.history.others.append(Paused(began_s, queue, taken))
    await until_done(lambda: inspector.unpause_queue(queue))
    world.tell("unpaused", queue)
    world.history.note(Struck(began_s, world.now_s, queue, "pause"))


async def until_done(call: Any) -> bool:
    """Try again until Redis has answered; return whether it was at the first time."""
    is_first = True
    while True:
        try:
            await call()
        except BrokerError:
            is_first = False
            await asyncio.sleep(1.0)
        except FastqError:
            return False  # it is so already
        else:
            return is_first


async def await_results(world: "World", machine: Machine) -> None:
    """Submit tasks under few ids, one after the other, and wait for what they return."""
    draw = Random(f"{world.seed} {machine}")
    client, inspector = AsyncClient(world.url, timeout=10), AsyncInspector(world.url)
    await asyncio.gather(*(submit_again(world, client, inspector, f"a{nth}", draw) for nth in range(3)))
    await client.close()
    await inspector.close()


async def submit_again(
    world: "World", client: AsyncClient, inspector: AsyncInspector, task_id: str, draw: Random
) -> None:
    """Submit a task again and again under one id; a submit is known by the id and a number."""
    for number in range(world.size.of(SUBMITS // 3)):
        await asyncio.sleep(draw.expovariate(1 / 4))
        name, max_retry, queue = f"{task_id}#{number}", draw.choice((0, 1)), "default"
        world.queue_of[name] = queue
        world.history.note(Sent(world.now_s, name, world.now_s, max_retry, "", False))
        options: Any = {"task_id": task_id, "max_retry": max_retry, "timeout": draw.uniform(5, 25)}
        try:
            handle = await client.submit("work", name.encode(), queue=queue, retention=KEEPS_S, **options)
        except TaskIDConflictError:
            world.history.note(Answered(world.now_s, name, False))
        except BrokerError as error:
            world.tell("no answer", name, str(error), error.maybe_applied)
        else:
            world.history.note(Answered(world.now_s, name, True))
            await hear(world, handle, name, task_id)
        await delete(world, inspector, queue, task_id)
        world.history.others.append(Acted(world.now_s, name, "forget", True))


async def hear(world: "World", handle: Any, name: str, task_id: str) -> None:
    """Wait for a result, and note it."""
    kind, result = "done", ""
    while True:
        try:
            result = (await handle.result(timeout=600) or b"").decode()
        except TaskFailedError:
            kind = "failed"
        except TaskGoneError:
            kind = "gone"
        except BrokerError:
            await asyncio.sleep(1.0)
            continue
        except TimeoutError:
            kind = "nothing"
        places = world.keyspace.places().get(task_id, [])
        is_written = places == WRITTEN.get(kind)
        world.tell("told", name, kind, result, is_written)
        world.history.others.append(Told(world.now_s, name, kind, result, is_written))
        return


async def delete(world: "World", inspector: AsyncInspector, queue: str, task_id: str) -> None:
    """Delete a task, once it does not run any more."""
    while True:
        try:
            await inspector.delete_task(queue, task_id)
        except TaskNotFoundError:
            return
        except FastqError:
            await asyncio.sleep(3.0)

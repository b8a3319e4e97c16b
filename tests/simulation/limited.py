"""Tasks that take a token of a semaphore, hold it for a while, and give it back."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastq import Semaphore
from fastq.errors import BrokerError
from tests.simulation.blocking import blocking, install
from tests.simulation.happenings import Held
from tests.simulation.loop import Machine

if TYPE_CHECKING:
    from tests.simulation.world import World

TOKENS: Final = 2
HOLDERS: Final = 2
TRIES: Final = 6
DEADLINE_S: Final = 15


class _Holder(NamedTuple):
    """The part of a running task that a semaphore asks for."""

    id: str
    deadline: datetime


async def hold_tokens(world: "World", machine: Machine) -> None:
    """Hold tokens of one semaphore, beside those on other machines."""
    install()
    await asyncio.gather(*(blocking(partial(_hold, world, f"{machine} {nth}")) for nth in range(HOLDERS)))


def _hold(world: "World", name: str) -> None:
    draw = Random(f"{world.seed} {name} semaphore")
    semaphore = Semaphore("simulated", TOKENS, world.url)
    for nth in range(world.size.of(TRIES)):
        time.sleep(draw.expovariate(0.3))
        holder: Any = _Holder(f"s{nth} of {name}", datetime.now(UTC) + timedelta(seconds=DEADLINE_S))
        asked_s = world.now_s
        try:
            has_it = semaphore.acquire(holder)
        except BrokerError:
            continue
        began_s = world.now_s
        if has_it:
            time.sleep(draw.uniform(0.1, 6))
        # Whoever waited longer for the answer, or stood still, may have lost it.
        until_s = min(world.now_s, asked_s + DEADLINE_S - 2)
        world.tell("held", name, has_it, began_s, until_s)
        world.history.others.append(Held(began_s, holder.id, until_s if has_it else None))
        if has_it:
            try:
                semaphore.release(holder)
            except BrokerError:
                continue
    semaphore.close()

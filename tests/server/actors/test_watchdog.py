"""The watchdog: who does not get on is started again and it is said; who waits, or has much to do, is left alone."""

import asyncio
from collections.abc import Sequence

import pytest

from fastq.common.clock import SystemClock
from fastq.server.actors.actor import Actor
from fastq.server.actors.watchdog import Watchdog
from fastq.server.base.outage import Outage
from fastq.server.base.timing import Timing
from tests.broker.harness import run
from tests.server.harness import in_flight_of, logged
from tests.waiting import until

QUICK = Timing(watchdog_interval_s=0.01)


class Worker(Actor):
    """Hang in the first ticks, and be done at once in those after them."""

    name = "tester"
    tick_limit_s = 0.05

    def __init__(self, hangs: int = 0) -> None:
        super().__init__(Outage())
        self.hangs = hangs
        self.begun = 0
        self.let_go = asyncio.Event()

    async def tick(self) -> float | None:
        self.begun += 1
        if self.begun <= self.hangs:
            await self.hang()
        return None

    async def hang(self) -> None:
        await self.let_go.wait()


class Deaf(Worker):
    """Hang whatever is raised."""

    async def hang(self) -> None:
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue


class Slow(Worker):
    """Take long, and say so."""

    async def hang(self) -> None:
        while not self.let_go.is_set():
            self.get_on()
            await asyncio.sleep(0)


class Patient(Worker):
    """Wait for ever, as it may."""

    tick_limit_s = None  # type: ignore[assignment]  # as in the base


async def ticked(actor: Actor, times: int) -> None:
    await until(lambda: actor.ticks >= times)


async def looked(watchdog: Watchdog, times: int) -> None:
    await ticked(watchdog, watchdog.ticks + times)


def watching(actors: Sequence[Actor]) -> Watchdog:
    watchdog = Watchdog(actors, QUICK, in_flight_of(SystemClock()).stats)
    for actor in (*actors, watchdog):
        actor.start()
    return watchdog


async def end(watchdog: Watchdog, *actors: Actor) -> None:
    for actor in (watchdog, *actors):
        await actor.stop()


@pytest.mark.parametrize("kind", [Worker, Deaf])
def test_a_tick_that_hangs_is_given_up_and_the_actor_started_again(
    kind: type[Worker], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.server.actors.actor.RESTART_WITHIN_S", 0.02)

    async def test() -> None:
        hanging, other = kind(hangs=1), Worker()
        watchdog = watching([hanging, other])
        await ticked(hanging, 1)
        assert hanging.begun == 2
        assert watchdog._stats.restarts.total() == 1
        hanging.let_go.set()
        hanging.wake()
        await ticked(hanging, 2)
        assert len([task for task in asyncio.all_tasks() if task.get_name() == "fastq tester"]) <= 2, "one loop each"
        await end(watchdog, hanging, other)

    run(test)
    (said,) = logged(caplog)
    assert said.startswith("restarting the tester: it has made no progress for ")


def test_an_actor_whose_task_died_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        actor = Worker()
        watchdog = watching([actor])
        await ticked(actor, 1)
        assert actor._task is not None
        actor._task.cancel()  # as a stray cancellation from a library would
        await ticked(actor, 2)
        await end(watchdog, actor)

    run(test)
    assert logged(caplog) == ["restarting the tester: its task has died"]


def test_who_waits_has_much_to_do_or_was_stopped_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        idle, slow, patient, stopped = actors = [Worker(), Slow(hangs=1), Patient(hangs=1), Worker(hangs=1)]
        watchdog = watching(actors)
        await asyncio.sleep(0)
        await stopped.stop()
        await looked(watchdog, 10)
        assert watchdog._stats.restarts.total() == 0
        slow.let_go.set()
        await ticked(slow, 1)
        assert (idle.begun, slow.begun, patient.begun) == (1, 1, 1)
        await end(watchdog, *actors)

    run(test)
    assert logged(caplog) == []


def test_after_the_whole_process_stood_still_nobody_is_blamed() -> None:
    """A server that was frozen for an hour wakes with every tick an hour old."""

    async def test() -> None:
        actor = Worker(hangs=1)
        actor.tick_limit_s = 1800.0
        watchdog = watching([actor])
        await looked(watchdog, 2)
        await watchdog.stop()
        actor._got_on_s -= 3600
        assert watchdog._looked_s is not None
        watchdog._looked_s -= 3600
        await watchdog.tick()
        assert (watchdog._stats.restarts.total(), actor.why_stuck()) == (0, "")
        await end(watchdog, actor)

    run(test)

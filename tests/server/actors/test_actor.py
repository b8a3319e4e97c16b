"""What all actors share: their rhythm, how they take errors, and that they end when told to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from fastq.errors import BrokerConnectionError, BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.base.outage import MAX_BACKOFF_S, Outage
from tests.broker.harness import run
from tests.waiting import until


class Worker(Actor):
    """Do what it is given, tick by tick; then nothing more until woken."""

    name = "tester"

    def __init__(self, *work: Callable[[], Awaitable[float | None]], first_after_s: float | None = 0.0) -> None:
        super().__init__(Outage())
        self._work = list(work)
        self._first_after_s = first_after_s

    def first_tick_after_s(self) -> float | None:
        return self._first_after_s

    async def tick(self) -> float | None:
        return await self._work.pop(0)() if self._work else None

    async def until_ticked(self, times: int) -> None:
        await until(lambda: self.ticks >= times)


async def again() -> float | None:
    return 0.0


async def fail() -> float | None:
    raise BrokerConnectionError("Redis is away", operation="dequeue")


async def stumble() -> float | None:
    raise ZeroDivisionError("a defect")


async def hang() -> float | None:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


def test_an_actor_ticks_at_once_and_then_as_its_ticks_say() -> None:
    async def test() -> None:
        actor = Worker(again, again)
        actor.start()
        await actor.until_ticked(3)
        assert actor.ticks == 3
        await actor.stop()

    run(test)


def test_an_actor_that_waits_is_woken() -> None:
    async def test() -> None:
        actor = Worker(first_after_s=None)
        actor.start()
        for _ in range(5):
            await asyncio.sleep(0)
        assert actor.ticks == 0
        actor.wake()
        await actor.until_ticked(1)
        actor.wake()
        await actor.until_ticked(2)
        await actor.stop()

    run(test)


def test_a_wake_during_a_tick_is_not_forgotten() -> None:
    async def test() -> None:
        async def wake_myself() -> float | None:
            actor.wake()
            return None

        actor = Worker(wake_myself)
        actor.start()
        await actor.until_ticked(2)
        await actor.stop()

    run(test)


def test_who_waits_after_a_failure_goes_on_as_soon_as_somebody_has_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.server.actors.actor.backoff_s", lambda _: 3600.0)
    monkeypatch.setattr(Worker, "longest_backoff_s", 3600.0)

    async def test() -> None:
        actor = Worker(fail, fail, again)
        actor.start()
        await actor.until_ticked(1)
        actor.outage.report("another", BrokerConnectionError("Redis is away"))
        actor.outage.clear("another")
        await actor.until_ticked(2)
        actor.outage.try_again()
        await actor.until_ticked(3)
        await actor.stop()
        assert not actor.outage.retries, "nobody is left to try again"

    run(test)


def test_an_outage_is_said_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fastq")

    async def test() -> None:
        actor = Worker(fail, fail, fail, again)
        actor.start()
        for number in range(4):
            await actor.until_ticked(number + 1)
            actor.wake()
        await actor.until_ticked(5)
        await actor.stop()

    run(test)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "dequeue: Redis is away; trying again until it works"),
        ("INFO", "Redis operations succeed again after 3 failed attempts"),
    ]
    assert {record.name for record in caplog.records} == {"fastq.tester"}


def test_a_defect_is_logged_with_its_traceback_and_the_actor_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        actor = Worker(stumble, again)
        actor.start()
        await actor.until_ticked(1)
        actor.wake()
        await actor.until_ticked(3)
        await actor.stop()

    run(test)
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_pauses_grow_with_each_failure_to_an_end_well_within_a_lease() -> None:
    async def test() -> None:
        actor = Worker(*[fail] * 40)
        pauses = [await actor._guarded_tick() or 0.0 for _ in range(40)]
        for number, pause_s in enumerate(pauses, 1):
            longest_s = min(MAX_BACKOFF_S, 0.1 * 2**number)
            assert longest_s / 2 <= pause_s <= longest_s
        assert MAX_BACKOFF_S <= 5.0

    run(test)


def test_an_error_in_one_actor_does_not_stop_another() -> None:
    async def test() -> None:
        failing, stumbling, working = Worker(*[fail] * 3), Worker(*[stumble] * 3), Worker(*[again] * 50)
        for actor in (failing, stumbling, working):
            actor.start()
        await working.until_ticked(51)
        for actor in (failing, stumbling, working):
            await actor.stop()

    run(test)


@pytest.mark.parametrize("work", [again, fail, stumble, hang])
def test_actors_start_and_stop_again_and_again(work: Callable[[], Awaitable[float | None]]) -> None:
    async def test() -> None:
        for number in range(50):
            actor = Worker(*[work] * 100)
            actor.start()
            for _ in range(number % 7):
                await asyncio.sleep(0)
            await actor.stop()
            await actor.stop()
        assert len(asyncio.all_tasks()) == 1, "no task is left behind"

    run(test)


@pytest.mark.parametrize("turns", range(6))
def test_an_actor_that_is_woken_and_stopped_at_once_ends(turns: int) -> None:
    # asyncio.wait_for of Python 3.11 swallows a cancellation that comes when what it waits for is there.
    async def test() -> None:
        actor = Worker(first_after_s=60.0)
        actor.start()
        for _ in range(3):
            await asyncio.sleep(0)
        actor.wake()
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping = asyncio.create_task(actor.stop())
        for _ in range(20):
            await asyncio.sleep(0)
        assert stopping.done()

    run(test)


def test_a_tick_that_swallows_its_cancellation_is_cancelled_again() -> None:
    async def test() -> None:
        swallowed = 0

        async def swallow() -> float | None:
            nonlocal swallowed
            for _ in range(3):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    swallowed += 1
            return await hang()

        actor = Worker(swallow)
        actor.start()
        await asyncio.sleep(0)
        await actor.stop()
        assert swallowed == 3
        assert len(asyncio.all_tasks()) == 1

    run(test)


def test_an_actor_that_was_never_started_can_be_stopped() -> None:
    async def test() -> None:
        await Worker().stop()

    run(test)


def test_what_a_tick_must_be_is_said_by_its_class() -> None:
    with pytest.raises(NotImplementedError):
        asyncio.run(Actor(Outage()).tick())
    assert issubclass(BrokerConnectionError, BrokerError)

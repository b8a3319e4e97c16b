"""The count-down of a shutdown: handlers have their time, a second signal takes it, Redis gets what is left."""

import asyncio

import pytest

from fastq.server.wiring.countdown import LAST_WRITES_S, Countdown, within
from tests.broker.harness import run

LONG_S = 3600.0


async def never() -> None:
    await asyncio.Event().wait()


async def soon() -> None:
    await asyncio.sleep(0)


def test_a_wait_ends_with_its_work() -> None:
    async def test() -> None:
        await Countdown(LONG_S, asyncio.Event()).wait(soon())

    run(test)


@pytest.mark.parametrize("within_s", [None, 0.01])
def test_a_wait_ends_with_the_time_of_running_handlers_or_its_own(within_s: float | None) -> None:
    async def test() -> None:
        await Countdown(0.01 if within_s is None else LONG_S, asyncio.Event()).wait(never(), within_s)

    run(test)


@pytest.mark.parametrize("before", [True, False])
def test_a_second_signal_ends_every_wait(before: bool) -> None:
    async def test() -> None:
        hurry = asyncio.Event()
        countdown = Countdown(LONG_S, hurry)
        if before:
            hurry.set()
        else:
            asyncio.get_running_loop().call_later(0.01, hurry.set)
        await countdown.wait(never())
        await countdown.wait(never(), LONG_S)
        assert countdown.last_writes_s(redis_answers=True) == LAST_WRITES_S
        assert countdown.last_writes_s(redis_answers=False) < LAST_WRITES_S / 2

    run(test)


def test_redis_has_what_is_left_and_a_silent_one_hardly_more() -> None:
    async def test() -> None:
        early, late = Countdown(LONG_S, asyncio.Event()), Countdown(-LONG_S, asyncio.Event())
        for redis_answers in (True, False):
            assert LONG_S - 600 < early.last_writes_s(redis_answers) < LONG_S + LAST_WRITES_S
        assert late.last_writes_s(redis_answers=True) == LAST_WRITES_S
        assert late.last_writes_s(redis_answers=False) < LAST_WRITES_S / 2

    run(test)


def test_work_within_a_time_is_done_or_given_up() -> None:
    async def test() -> None:
        assert await within(LONG_S, soon())
        assert not await within(0.01, never())

    run(test)

"""The stall watch: a process that stood still distrusts its leases until they were confirmed after it."""

import asyncio

import pytest

from fastq.common.clock import Moment
from fastq.server.inflight.stall import TICKS_REMEMBERED, StallWatch
from tests.broker.harness import run, until
from tests.manual_clock import ManualClock

STALL_S = 5.0
TICK_S = 1.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_loop_that_turns_is_trusted(clock: ManualClock) -> None:
    watch = StallWatch(clock)
    for _ in range(100):
        clock.advance(TICK_S)
        watch.look()
    assert not watch.suspect


@pytest.mark.parametrize(("gap_s", "suspect"), [(STALL_S, False), (STALL_S + 0.1, True), (6.0, True), (3600.0, True)])
def test_a_gap_of_more_than_5_s_is_suspect(gap_s: float, suspect: bool, clock: ManualClock) -> None:
    watch = StallWatch(clock)
    clock.advance(gap_s)
    assert watch.suspect is suspect


def test_a_wall_clock_that_jumps_is_suspect_since_a_suspended_machine_does_that(clock: ManualClock) -> None:
    # Linux' monotonic clock stands still while the machine sleeps; the leases in Redis run on.
    watch = StallWatch(clock)
    clock.jump(60)
    assert watch.suspect
    assert watch.lag_s == 0.0


def test_a_wall_clock_that_is_set_back_is_not(clock: ManualClock) -> None:
    watch = StallWatch(clock)
    clock.jump(-3600)
    assert not watch.suspect


def test_suspicion_lasts_until_leases_were_confirmed(clock: ManualClock) -> None:
    watch = StallWatch(clock)
    clock.advance(6)
    assert watch.suspect
    watch.look()
    clock.advance(1)
    assert watch.suspect, "that the loop turns again says nothing of the leases"
    watch.leases_confirmed(since_s=clock.monotonic_s())
    assert not watch.suspect


def test_leases_are_in_doubt_once_a_sign_of_life_is_late(clock: ManualClock) -> None:
    # The network may be cut: no request fails yet, and others may take what the silent server has.
    watch = StallWatch(clock)
    watch.signed(Moment.now(clock), 2.0)
    doubts = []
    for pause_s in (2, 1):
        clock.advance(pause_s)
        watch.leases_confirmed(clock.monotonic_s())
        doubts.append(watch.suspect)
    watch.signed(Moment.now(clock), 2.0)
    watch.leases_confirmed(clock.monotonic_s())
    assert [*doubts, watch.suspect] == [False, True, False]


def test_a_doubt_lasts_until_leases_were_confirmed_after_it(clock: ManualClock) -> None:
    watch = StallWatch(clock)
    before_s = clock.monotonic_s()
    clock.advance(1)
    watch.doubt()
    watch.leases_confirmed(since_s=before_s)
    assert watch.suspect
    watch.leases_confirmed(since_s=clock.monotonic_s())
    assert not watch.suspect


def test_a_confirmation_that_was_asked_for_before_the_stall_is_none(clock: ManualClock) -> None:
    watch = StallWatch(clock)
    asked_s = clock.monotonic_s()
    clock.advance(40)
    # The reply came while the process was frozen; its ticker runs before the reply is read, or after.
    watch.leases_confirmed(since_s=asked_s)
    assert watch.suspect
    watch.look()
    watch.leases_confirmed(since_s=asked_s)
    assert watch.suspect
    watch.leases_confirmed(since_s=clock.monotonic_s())
    assert not watch.suspect


def test_the_longest_delay_of_the_loop_is_remembered_for_a_minute(clock: ManualClock) -> None:
    async def test() -> None:
        watch = StallWatch(clock)
        watch.start()
        for gap_s, longest_s in ((TICK_S, 0.0), (TICK_S + 0.5, 0.5), (TICK_S + 0.2, 0.5)):
            clock.advance(gap_s / 2)
            assert not watch.suspect
            clock.advance(gap_s / 2)
            watch.beat()
            assert watch.lag_s == pytest.approx(longest_s)
        for _ in range(TICKS_REMEMBERED - 2):
            clock.advance(TICK_S)
            watch.beat()
        assert watch.lag_s == pytest.approx(0.5)
        clock.advance(TICK_S)
        watch.beat()
        assert watch.lag_s == pytest.approx(0.2)
        watch.stop()

    run(test)


def test_the_ticker_notices_a_stall_by_itself_and_ends_when_told_to() -> None:
    async def test() -> None:
        watch = StallWatch(clock := JumpingClock(), 0.05)
        watch.start()
        watch.start()
        await until(lambda: watch._stalled)
        watch.stop()
        watch.stop()
        read = clock.read
        for _ in range(10):
            await asyncio.sleep(0)
        assert clock.read == read

    run(test)


class JumpingClock(ManualClock):
    """A clock that jumps an hour with each reading."""

    read = 0

    def monotonic_s(self) -> float:
        self.read += 1
        self.advance(3600)
        return super().monotonic_s()

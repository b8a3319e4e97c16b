"""The waker: it waits only for a queue that was empty, tells of the first push, and gives way where it may not wait."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from fastq.broker.transport.wait import TaskWatch
from fastq.server.actors.waker import Waker
from fastq.wire import keys
from tests.broker.harness import QUEUE, until
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.harness import Bench, logged, on_bench

PENDING = keys.pending(QUEUE)


class Ear:
    """Note which queues are said to have tasks."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, queue: str) -> None:
        self.heard.append(queue)

    async def until(self, count: int) -> None:
        await until(lambda: len(self.heard) >= count)


def waker_of(bench: Bench, ear: Ear, queue: str = QUEUE, *, servers: int = 1) -> Waker:
    return Waker(bench.watch, queue, keys.pending, ear, lambda: servers, bench.outage)


def watched(bench: Bench) -> int:
    """Return how many keys Redis will tell of."""
    return int(bench.db.info("stats")["tracking_total_keys"])


def looks(bench: Bench) -> int:
    stats: Any = bench.db.info("commandstats")
    return int(stats.get("cmdstat_exists", {"calls": 0})["calls"])


def waits(waker: Waker) -> bool:
    return waker.is_waiting


def start_deaf(bench: Bench, ear: Ear) -> Waker:
    """Start one that was woken in vain, and is not to listen for a long time."""
    waker = waker_of(bench, ear)
    waker.arm()
    waker._delay_s, waker._delays = 1e9, True
    waker.start()
    return waker


def test_it_waits_only_when_the_queue_was_empty(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        ear = Ear()
        bench.db.lpush(PENDING, "a")
        waker = waker_of(bench, ear)
        bench.db.config_resetstat()
        waker.start()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waits(waker)
        assert looks(bench) == 0
        bench.db.delete(PENDING)
        waker.arm()
        assert waits(waker)
        await until(lambda: watched(bench))
        bench.db.lpush(PENDING, "a")
        await ear.until(1)
        assert ear.heard == [QUEUE]
        assert not waits(waker)
        assert looks(bench) == 1, "on a queue that has tasks it would be woken again and again"
        await waker.stop()

    on_bench(db, url, test)


def test_a_push_between_empty_and_wait_is_not_missed(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        ear = Ear()
        waker = waker_of(bench, ear)
        waker.start()
        bench.db.lpush(PENDING, "a")
        waker.arm()
        await ear.until(1)
        assert bench.db.lrange(PENDING, 0, -1) == [b"a"]
        await waker.stop()

    on_bench(db, url, test)


@pytest.mark.parametrize(
    ("servers", "first_s", "longest_s"), [(1, 0.01, 0.101), (4, 0.01, 0.416), (20, 0.1, 2.4), (100, 2.5, 20.0)]
)
def test_wakes_that_bring_nothing_double_the_delay_up_to_what_the_servers_need(
    servers: int, first_s: float, longest_s: float, db: Redis, url: str
) -> None:
    async def test(bench: Bench) -> None:
        waker = waker_of(bench, Ear(), servers=servers)
        delays = []
        for _ in range(15):
            waker._has_woken = True
            waker.arm()
            delays.append(waker._delay_s)
            waker.arm()
            assert waker._delay_s == delays[-1], "without a wake there is nothing to double"
        assert delays[:4] == pytest.approx([first_s, 2 * first_s, 4 * first_s, 8 * first_s])
        assert delays[-1] == pytest.approx(longest_s)
        waker.brought_work()
        assert waker._delay_s == 0.0
        waker.arm()
        assert waker._delay_s == 0.0

    on_bench(db, url, test)


def test_of_those_who_were_woken_together_in_vain_some_wait_again_soon(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def test(bench: Bench) -> None:
        async def be_deaf(self: Waker, seconds: float) -> None:
            pauses.append(seconds)

        bench.db.lpush(PENDING, "a")
        for _ in range(400):
            waker = waker_of(bench, Ear(), servers=100)
            waker._delay_s, waker._has_woken = 10.0, True
            waker.arm()
            with monkeypatch.context() as patch:
                patch.setattr(Waker, "_back_off", be_deaf)
                await waker.tick()

    on_bench(db, url, test)
    assert len(pauses) == 400
    assert min(pauses) < 1.0
    assert max(pauses) > 9.0


def test_it_is_deaf_once_after_a_wake_in_vain_and_not_after_each_wait(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.server.actors.waker.WAIT_S", 0.01)

    async def test(bench: Bench) -> None:
        waker = waker_of(bench, Ear())
        waker._has_woken = True
        waker.arm()
        assert waker.delay_s > 0
        await waker.tick()
        assert waker.is_waiting
        assert waker.delay_s == 0.0
        waker.arm()
        assert waker.delay_s == 0.0
        waker._delay_s = 3600.0  # what a next wake in vain would double
        await waker.tick()

    on_bench(db, url, test)


def test_work_that_came_by_a_poll_ends_its_deafness(db: Redis, url: str) -> None:
    """The fetcher lets a queue rest for long once it is empty again, in the trust that somebody waits for it."""

    async def test(bench: Bench) -> None:
        ear = Ear()
        waker = start_deaf(bench, ear)
        await asyncio.sleep(0)  # it is deaf, or about to be
        assert waker.delay_s == 1e9
        waker.brought_work()
        assert not waits(waker)
        waker.arm()
        await until(lambda: watched(bench) == 1)
        bench.db.lpush(PENDING, "a")
        await ear.until(1)
        await waker.stop()

    on_bench(db, url, test)


@pytest.mark.parametrize("turns", range(6))
def test_work_that_came_while_it_was_deaf_does_not_let_it_wait_on_a_queue_that_is_not_empty(
    turns: int, db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []

    async def wait(self: TaskWatch, queue: str, timeout_s: float, told: Callable[[], None], key_of: object) -> bool:
        waited.append(queue)
        told()
        return True

    monkeypatch.setattr(TaskWatch, "wait", wait)

    async def test(bench: Bench) -> None:
        ear = Ear()
        waker = start_deaf(bench, ear)
        for _ in range(turns):
            await asyncio.sleep(0)
        waker.brought_work()
        for _ in range(20):
            await asyncio.sleep(0)
        assert waited == []
        waker.arm()
        await ear.until(1)
        assert waited == [QUEUE]
        await waker.stop()

    on_bench(db, url, test)


def test_the_time_is_up_without_a_push_and_it_waits_on(db: Redis, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.server.actors.waker.WAIT_S", 0.01)
    monkeypatch.setattr(random, "uniform", lambda low, high: high)

    async def test(bench: Bench) -> None:
        ear = Ear()
        waker = waker_of(bench, ear)
        waker.arm()
        for _ in range(3):
            assert await waker.tick() == 0.0
        assert waits(waker)
        assert ear.heard == []
        await until(lambda: looks(bench) >= 3)

    on_bench(db, url, test)


def test_where_it_may_not_wait_queues_are_polled_and_it_tries_again_later(
    db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fastq")
    refusal = b"-NOPERM this user has no permissions to run the 'hello' command\r\n"
    with faulty_proxy(shared_server.socket_path, Fault("HELLO", Act.ANSWER, times=3, answer=refusal)) as proxy:

        async def test(bench: Bench) -> None:
            ear = Ear()
            first, second = waker_of(bench, ear), waker_of(bench, ear, "other")
            for waker in (first, first, second):
                waker.arm()
                assert (await waker.tick() or 0.0) > 30
                assert not waits(waker)
            assert ear.heard == [QUEUE, QUEUE, "other"], "one that may rest for long, trusting in it, is asked at once"
            for waker, queue in ((first, QUEUE), (second, "other")):
                bench.db.lpush(keys.pending(queue), "a")
                await waker.tick()
                assert ear.heard[-1] == queue
                waker.arm()
                assert waits(waker)

        on_bench(db, shared_server.url, test, through=proxy.url)
    said = logged(caplog, logging.INFO)
    assert len(said) == 2
    assert said[0].startswith(
        "queue default, and maybe others, is polled, because Redis refused the blocking wait: CLIENT"
    )
    assert said[1] == "blocking waits work again; no queue is polled any more"


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REPLY, Act.CUT_BEFORE_REQUEST, Act.CUT_IN_REPLY])
def test_a_lost_connection_is_made_anew(act: Act, db: Redis, shared_server: RedisServer) -> None:
    with faulty_proxy(shared_server.socket_path, Fault("EXISTS", act)) as proxy:

        async def test(bench: Bench) -> None:
            ear = Ear()
            waker = waker_of(bench, ear)
            bench.db.lpush(PENDING, "a")
            waker.start()
            waker.arm()
            await ear.until(1)
            assert bench.db.lrange(PENDING, 0, -1) == [b"a"]
            await waker.stop()

        on_bench(db, shared_server.url, test, through=proxy.url)


@pytest.mark.parametrize("arms", [True, False])
def test_it_starts_and_stops_again_and_again(arms: bool, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        for number in range(50):
            waker = waker_of(bench, Ear())
            if arms:
                waker.arm()
            waker.start()
            for _ in range(number % 25):
                await asyncio.sleep(0)
            waker.wake()
            await waker.stop()
        assert not any(line._waits for line in bench.watch._lines.values())

    on_bench(db, url, test)

"""What a recoverer may conclude from leases that have ended: nothing, until Redis has answered for some beats.

After an outage the leases of living servers have ended, too; here one server is dead, and another about to beat.
"""

from typing import Any

import pytest
from redis import Redis

from fastq.errors import BrokerError
from fastq.server.actors.recoverer import Recoverer
from fastq.server.base.commands import Commands
from fastq.server.base.timing import STANDARD
from fastq.wire import keys
from tests.broker.harness import NOW_S, QUEUE, THEIRS
from tests.redis_servers import redis_server
from tests.server.harness import Bench, on_bench, recoverer

EXPIRED_S = NOW_S - 30


def patient(bench: Bench, *queues: str) -> Recoverer:
    return recoverer(bench, *queues, timing=STANDARD)


def beat(bench: Bench) -> None:
    """Let the server that holds task "living" extend its lease."""
    bench.db.zadd(keys.lease(QUEUE), {"living": bench.clock.unix_ns() // 10**9 + 30 + THEIRS.fraction})


async def see_that_the_living_keep_theirs(bench: Bench, recovering: Recoverer) -> None:
    """Let Redis be back: one server has died, the other beats 9 s later."""
    bench.queue.activate("dead", "living", until_s=EXPIRED_S - 60, owner=THEIRS)
    assert await recovering.tick() == 2.5, "it looks again within a beat"
    for seconds in (5, 4, 1, 4):
        bench.clock.advance(seconds)
        if seconds == 4:
            beat(bench)
        await recovering.tick()
        assert bench.queue.places()["active"] == ["living", "dead"]
    bench.clock.advance(1)
    await recovering.tick()
    assert bench.queue.places() == {"pending": ["dead"], "active": ["living"], "lease": ["living"]}


def test_a_server_that_has_just_started_waits_until_the_living_have_beaten(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        await see_that_the_living_keep_theirs(bench, patient(bench))

    on_bench(db, url, test)


async def steady(bench: Bench, *queues: str) -> Recoverer:
    """Give a recoverer that has had answers for long enough."""
    recovering = patient(bench, *queues)
    for _ in range(4):
        await recovering.tick()
        bench.clock.advance(5)
    bench.queue.activate("early", until_s=1)
    bench.clock.advance(15)
    assert await recovering.tick() == 30.0
    assert bench.queue.places() == {"pending": ["early"]}, "it takes at once what it finds"
    bench.db.flushall()
    return recovering


TROUBLES: dict[str, tuple[str, str]] = {
    "a read-only replica": ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    "too few replicas": ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    "no connections": ("CONFIG SET maxclients 1", "CONFIG SET maxclients 100"),
}


@pytest.mark.parametrize("outage", TROUBLES)
def test_a_server_that_was_without_redis_waits_until_the_living_have_beaten(outage: str) -> None:
    async def test(bench: Bench) -> None:
        recovering = await steady(bench)
        begin, end = TROUBLES[outage]
        bench.db.execute_command(*begin.split())
        await bench.broker.close()
        bench.clock.advance(30)
        with pytest.raises(BrokerError):
            await recovering.tick()
        bench.db.execute_command(*end.split())
        await see_that_the_living_keep_theirs(bench, recovering)

    with redis_server() as server, server.client() as db:
        on_bench(db, server.url, test)


@pytest.mark.parametrize("clocks", ["both", "wall"])
def test_a_server_that_stood_still_itself_waits_until_the_living_have_beaten(clocks: str, db: Redis, url: str) -> None:
    """A stopped process, or a suspended machine, whose monotonic clock stands still, too."""

    async def test(bench: Bench) -> None:
        recovering = await steady(bench)
        bench.clock.advance(30)
        if clocks == "both":
            bench.clock.advance(46)
        else:
            bench.clock.jump(46)
        await see_that_the_living_keep_theirs(bench, recovering)

    on_bench(db, url, test)


@pytest.mark.parametrize("gap_s", [11, 40])
def test_a_break_while_it_waits_lets_it_wait_anew(gap_s: int, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        recovering = patient(bench)
        await recovering.tick()
        bench.clock.advance(gap_s)
        await see_that_the_living_keep_theirs(bench, recovering)

    on_bench(db, url, test)


def test_a_freeze_between_look_and_look_of_one_round_lets_it_wait(db: Redis, url: str) -> None:
    class Freezing(Commands):
        """Let this process stand still for two minutes before its second look."""

        async def run_many(self, operations: Any) -> Any:
            if operations[0].name == "put_back":
                bench.clock.advance(120)
                bench.queue.activate("living", until_s=NOW_S, owner=THEIRS)
            return await super().run_many(operations)

    bench: Bench

    async def test(its: Bench) -> None:
        nonlocal bench
        bench = its
        recovering = await steady(bench)
        recovering._lost._commands = Freezing(bench.broker)
        bench.queue.activate("dead", until_s=1)
        bench.clock.advance(30)
        assert await recovering.tick() == 0.0
        assert bench.queue.places() == {"pending": ["dead"], "active": ["living"], "lease": ["living"]}

    on_bench(db, url, test)


def test_a_queue_without_answers_lets_no_other_wait(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        recovering = await steady(bench, "odd", QUEUE)
        bench.db.set(keys.lease("odd"), "not a set")
        bench.queue.activate("a", until_s=1)
        bench.clock.advance(30)
        with pytest.raises(BrokerError):
            await recovering.tick()
        assert bench.queue.places() == {"pending": ["a"]}

    on_bench(db, url, test)

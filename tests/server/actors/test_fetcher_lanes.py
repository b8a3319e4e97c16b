"""The fetcher at a queue with lanes: it asks by ``take``, rests until a lane is due, and keeps no task from a lane."""

from collections.abc import Iterable
from typing import Any

import pytest
from redis import Redis

from fastq.broker.scripts import SCRIPTS
from fastq.server.actors.fetcher import VAIN_S, Fetcher
from fastq.server.actors.waker import Waker
from fastq.wire import keys
from fastq.wire.codec import view_task_message
from tests.broker.harness import QUEUE, THEIRS
from tests.faulty_proxy import Act, faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.actors.fetching import Pool, fetcher
from tests.server.harness import Bench, ScriptFault, on_bench

SOON_US = 2_000_000


def put(bench: Bench, lane: str, *ids: str, turn_us: float = 1) -> None:
    """Let tasks wait in a lane, whose turn it is."""
    for task_id in ids:
        bench.queue.put(task_id, "aggregating", group_key=lane)
        bench.db.hset(keys.task(QUEUE, task_id), "group", lane)
        bench.db.zadd(keys.group(QUEUE, lane), {task_id: 1})
    bench.db.sadd(keys.groups(QUEUE), lane)
    bench.db.zadd(keys.turns(QUEUE), {lane: turn_us})


def limit(bench: Bench, **rules: str) -> None:
    """Give lanes rules; the server has heard of it."""
    bench.db.hset(keys.limits(QUEUE), mapping=rules)
    bench.commands.lanes.add(QUEUE)


def redis_us(bench: Bench) -> int:
    seconds, us = bench.db.time()
    return int(seconds) * 1_000_000 + int(us)


def rest_s(fetching: Fetcher, bench: Bench) -> float:
    return fetching._resting[QUEUE] - bench.clock.monotonic_s()


def bells(bench: Bench, fetching: Fetcher) -> Waker:
    """Let a fetcher hear the bell of the queue."""
    waker = Waker(bench.watch, QUEUE, keys.bell, fetching.queue_has_tasks, lambda: 1, bench.outage)
    fetching.hear({QUEUE: waker})
    return waker


def test_it_takes_of_lanes_and_of_pending(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        limit(bench, x="1:0:1:1")
        put(bench, "x", "a", "b")
        bench.queue.pend("p")
        pool = Pool(bench)
        fetching = fetcher(bench, pool)
        await fetching.tick()
        assert sorted(pool.ids) == ["a", "p"]
        await fetching.tick()
        assert sorted(pool.ids) == ["a", "p"], "the lane is full"

    on_bench(db, url, test)


def test_who_has_no_rules_is_not_asked_for_lanes(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        put(bench, "x", "a")
        bench.db.config_resetstat()
        bench.db.script_flush()
        fetching = fetcher(bench, Pool(bench))
        await fetching.tick()
        assert bench.db.script_exists(SCRIPTS["take"].sha, SCRIPTS["dequeue"].sha) == [False, True]
        assert bench.queue.states() == {"a": "aggregating"}

    on_bench(db, url, test)


def test_it_rests_until_a_lane_is_due_or_its_bell_rings(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        limit(bench, **{"*": "0:1000000:1:1"})
        put(bench, "x", "a", turn_us=redis_us(bench) + SOON_US)
        fetching = fetcher(bench, Pool(bench))
        waker = bells(bench, fetching)
        await fetching.tick()
        assert SOON_US / 1e6 - 1 < rest_s(fetching, bench) <= SOON_US / 1e6 + 0.001
        assert not fetching.all_resting, "there is work to come"
        assert waker._armed.is_set()
        fetching.queue_has_tasks(QUEUE)
        assert fetching._resting == {}

    on_bench(db, url, test)


def test_of_a_queue_that_is_full_only_the_bell_tells(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        limit(bench, **{"": "1:0:1:1"})
        bench.queue.activate("theirs", owner=THEIRS)
        bench.queue.pend("p")
        made = fetcher(bench, Pool(bench))
        pending = Waker(bench.watch, QUEUE, keys.pending, made.queue_has_tasks, lambda: 1, bench.outage)
        made._wakers = {QUEUE: pending}
        bell = bells(bench, made)
        await made.tick()
        assert (pending._armed.is_set(), bell._armed.is_set()) == (False, True)
        assert bench.queue.places()["pending"] == ["p"]

    on_bench(db, url, test)


def test_a_server_whose_lanes_others_serve_asks_seldom(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        limit(bench, **{"*": "0:1000:1:1"})
        fetching = fetcher(bench, Pool(bench))
        for name in map(str, range(1000)):
            if fetching._in_vain.get(QUEUE, 0) == 2:
                break  # later where the turn comes before Redis is asked
            fetching.queue_has_tasks(QUEUE)
            bench.clock.advance(1)
            put(bench, "x", name, turn_us=redis_us(bench) + 50_000)
            await fetching.tick()
        assert VAIN_S <= rest_s(fetching, bench) <= 1.5 * VAIN_S

    on_bench(db, url, test)


def test_tasks_with_a_rate_are_fetched_for_idle_slots_alone(db: Redis, url: str) -> None:
    class Busy(Pool):
        def idle(self, *, only_async: bool) -> int:
            return 1

    async def test(bench: Bench) -> None:
        limit(bench, **{"*": "0:1:1000:1"})
        put(bench, "x", "a", "b", "c", "d")
        pool = Busy(bench, room=2)
        fetching = fetcher(bench, pool)
        await fetching.tick()
        assert len(pool.ids) == 2, "that they have a rate is not known before"
        await fetching.tick()
        assert len(pool.ids) == 3

    on_bench(db, url, test)


def test_tasks_with_a_rate_that_were_all_coroutines_are_fetched_for_free_rows(db: Redis, url: str) -> None:
    """A plain handler elsewhere in the app must not slow them down to one at a time."""

    class Busy(Pool):
        coroutines = frozenset({"a", "b", "c"})

        def idle(self, *, only_async: bool) -> int:
            return 2 if only_async else 1

        def are_coroutines(self, messages: Iterable[bytes]) -> bool:
            return self.coroutines.issuperset(view_task_message(message).id for message in messages)

    async def test(bench: Bench) -> None:
        limit(bench, **{"*": "0:1:1000:1"})
        put(bench, "x", "a", "b", "c", "d", "e", "f")
        pool = Busy(bench, room=1)
        fetching = fetcher(bench, pool)
        fetched = []
        for _ in range(4):
            await fetching.tick()
            fetched.append("".join(pool.ids))
            pool.room = 9
        assert fetched == ["a", "abc", "abcde", "abcdef"]

    on_bench(db, url, test)


def test_when_the_last_rule_is_gone_no_rate_holds_it_back(db: Redis, url: str) -> None:
    class Busy(Pool):
        def idle(self, *, only_async: bool) -> int:
            return 0

    async def test(bench: Bench) -> None:
        limit(bench, **{"*": "0:1:1000:1"})
        put(bench, "x", "a")
        pool = Busy(bench)
        fetching = fetcher(bench, pool)
        await fetching.tick()
        bench.db.delete(keys.limits(QUEUE))
        bench.commands.lanes.discard(QUEUE)
        bench.queue.pend("p")
        fetching.queue_has_tasks(QUEUE)
        await fetching.tick()
        assert pool.ids == ["a", "p"]

    on_bench(db, url, test)


def test_when_the_last_rule_is_gone_it_asks_as_ever(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        limit(bench, x="1:0:1:1")
        bench.db.delete(keys.limits(QUEUE))
        bench.queue.pend("p")
        pool = Pool(bench)
        fetching = fetcher(bench, pool)
        assert await fetching.tick() == 0.0
        assert QUEUE not in bench.commands.lanes
        await fetching.tick()
        assert pool.ids == ["p"]

    on_bench(db, url, test)


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REPLY, Act.CUT_IN_REPLY])
def test_the_tasks_of_a_take_without_reply_are_found_and_keep_their_places(
    act: Act, db: Any, shared_server: RedisServer
) -> None:
    db.script_load(SCRIPTS["take"].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault("take", act)) as proxy:

        async def test(bench: Bench) -> None:
            limit(bench, x="2:0:1:1")
            put(bench, "x", "a", "b", "c")
            bench.queue.pend("p")
            pool = Pool(bench, room=10)
            fetching = fetcher(bench, pool)
            await fetching.tick()
            assert pool.ids == []
            assert set(bench.queue.places()["active"]) == {"a", "b", "p"}
            assert not fetching.all_resting
            bench.clock.advance(1)
            await fetching.tick()
            assert sorted(pool.ids) == ["a", "b", "p"]
            assert bench.db.smembers(keys.held(QUEUE, "x")) == {b"a", b"b"}
            for _ in range(4):
                bench.clock.advance(6)
                await fetching.tick()
            assert sorted(pool.ids) == ["a", "b", "p"], "what was found is not found again, and the limit is kept"

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_a_take_that_redis_never_saw_has_spent_nothing(db: Any, shared_server: RedisServer) -> None:
    db.script_load(SCRIPTS["take"].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault("take", Act.CUT_BEFORE_REQUEST)) as proxy:

        async def test(bench: Bench) -> None:
            limit(bench, x="1:1000000:1:1")
            put(bench, "x", "a")
            pool = Pool(bench)
            fetching = fetcher(bench, pool)
            await fetching.tick()
            bench.clock.advance(1)
            await fetching.tick()
            assert pool.ids == ["a"]

        on_bench(db, shared_server.url, test, through=proxy.url)

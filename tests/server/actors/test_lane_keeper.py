"""The lane keeper: it learns which queues have lanes, and every lane with tasks has a turn."""

from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operation import Operation
from fastq.broker.operations.finish import ANY_OWNER, requeue
from fastq.broker.transport.subscription import ChannelMessage
from fastq.errors import BrokerConnectionError, BrokerError
from fastq.server.actors.lane_keeper import MOST_CALLS, SWEEP_EVERY_S, WITHOUT_SUBSCRIBER_S, LaneKeeper
from fastq.server.actors.subscriber import due_topic
from fastq.wire import keys
from tests.broker.harness import QUEUE
from tests.server.actors.fetching import Pool, fetcher, fill
from tests.server.actors.test_fetcher_lanes import put
from tests.server.harness import Bench, on_bench

OTHER = "other"


def keeper(bench: Bench, told: list[str] | None = None) -> LaneKeeper:
    on_tasks = (lambda queue: None) if told is None else told.append
    return LaneKeeper(bench.commands, [QUEUE, OTHER], bench.clock, on_tasks, bench.outage)


def rule(bench: Bench, queue: str = QUEUE) -> None:
    bench.db.hset(keys.limits(queue), "*", "1:0:1:1")


def turns(bench: Bench) -> set[bytes]:
    found: set[bytes] = set(bench.db.zrange(keys.turns(QUEUE), 0, -1))
    return found


def test_it_looks_once_and_is_silent_where_nobody_uses_lanes(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        made = keeper(bench)
        assert made.first_tick_after_s() == WITHOUT_SUBSCRIBER_S
        bench.db.config_resetstat()
        assert await made.tick() is None
        assert await made.tick() is None
        calls = {name: stats["calls"] for name, stats in bench.db.info("commandstats").items()}
        assert calls["cmdstat_hlen"] == 2, "one for each queue"
        assert not {"cmdstat_eval", "cmdstat_evalsha", "cmdstat_sscan"} & calls.keys()
        assert bench.commands.lanes == set()

    on_bench(db, url, test)


@pytest.mark.parametrize("error", [BrokerConnectionError("cut"), BrokerError("refused")])
def test_whether_lanes_are_known_is_told_once_redis_has_answered(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch, error: BrokerError
) -> None:
    """A refusal is an answer, too: groups go on where servers have no right to ask for lanes."""

    async def failing(operations: Sequence[object]) -> list[BrokerError]:
        return [error for _ in operations]

    async def test(bench: Bench) -> None:
        lanes = bench.commands.lanes
        assert not lanes.unknown, "who has no keeper has no lanes"
        made = keeper(bench)
        assert lanes.unknown == {QUEUE, OTHER}
        with monkeypatch.context() as cut:
            cut.setattr(bench.commands, "run_many", failing)
            with pytest.raises(BrokerError):
                await made.tick()
        assert lanes.unknown == ({QUEUE, OTHER} if error.transient else set())
        assert made.failing == dict.fromkeys(lanes.unknown, error), "else the server would be ready, and fetch nothing"
        await made.tick()
        assert not lanes.unknown
        assert not made.failing

    on_bench(db, url, test)


def test_it_finds_queues_with_rules_and_forgets_those_without(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        rule(bench)
        told: list[str] = []
        made = keeper(bench, told)
        due_s = await made.tick()
        assert due_s is not None
        assert 0 < due_s <= 1.25 * SWEEP_EVERY_S
        assert (bench.commands.lanes, told) == ({QUEUE}, [QUEUE])
        rule(bench, OTHER)
        bench.db.delete(keys.limits(QUEUE))
        await made.tick()
        assert bench.commands.lanes == {QUEUE}, "it is told of changes"
        made.look_at_all()
        await made.tick()
        assert bench.commands.lanes == {OTHER}

    on_bench(db, url, test)


def test_no_task_is_taken_before_it_is_known_whether_the_queue_has_rules(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        rule(bench)
        bench.db.hset(keys.limits(QUEUE), "", "1:0:1:1")
        bench.queue.pend("a")
        bench.queue.pend("b")
        pool = Pool(bench)
        made, fetching = keeper(bench), fetcher(bench, pool)
        assert 0 < await fetching.tick() < 1
        assert bench.db.llen(keys.pending(QUEUE)) == 2
        await made.tick()
        await fetching.tick()
        assert bench.db.llen(keys.pending(QUEUE)) == 1, "more than the queue's limit was taken"

    on_bench(db, url, test)


def test_a_queue_of_which_nothing_is_known_keeps_no_other_from_being_served(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bench: Bench) -> None:
        run_many = bench.commands.run_many

        async def failing(operations: Sequence[Operation[Any]]) -> list[Any]:
            results = await run_many(operations)
            return [
                BrokerConnectionError("cut") if operation.keys[0] == keys.limits(QUEUE) else result
                for operation, result in zip(operations, results, strict=True)
            ]

        fill(bench, QUEUE, 1)
        fill(bench, OTHER, 1)
        made, fetching = keeper(bench), fetcher(bench, Pool(bench), {QUEUE: 1, OTHER: 1})
        monkeypatch.setattr(bench.commands, "run_many", failing)
        with pytest.raises(BrokerConnectionError):
            await made.tick()
        for _ in range(3):
            await fetching.tick()
        pending = keys.pending(QUEUE), keys.pending(OTHER)
        assert [bench.db.llen(key) for key in pending] == [1, 0]
        monkeypatch.undo()
        await made.tick()
        for _ in range(3):
            await fetching.tick()
        assert [bench.db.llen(key) for key in pending] == [0, 0]

    on_bench(db, url, test)


@pytest.mark.parametrize("is_lane", [True, False])
def test_what_is_put_back_before_the_rules_are_known_is_put_into_its_lane(db: Redis, url: str, is_lane: bool) -> None:
    async def test(bench: Bench) -> None:
        if is_lane:
            rule(bench)
        bench.queue.activate("a", group_key="x")
        bench.db.hset(keys.task(QUEUE, "a"), "group", "x")
        keeper(bench)
        await bench.commands.run(requeue(QUEUE, ["a"], 1, ANY_OWNER))
        assert bench.db.zcard(keys.group(QUEUE, "x")) == is_lane
        assert bench.db.llen(keys.pending(QUEUE)) == (not is_lane)

    on_bench(db, url, test)


def test_it_looks_at_the_queue_whose_rules_are_said_to_have_changed(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        made = keeper(bench)
        await made.tick()
        due: list[tuple[str, float]] = []
        topic = due_topic([QUEUE, OTHER], lambda queue, at_s: due.append((queue, at_s)), made, 5.0)
        rule(bench, OTHER)
        rule(bench)
        topic.handle(_message(OTHER, "limits"))
        topic.handle(_message(QUEUE, "12.5"))
        await made.tick()
        assert (bench.commands.lanes, due) == ({OTHER}, [(QUEUE, 12.5)])
        topic.begin()
        await made.tick()
        assert bench.commands.lanes == {QUEUE, OTHER}, "messages may have been missed"

    on_bench(db, url, test)


def test_lanes_that_nobody_gave_a_turn_get_one(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        rule(bench)
        put(bench, "x", "a")
        put(bench, "gos", "b")
        bench.db.zrem(keys.turns(QUEUE), "gos")
        told: list[str] = []
        made = keeper(bench, told)
        await made.tick()
        assert turns(bench) == {b"x", b"gos"}
        bench.db.zrem(keys.turns(QUEUE), "x")
        await made.tick()
        assert turns(bench) == {b"gos"}, "not before it is time"
        told.clear()
        bench.clock.advance(1.25 * SWEEP_EVERY_S)
        await made.tick()
        assert (turns(bench), told) == ({b"x", b"gos"}, [QUEUE])

    on_bench(db, url, test)


def test_a_sweep_of_very_many_lanes_goes_on_next_time(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        rule(bench)
        many = MOST_CALLS * 500 + 3_000
        bench.db.sadd(keys.groups(QUEUE), *(f"lane{n}" for n in range(many)))
        with bench.db.pipeline(transaction=False) as pipeline:
            for n in range(many):
                pipeline.zadd(keys.group(QUEUE, f"lane{n}"), {"id": 1})
            pipeline.execute()
        made = keeper(bench)
        await made.tick()
        seen = len(turns(bench))
        assert 0 < seen < many
        bench.clock.advance(2 * SWEEP_EVERY_S)
        await made.tick()
        assert len(turns(bench)) == many

    on_bench(db, url, test)


def test_rates_that_are_made_up_for_are_forgotten(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        rule(bench)
        bench.db.hset(keys.rates(QUEUE), mapping={"past": 1, "coming": 4_000_000_000_000_000})
        await keeper(bench).tick()
        assert bench.db.hkeys(keys.rates(QUEUE)) == [b"coming"]

    on_bench(db, url, test)


def test_a_look_that_fails_is_made_again(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        rule(bench)
        bench.db.set(keys.limits(OTHER), "no hash")
        made = keeper(bench)
        with pytest.raises(BrokerError):
            await made.tick()
        assert bench.commands.lanes == {QUEUE}, "one queue's trouble is its own"
        bench.db.delete(keys.limits(OTHER))
        rule(bench, OTHER)
        await made.tick()
        assert bench.commands.lanes == {QUEUE, OTHER}

    on_bench(db, url, test)


def _message(queue: str, text: str) -> ChannelMessage:
    return ChannelMessage(keys.due_channel(queue), text)

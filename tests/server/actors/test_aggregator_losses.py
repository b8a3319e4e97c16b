"""What is lost on the aggregator's way, replies or whole servers, neither loses a task nor doubles one."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operation import Operation
from fastq.broker.operations.aggregate import GroupRule
from fastq.errors import BrokerError
from fastq.server.actors.reclaimer import Reclaimer
from fastq.server.base.commands import Commands
from tests.broker.harness import NOW_S, QUEUE
from tests.faulty_proxy import Act, faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.actors.groups import aggregator_on, concat, in_process, join, leftovers, outcome
from tests.server.harness import Bench, ScriptFault, logged, no_news, on_bench

DUE_S = NOW_S - 60
SCRIPTS = (
    "scan_groups",
    "aggregation_check_lanes",
    "read_aggregation_set",
    "commit_aggregation_set",
    "delete_aggregation_set",
)


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REPLY, Act.CUT_BEFORE_REQUEST])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_lost_reply_neither_loses_nor_doubles_a_task(
    script: str, act: Act, db: Any, shared_server: RedisServer
) -> None:
    fault = ScriptFault(script, act)
    db.script_load(fault.text)
    with faulty_proxy(shared_server.socket_path, fault) as proxy:

        async def test(bench: Bench) -> None:
            join(bench.queue, {"a": 1, "b": 2})
            await aggregator_on(bench).tick()
            assert outcome(bench.queue) == {"whole:g": ["a+b"]}
            assert leftovers(bench.queue) == {}
            assert fault.times == 0

        on_bench(db, shared_server.url, test, through=proxy.url)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REPLY, Act.CUT_BEFORE_REQUEST])
def test_a_redis_that_is_away_for_longer_neither_loses_nor_doubles_a_task(
    script: str, act: Act, db: Any, shared_server: RedisServer
) -> None:
    """Every attempt of one tick fails; the next tick settles what the last one left."""
    fault = ScriptFault(script, act, times=4)
    db.script_load(fault.text)
    with faulty_proxy(shared_server.socket_path, fault) as proxy:

        async def test(bench: Bench) -> None:
            join(bench.queue, {"a": 1, "b": 2})
            aggregating = aggregator_on(bench)
            with pytest.raises(BrokerError):
                await aggregating.tick()
            assert fault.times == 0
            await aggregating.tick()
            assert outcome(bench.queue) == {"whole:g": ["a+b"]}
            assert (leftovers(bench.queue), aggregating.is_busy) == ({}, False)

        on_bench(db, shared_server.url, test, through=proxy.url)


class KilledError(BaseException):
    """Acts like SIGKILL: nothing catches it."""


class MortalCommands(Commands):
    """Die at the n-th operation, before Redis carried it out or before the reply came."""

    def __init__(self, bench: Bench, dies_at: int, *, applied: bool) -> None:
        super().__init__(bench.broker)
        self._left = dies_at
        self._applied = applied

    async def run_many(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._applied):
            raise KilledError  # whoever asks after that is dead, too
        was_last = self._left == 0
        results = await super().run_many(operations)
        if was_last:
            raise KilledError
        return results


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("applied", [False, True])
def test_a_server_that_is_killed_at_any_step_neither_loses_nor_doubles_a_task(
    applied: bool, at_once: int, db: Redis, url: str
) -> None:
    """Another server sees to what it left, after the deadline of the set; unique locks and all."""
    locks = {f"asynq:{{default}}:unique:t:{task_id}": task_id for task_id in "abcdx"}

    async def live_and_die(bench: Bench, dies_at: int) -> bool:
        join(bench.queue, dict.fromkeys("abcd", 1.0))
        join(bench.queue, {"x": 2}, "h")
        for lock, task_id in locks.items():
            fields = {"payload": task_id.encode(), "unique_key": lock}
            bench.queue.put(task_id, "aggregating", **fields)
        bench.db.mset(locks)
        rule = GroupRule(60, max_size=3)
        mortal = MortalCommands(bench, dies_at, applied=applied)
        aggregating = aggregator_on(bench, rule=rule, commands=mortal)
        aggregating._at_once = at_once
        try:
            await aggregating.tick()
        except KilledError:
            died = True
        else:
            died = False
        for _ in range(2):
            await Reclaimer(bench.commands, bench.clock, str, aggregates=True).reclaim(QUEUE, no_news)
            bench.clock.advance(121)
        await aggregator_on(bench, rule=rule).tick()
        found = outcome(bench.queue)
        parts = [part for payloads in found.values() for payload in payloads for part in payload.split("+")]
        assert sorted(parts) == list("abcdx"), (dies_at, found)
        assert leftovers(bench.queue) == {}, dies_at
        assert bench.db.exists(*locks) == 0, dies_at
        return died

    async def test(bench: Bench) -> None:
        dies_at = 1
        while await live_and_die(bench, dies_at):
            bench.db.flushall()
            dies_at += 1
        assert dies_at > 12

    on_bench(db, url, test)


def test_a_set_that_another_server_gave_back_is_not_replaced(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": 1, "b": 2})
        inner = in_process(concat)

        async def slowly(queue: str, group: str, messages: Sequence[bytes]) -> Any:
            bench.clock.advance(121)
            await Reclaimer(bench.commands, bench.clock, str, aggregates=True).reclaim(QUEUE, no_news)
            return await inner(queue, group, messages)

        aggregating = aggregator_on(bench, combine=slowly)
        await aggregating.tick()
        assert outcome(bench.queue) == {}
        assert leftovers(bench.queue)["groups"] == {"asynq:{default}:g:g": {"a": 1, "b": 2}}

    on_bench(db, url, test)
    assert any("the set was given back to its group meanwhile" in line for line in logged(caplog))


def test_two_aggregators_share_groups_without_a_task_in_both(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        ids = [f"{number:03d}" for number in range(300)]
        for number in range(0, 300, 3):
            join(bench.queue, dict.fromkeys(ids[number : number + 3], 1.0), f"g{number}")
        other = Commands(bench.broker)
        await asyncio.gather(aggregator_on(bench).tick(), aggregator_on(bench, commands=other).tick())
        payloads = [payload for found in outcome(bench.queue).values() for payload in found]
        assert sorted("+".join(payloads).split("+")) == ids
        assert (len(payloads), leftovers(bench.queue)) == (100, {})

    on_bench(db, url, test)

"""The aggregator's turns: no group, however hot, slow or large, keeps the others of its server waiting."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from fastq import Task
from fastq.broker.operation import Operation
from fastq.broker.operations.aggregate import GroupRule
from fastq.errors import BrokerError
from fastq.server.base.commands import Commands
from fastq.wire import keys
from tests.broker.harness import NOW_S, QUEUE, QueueBench
from tests.server.actors.groups import aggregator_on, concat, in_process, join, leftovers, outcome
from tests.server.harness import Bench, logged, on_bench
from tests.waiting import until

ROUNDS = 20


class HotGroup:
    """Aggregate tasks, and fill the group "hot" again each time that it was aggregated, for so many rounds."""

    def __init__(self, bench: Bench, rounds: int) -> None:
        self.calls: list[str] = []
        self._queue = bench.queue
        self._left = rounds
        self._inner = in_process(concat)
        self.fill()

    def fill(self) -> None:
        self._left -= 1
        join(self._queue, {f"{self._left}-{name}": NOW_S for name in "ab"}, "hot")

    async def combine(self, queue: str, group: str, messages: Sequence[bytes]) -> Any:
        self.calls.append(f"{queue} {group}")
        if group == "hot" and self._left:
            self.fill()
        return await self._inner(queue, group, messages)


def test_a_group_that_fills_up_faster_than_it_is_aggregated_leaves_the_others_their_turns(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        hot = HotGroup(bench, ROUNDS)
        others = [f"{queue} cold-{number}" for queue in (QUEUE, "other") for number in range(3)]
        for name in others:
            queue, group = name.split()
            join(QueueBench(bench.db, queue=queue), {f"{group}-{each}": NOW_S for each in "abcd"}, group)
        rule = GroupRule(60, max_size=2)
        await aggregator_on(bench, rule=rule, queues=(QUEUE, "other"), combine=hot.combine).tick()
        assert sorted(hot.calls[:7]) == sorted(hot.calls[7:14]) == sorted([f"{QUEUE} hot", *others])
        assert hot.calls[14:] == [f"{QUEUE} hot"] * (ROUNDS - 2)
        assert leftovers(bench.queue) == {}

    on_bench(db, url, test)


def test_a_tick_ends_though_a_group_is_always_due_and_the_next_begins_at_once(db: Redis, url: str) -> None:
    """So that what failed in it has its turn again, too."""

    async def test(bench: Bench) -> None:
        hot = HotGroup(bench, -1)
        aggregating = aggregator_on(bench, rule=GroupRule(60, max_size=2), combine=hot.combine)
        aggregating._interval_s = 0.1
        assert await aggregating.tick() == 0.0
        made = len(hot.calls)
        assert made >= 1
        bench.db.set(keys.groups("odd"), "no set")
        aggregating._queues = ["odd", QUEUE]
        with pytest.raises(BrokerError, match="scan_groups"):
            await aggregating.tick()
        assert len(hot.calls) > made

    on_bench(db, url, test)


class Counted(Commands):
    """Count what is asked by its name, and reads of sets by their keys."""

    def __init__(self, bench: Bench, asked: Counter[str]) -> None:
        super().__init__(bench.broker)
        self._asked = asked

    async def run_many(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        for operation in operations:
            self._asked[operation.name] += 1
            if operation.name == "read_aggregation_set":
                self._asked[operation.keys[0]] += 1
        return await super().run_many(operations)


def test_sets_behind_a_slow_one_go_back_without_failure_and_have_their_turn_later(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fastq.server.actors.aggregator.QUICK_S", 0.05)
    inner = in_process(concat)
    calls: list[str] = []
    asked = Counter[str]()

    async def test(bench: Bench) -> None:
        for group in "abcd":
            join(bench.queue, {group: 1}, group)

        async def slow_at_first(queue: str, group: str, messages: Sequence[bytes]) -> Any:
            calls.append(group)
            if len(calls) == 1:
                await until(lambda: asked["reclaim_aggregation_set"] == 3)
                await until(lambda: len(bench.queue.scores("aggregation_sets")) == 1)
                assert leftovers(bench.queue)["listed"] == set("abcd") - {group}
            return await inner(queue, group, messages)

        aggregating = aggregator_on(bench, commands=Counted(bench, asked), combine=slow_at_first)
        aggregating._at_once = 8
        await aggregating.tick()
        assert outcome(bench.queue) == {f"whole:{group}": [group] for group in "abcd"}
        assert (sorted(calls), leftovers(bench.queue), aggregating.is_busy) == (list("abcd"), {}, False)

    on_bench(db, url, test)
    assert logged(caplog) == []


def test_one_set_at_a_time_is_read_whole(db: Redis, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others that wait there is a part of 256 kB at most."""
    monkeypatch.setattr("fastq.server.actors.aggregator.QUICK_S", 20.0)
    inner = in_process(lambda group, tasks: Task("whole", str(len(tasks)).encode()))
    asked = Counter[str]()
    calls = 0

    def read() -> dict[str, int]:
        return {key: parts for key, parts in asked.items() if key.startswith(keys.group_prefix(QUEUE))}

    async def combine(queue: str, group: str, messages: Sequence[bytes]) -> Any:
        nonlocal calls
        calls += 1
        await until(lambda: len(read()) == 3)
        assert len([key for key, parts in read().items() if parts > 1]) == calls
        return await inner(queue, group, messages)

    async def test(bench: Bench) -> None:
        for group in "abc":
            ids = [f"{group}{number}" for number in range(6)]
            join(bench.queue, dict.fromkeys(ids, 1.0), group)
            for task_id in ids:
                bench.queue.put(task_id, "aggregating", payload=bytes(100_000))
        aggregating = aggregator_on(bench, commands=Counted(bench, asked), combine=combine)
        aggregating._at_once = 8
        await aggregating.tick()
        assert outcome(bench.queue) == {"whole": ["6", "6", "6"]}

    on_bench(db, url, test)

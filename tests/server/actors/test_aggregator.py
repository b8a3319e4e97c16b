"""The aggregator: each task of a group ends in one new task, whatever dies or is lost on the way."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import Task
from fastq.broker.operation import Operation
from fastq.broker.operations.aggregate import GroupRule
from fastq.errors import BrokerError
from fastq.running import GroupedTask
from fastq.server.actors.aggregator import MAX_KNOWN_WAITS, UNTIL_KNOWN_S, Aggregator, GroupBackoff
from fastq.server.actors.reclaimer import Reclaimer
from fastq.server.base.commands import Commands
from fastq.server.children.aggregation_child import AggregationFailure
from fastq.wire import keys
from fastq.wire.limit import Limit, write_rule
from tests.broker.harness import NOW_S, QUEUE
from tests.manual_clock import ManualClock
from tests.server.actors.groups import aggregator_on, concat, in_process, join, leftovers, outcome
from tests.server.harness import Bench, logged, no_news, on_bench, under_way
from tests.waiting import PATIENCE_S, until

DUE_S = NOW_S - 60
SCRIPTS = (
    "scan_groups",
    "aggregation_check_lanes",
    "read_aggregation_set",
    "commit_aggregation_set",
    "delete_aggregation_set",
)


# What it does -----------------------------------------------------------------------------------------------------


def test_the_tasks_of_a_due_group_become_one_in_the_order_in_which_they_joined(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        join(bench.queue, {"b": DUE_S - 1, "a": DUE_S, "c": DUE_S})
        aggregating = aggregator_on(bench)
        assert await aggregating.tick() == 7.0
        assert outcome(bench.queue) == {"whole:g": ["b+a+c"]}
        assert (leftovers(bench.queue), len(bench.queue.states())) == ({}, 1)
        assert (bench.stats.aggregated, aggregating.is_busy) == (1, False)
        assert bench.db.smembers(keys.all_queues()) == {QUEUE.encode()}

    on_bench(db, url, test)


def test_a_group_that_became_a_lane_unheard_is_not_combined(db: Redis, url: str) -> None:
    """Found by seed 410100 of any-lanes: a fail-over cut servers off while the first task came into a lane."""

    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": DUE_S})
        bench.db.hset(keys.limits(QUEUE), "g", write_rule(Limit(1)))
        await aggregator_on(bench).tick()
        assert outcome(bench.queue) == {}
        assert bench.queue.states() == {"a": "aggregating"}

    on_bench(db, url, test)


def test_nothing_is_combined_before_it_is_known_which_groups_are_lanes(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": DUE_S})
        aggregating = aggregator_on(bench)
        bench.commands.lanes.unknown.add(QUEUE)
        assert await aggregating.tick() == UNTIL_KNOWN_S
        assert outcome(bench.queue) == {}
        bench.commands.lanes.unknown.clear()
        await aggregating.tick()
        assert outcome(bench.queue) == {"whole:g": ["a"]}

    on_bench(db, url, test)


def test_a_group_waits_for_its_grace_period_and_is_taken_when_it_ends(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": NOW_S - 57})
        join(bench.queue, {"b": NOW_S - 56}, "h")
        aggregating = aggregator_on(bench)
        assert await aggregating.tick() == 3.0
        assert outcome(bench.queue) == {}
        bench.clock.advance(3)
        assert await aggregating.tick() == 1.0
        assert outcome(bench.queue) == {"whole:g": ["a"]}

    on_bench(db, url, test)


def test_size_and_delay_end_the_wait(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        join(bench.queue, dict.fromkeys("abcde", float(NOW_S)), "large")
        join(bench.queue, {"x": NOW_S - 100, "y": NOW_S}, "old")
        await aggregator_on(bench, rule=GroupRule(60, max_delay_s=100, max_size=2)).tick()
        assert outcome(bench.queue) == {"whole:large": ["a+b", "c+d"], "whole:old": ["x+y"]}
        assert leftovers(bench.queue)["groups"] == {"asynq:{default}:g:large": {"e": NOW_S}}

    on_bench(db, url, test)


def test_a_large_group_is_aggregated_in_sets_of_5000(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        ids = [f"{number:05d}" for number in range(5001)]
        pipeline = bench.db.pipeline(transaction=False)
        bench.queue.put("00000", "aggregating", payload=b"x", unique_key="")
        fields = bench.queue.task("00000")
        for task_id in ids:
            pipeline.hset(keys.task(QUEUE, task_id), mapping=fields)
        pipeline.zadd(keys.group(QUEUE, "g"), dict.fromkeys(ids, 1))
        pipeline.sadd(keys.groups(QUEUE), "g")
        pipeline.execute()
        await aggregator_on(bench, lambda group, tasks: Task("whole", str(len(tasks)).encode())).tick()
        assert outcome(bench.queue) == {"whole": ["5000", "1"]}
        assert leftovers(bench.queue) == {}

    on_bench(db, url, test)


def test_the_aggregator_gets_type_payload_and_headers_and_its_options_count(db: Redis, url: str) -> None:
    seen: list[tuple[str, str, str, bytes, dict[str, str]]] = []

    def look(group: str, tasks: Sequence[GroupedTask]) -> Task:
        seen.extend((group, task.id, task.type, task.payload, dict(task.headers)) for task in tasks)
        return Task("whole", b"x", task_id="id-w", queue="elsewhere", max_retry=3, retention=60, headers={"h": "1"})

    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": 1}, type="part", headers={"k": "v"})
        await aggregator_on(bench, look).tick()
        assert seen == [("g", "a", "part", b"a", {"k": "v"})]
        new = bench.queue.message("id-w")
        assert (new.queue, new.retry, new.retention, new.group_key) == (QUEUE, 3, 60, "")
        assert (new.headers, new.timeout, new.unique_key) == ({"h": "1"}, 1800, "")

    on_bench(db, url, test)


def test_the_new_task_may_wait_for_its_time_or_join_another_group(db: Redis, url: str) -> None:
    def later(group: str, tasks: Sequence[GroupedTask]) -> Task:
        if group == "later":
            return Task("whole", process_in=timedelta(days=40_000), task_id="l")
        return Task("whole", group="all", task_id=group)

    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": 1}, "later")
        join(bench.queue, {"b": 1}, "some")
        await aggregator_on(bench, later, rule=GroupRule(10**9)).tick()
        assert bench.queue.places() == {"scheduled": ["l"]}
        assert leftovers(bench.queue)["listed"] == {"all"}
        assert set(bench.queue.scores("g:all")) == {"some"}

    on_bench(db, url, test)


def test_unique_locks_of_the_parts_are_released_and_the_new_task_may_take_one(db: Redis, url: str) -> None:
    lock, other = keys.unique(QUEUE, "whole", b"x"), "asynq:{default}:unique:t:1"

    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": 1}, unique_key=lock)
        join(bench.queue, {"b": 1}, unique_key=other)
        join(bench.queue, {"c": 1}, unique_key="asynq:{default}:unique:t:2")
        bench.db.mset({lock: "a", other: "b", "asynq:{default}:unique:t:2": "somebody else"})
        await aggregator_on(bench, lambda group, tasks: Task("whole", b"x", unique=60, task_id="w")).tick()
        assert (bench.db.get(lock), bench.db.exists(other)) == (b"w", 0)
        assert bench.db.get("asynq:{default}:unique:t:2") == b"somebody else"
        assert bench.queue.task("w")["unique_key"] == lock.encode()

    on_bench(db, url, test)


def test_a_queue_that_fails_does_not_keep_the_others_waiting(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.db.set(keys.groups("odd"), "no set")
        join(bench.queue, {"a": 1})
        with pytest.raises(BrokerError, match="scan_groups"):
            await aggregator_on(bench, queues=("odd", QUEUE)).tick()
        assert outcome(bench.queue) == {"whole:g": ["a"]}

    on_bench(db, url, test)


def test_messages_beyond_64_mb_wait_for_the_next_set(db: Redis, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.server.actors.aggregation_sets.MAX_SET_BYTES", 600_000)
    calls = Counter[str]()

    async def test(bench: Bench) -> None:
        join(bench.queue, dict.fromkeys("abcde", 1.0))
        for task_id in "abcde":
            bench.queue.put(task_id, "aggregating", payload=task_id.encode() + bytes(299_999))
        made = in_process(lambda group, tasks: Task("whole", bytes(task.payload[0] for task in tasks)), calls=calls)
        await aggregator_on(bench, combine=made).tick()
        assert outcome(bench.queue) == {"whole": ["ab", "cd", "e"]}
        assert (leftovers(bench.queue), calls["g"]) == ({}, 3)

    on_bench(db, url, test)


# What goes wrong with the aggregator --------------------------------------------------------------------------------


def nothing(group: str, tasks: Sequence[GroupedTask]) -> Any:
    return None


def rubbish(group: str, tasks: Sequence[GroupedTask]) -> Any:
    return ["no", "task"]


def broken(group: str, tasks: Sequence[GroupedTask]) -> Any:
    raise LookupError("no such thing")


def taken_id(group: str, tasks: Sequence[GroupedTask]) -> Any:
    return Task("whole", task_id="taken")


def taken_lock(group: str, tasks: Sequence[GroupedTask]) -> Any:
    return Task("taken", unique=60)


FAILURES = [
    (nothing, "the group aggregator must return a fastq.Task, not None"),
    (rubbish, "the group aggregator must return a fastq.Task, not ['no', 'task']"),
    (broken, "LookupError: no such thing"),
    (taken_id, "a task with the id of the new one exists"),
    (taken_lock, "another task holds the unique lock of the new one"),
]


@pytest.mark.parametrize(("bad", "says"), FAILURES)
def test_what_cannot_be_aggregated_goes_back_and_is_tried_later(
    bad: Any, says: str, db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    works = False

    def sometimes(group: str, tasks: Sequence[GroupedTask]) -> Any:
        return concat(group, tasks) if works or group != "g" else bad(group, tasks)

    async def test(bench: Bench) -> None:
        nonlocal works
        join(bench.queue, {"b": 1, "a": 2})
        join(bench.queue, {"x": 1}, "h")
        bench.db.set(keys.unique(QUEUE, "taken", None), "somebody else")
        aggregating = aggregator_on(bench, sometimes)
        before = leftovers(bench.queue)["groups"]["asynq:{default}:g:g"]
        bench.db.hset(keys.task(QUEUE, "taken"), "state", "completed")
        assert await aggregating.tick() == 7.0
        assert leftovers(bench.queue) == {
            "groups": {"asynq:{default}:g:g": before},
            "listed": {"g"},
            "tasks": ["a", "b"],
        }
        assert outcome(bench.queue) == {"whole:h": ["x"]}
        bench.clock.advance(9)
        works = True
        assert await aggregating.tick() == 1.0
        assert outcome(bench.queue) == {"whole:h": ["x"]}
        bench.clock.advance(1)
        await aggregating.tick()
        assert outcome(bench.queue) == {"whole:h": ["x"], "whole:g": ["b+a"]}
        assert leftovers(bench.queue) == {}

    on_bench(db, url, test)
    (line,) = logged(caplog)
    assert line.startswith("group 'g' of queue default was not aggregated: ")
    assert says in line
    assert "its 2 tasks will be aggregated again in 10 s" in line


def test_a_group_that_fails_again_is_left_alone_for_longer() -> None:
    from_zero = [10.0, 20.0, 40.0, 80.0, 120.0, 120.0]

    clock = ManualClock()
    waits = GroupBackoff(clock)
    for wait_s in from_zero:
        assert waits.longer("q", "g") == wait_s
        assert (waits.left_s("q", "g"), waits.left_s("q", "h")) == (wait_s, 0.0)
        clock.advance(wait_s)
        assert waits.left_s("q", "g") == 0.0
    waits.forget("q", "g")
    assert waits.longer("q", "g") == 10.0
    for number in range(MAX_KNOWN_WAITS):
        waits.longer("q", str(number))
    assert (waits.left_s("q", "g"), waits.left_s("q", "0")) == (0.0, 10.0)


def test_tasks_that_cannot_be_read_go_to_the_archive_and_the_others_are_aggregated(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": 1, "bad": 2, "c": 3, "dangling": 4})
        join(bench.queue, {"all-bad": 1}, "h")
        for task_id in ("bad", "all-bad"):
            bench.db.hset(keys.task(QUEUE, task_id), "msg", b"\xff\xff")
        bench.db.delete(keys.task(QUEUE, "dangling"))
        await aggregator_on(bench).tick()
        assert outcome(bench.queue) == {"whole:g": ["a+c"]}
        assert leftovers(bench.queue) == {}
        assert sorted(bench.queue.places()["archived"]) == ["all-bad", "bad"]
        archived = bench.queue.message("bad")
        assert (archived.type, archived.payload, archived.id) == ("fastq:undecodable", b"\xff\xff", "bad")
        assert archived.error_msg.startswith("InvalidMessageError: ")

    on_bench(db, url, test)
    assert len(logged(caplog)) == 2


class ArchiveSizes(Commands):
    """Note how many tasks, and how many bytes of messages, each call puts into the archive."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.broker)
        self.seen: list[tuple[int, int]] = []

    async def run_many(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        for operation in operations:
            if operation.name == "archive_aggregating":
                messages = [word for word in operation.args[5::2] if isinstance(word, bytes)]
                self.seen.append((len(messages), sum(map(len, messages))))
        return await super().run_many(operations)


@pytest.mark.parametrize(("count", "padding", "calls"), [(1001, 10, 3), (7, 100_000, 4), (2, 300_000, 2)])
def test_many_tasks_that_cannot_be_read_do_not_go_to_the_archive_in_one_script_call(
    count: int, padding: int, calls: int, db: Redis, url: str
) -> None:
    async def test(bench: Bench) -> None:
        ids = [f"{number:04d}" for number in range(count)]
        join(bench.queue, dict.fromkeys([*ids, "good"], 1.0))
        pipeline = bench.db.pipeline(transaction=False)
        for task_id in ids:
            pipeline.hset(keys.task(QUEUE, task_id), "msg", b"\xff" * padding)
        pipeline.execute()
        commands = ArchiveSizes(bench)
        await aggregator_on(bench, commands=commands).tick()
        assert outcome(bench.queue) == {"whole:g": ["good"]}
        assert leftovers(bench.queue) == {}
        assert sorted(bench.queue.places()["archived"]) == ids
        assert len(commands.seen) == calls
        assert all(tasks == 1 or (tasks <= 500 and size <= 256_000) for tasks, size in commands.seen)

    on_bench(db, url, test)


def test_nothing_is_taken_while_the_aggregator_cannot_be_started(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": 1})
        works = False

        async def prepare() -> bool:
            assert not bench.db.exists(keys.aggregation_sets(QUEUE))
            return works

        aggregating = aggregator_on(bench, prepare=prepare)
        before = leftovers(bench.queue)
        assert await aggregating.tick() == 7.0
        assert leftovers(bench.queue) == before
        works = True
        bench.clock.advance(10)
        await aggregating.tick()
        assert outcome(bench.queue) == {"whole:g": ["a"]}

    on_bench(db, url, test)


# Its life ---------------------------------------------------------------------------------------------------------


def test_it_finishes_the_set_under_way_and_takes_no_other(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": 1, "b": 1, "c": 1, "d": 1})
        began, may_end = asyncio.Event(), asyncio.Event()
        inner = in_process(concat)

        async def held(queue: str, group: str, messages: Sequence[bytes]) -> Any:
            began.set()
            await may_end.wait()
            return await inner(queue, group, messages)

        aggregating = aggregator_on(bench, rule=GroupRule(60, max_size=2), combine=held)
        aggregating.start()
        await began.wait()
        assert aggregating.is_busy
        ending = asyncio.create_task(aggregating.wind_down(PATIENCE_S))
        await asyncio.sleep(0)
        may_end.set()
        await ending
        await aggregating.finish(PATIENCE_S)
        assert outcome(bench.queue) == {"whole:g": ["a+b"]}
        assert leftovers(bench.queue)["groups"] == {"asynq:{default}:g:g": {"c": 1, "d": 1}}

    on_bench(db, url, test)


def test_a_set_that_could_not_be_given_back_at_once_is_given_back_later(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        inner = in_process(concat)
        failures = [BrokerError("cut off")]

        async def combine(queue: str, group: str, messages: Sequence[bytes]) -> Any:
            if failures:
                raise failures.pop()
            return await inner(queue, group, messages)

        join(bench.queue, {"a": NOW_S - 60, "b": NOW_S - 60})
        made = aggregator_on(bench, combine=combine)
        with pytest.raises(BrokerError, match="cut off"):
            await made.tick()
        db.set(keys.group(QUEUE, "g"), "in the way")
        with pytest.raises(BrokerError, match="WRONGTYPE"):
            await made.tick()
        db.delete(keys.group(QUEUE, "g"))
        await made.tick()
        assert outcome(bench.queue) == {"whole:g": ["a+b"]}
        assert leftovers(bench.queue) == {}

    on_bench(db, url, test)


def test_an_aggregator_that_is_told_of_the_end_gives_its_set_back(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": 1, "b": 1})
        stopped = asyncio.Event()

        async def until_stopped(queue: str, group: str, messages: Sequence[bytes]) -> Any:
            await stopped.wait()
            return AggregationFailure("the server stops")

        aggregating = aggregator_on(bench, combine=until_stopped)
        aggregating.start()
        while not aggregating.is_busy:
            await asyncio.sleep(0)
        await aggregating.wind_down(0.0)
        stopped.set()
        await aggregating.finish(PATIENCE_S)
        assert leftovers(bench.queue) == {
            "groups": {"asynq:{default}:g:g": {"a": 1, "b": 1}},
            "listed": {"g"},
            "tasks": ["a", "b"],
        }

    on_bench(db, url, test)


def test_it_starts_and_stops_again_and_again(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        for number in range(40):
            join(bench.queue, {f"{number:02d}": 1}, f"g{number}")
            aggregating = aggregator_on(bench)
            aggregating.start()
            for _ in range(number % 12):
                await asyncio.sleep(0)
            await aggregating.stop()
        await until(lambda: not under_way(bench.commands))  # what was asked for a set may come after its asker's end
        bench.clock.advance(121)
        await Reclaimer(bench.commands, bench.clock, str, aggregates=True).reclaim(QUEUE, no_news)
        last: Aggregator = aggregator_on(bench)
        last.start()
        await until(lambda: last.ticks)
        await last.stop()
        payloads = [payload for found in outcome(bench.queue).values() for payload in found]
        assert sorted(payloads) == [f"{number:02d}" for number in range(40)]
        assert leftovers(bench.queue) == {}

    on_bench(db, url, test)

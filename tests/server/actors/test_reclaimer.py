"""The reclaimer: sets of dead servers go back, what is left of aggregated ones goes, lost groups are listed."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from redis import Redis

from fastq import Client, GroupInfo, Inspector
from fastq.broker.operations.aggregate import STRETCH, AggregationSet
from fastq.broker.operations.enqueue import EnqueueBatch, NewTask
from fastq.broker.operations.ticks import NamedTick, enqueue_tick
from fastq.common.states import TaskState
from fastq.server.actors.reclaimer import Reclaimer
from fastq.server.base.commands import Commands
from fastq.wire import keys
from tests.broker.harness import NOW_NS, NOW_S, QUEUE, message
from tests.server.actors.groups import join, leftovers
from tests.server.harness import Bench, logged, no_news, on_bench, recoverer

ONE = AggregationSet(QUEUE, "g", "set-1")


def stage(bench: Bench, scores: dict[str, float], deadline_s: float, one: AggregationSet = ONE) -> None:
    """Let tasks be in a set, as after a take."""
    join(bench.queue, scores, one.group)
    bench.db.rename(keys.group(QUEUE, one.group), one.key)
    bench.db.srem(keys.groups(QUEUE), one.group)
    bench.db.zadd(keys.aggregation_sets(QUEUE), {one.key: deadline_s})


def test_sets_go_back_when_their_deadline_has_passed(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        large = {f"{number:04d}": float(number) for number in range(STRETCH * 2 + 3)}
        stage(bench, large, NOW_S)
        young = AggregationSet(QUEUE, "young", "set-2")
        stage(bench, {"y": 1}, NOW_S + 1, young)
        await Reclaimer(bench.commands, bench.clock, str, aggregates=True).reclaim(QUEUE, no_news)
        found = leftovers(bench.queue)
        assert found["groups"] == {"asynq:{default}:g:g": large, young.key: {"y": 1}}
        assert (found["listed"], found["sets"]) == ({"g"}, {young.key: NOW_S + 1})
        bench.clock.advance(1)
        await Reclaimer(bench.commands, bench.clock, str, aggregates=False).reclaim(QUEUE, no_news)
        assert leftovers(bench.queue)["listed"] == {"g", "young"}

    on_bench(db, url, test)
    assert "returned tasks to group 'g' of queue default: their aggregation did not finish" in logged(caplog)


def test_more_sets_than_one_look_shows_go_back_too(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        for number in range(230):
            stage(bench, {str(number): 1}, NOW_S - 1, AggregationSet(QUEUE, f"g{number}", "s"))
        await Reclaimer(bench.commands, bench.clock, str, aggregates=True).reclaim(QUEUE, no_news)
        assert len(leftovers(bench.queue)["listed"]) == 230
        assert "sets" not in leftovers(bench.queue)

    on_bench(db, url, test)


def test_what_is_no_set_neither_holds_the_recoverer_up_nor_hides_the_sets(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fastq.server.actors.reclaimer.SETS_AT_ONCE", 2)

    async def test(bench: Bench) -> None:
        foreign = {b"garbage": 1, b"asynq:{default}:g:\xff:x": 2, b"asynq:{default}:g:g": 3, b"a:b": float("inf")}
        bench.db.zadd(keys.aggregation_sets(QUEUE), foreign)
        stage(bench, {"a": 1}, NOW_S)
        reclaimer = Reclaimer(bench.commands, bench.clock, str, aggregates=True)
        rounds = 0

        def get_on() -> None:
            nonlocal rounds
            rounds += 1
            assert rounds < 100, "it never ends"

        await reclaimer.reclaim(QUEUE, get_on)
        found = leftovers(bench.queue)
        assert found == {"groups": {"asynq:{default}:g:g": {"a": 1}}, "listed": {"g"}, "tasks": ["a"]}
        assert rounds > 3

    on_bench(db, url, test)
    says = [line for line in logged(caplog) if "that are not sets" in line]
    assert len(says) == 3
    assert says[0].endswith("dropped 2 members of aggregation_sets that are not sets, the first: b'garbage'")


def test_sets_that_cannot_be_given_back_are_asked_for_once_a_round(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever keeps one on the list."""
    asked: list[AggregationSet] = []

    async def in_vain(commands: Commands, one: AggregationSet) -> int:
        assert not asked, "it never ends"
        asked.append(one)
        return 0

    monkeypatch.setattr("fastq.server.actors.reclaimer.give_back", in_vain)

    async def test(bench: Bench) -> None:
        stage(bench, {"a": 1}, NOW_S)
        await Reclaimer(bench.commands, bench.clock, str, aggregates=True).reclaim(QUEUE, no_news)

    on_bench(db, url, test)
    assert asked == [ONE]
    assert logged(caplog) == [], "nothing was given back"


def test_a_set_without_tasks_goes_and_nothing_is_said_of_tasks(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        bench.db.zadd(keys.aggregation_sets(QUEUE), {ONE.key: 1})
        await Reclaimer(bench.commands, bench.clock, str, aggregates=True).reclaim(QUEUE, no_news)
        assert leftovers(bench.queue) == {}

    on_bench(db, url, test)
    assert logged(caplog) == []


def test_what_is_left_of_an_aggregated_set_is_deleted_with_its_locks(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        lock = keys.unique(QUEUE, "t", b"x")
        stage(bench, {f"{number:04d}": 1.0 for number in range(STRETCH + 3)}, float("inf"))
        bench.queue.put("0500", "aggregating", unique_key=lock)
        bench.db.hset(keys.task(QUEUE, "0007"), "msg", b"\xff\xff")
        bench.db.delete(keys.task(QUEUE, "0008"))
        bench.db.set(lock, "0500")
        await Reclaimer(bench.commands, bench.clock, str, aggregates=False).reclaim(QUEUE, no_news)
        assert (leftovers(bench.queue), bench.queue.states(), bench.db.exists(lock)) == ({}, {}, 0)

    on_bench(db, url, test)


def test_lost_groups_are_listed_a_part_of_the_keys_at_a_time(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fastq.server.actors.reclaimer.STRETCHES_A_ROUND", 2)

    async def test(bench: Bench) -> None:
        join(bench.queue, {"a": 1})
        bench.db.srem(keys.groups(QUEUE), "g")
        bench.queue.pend(*(f"p{number}" for number in range(3000)))
        reclaimer = Reclaimer(bench.commands, bench.clock, str, aggregates=True)
        rounds = 0
        while not bench.db.exists(keys.groups(QUEUE)) or reclaimer._cursors[QUEUE]:
            await reclaimer.reclaim(QUEUE, no_news)
            rounds += 1
        assert 3 <= rounds <= 7  # of about 1 000 keys each
        assert bench.db.smembers(keys.groups(QUEUE)) == {b"g"}

    on_bench(db, url, test)
    assert logged(caplog) == ["queue default: listed 1 groups that had tasks but were missing from the list"]


def test_a_server_that_does_not_aggregate_says_once_that_there_are_groups(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        reclaimer = Reclaimer(bench.commands, bench.clock, str, aggregates=False)
        await reclaimer.reclaim(QUEUE, no_news)
        assert logged(caplog) == []
        join(bench.queue, {"a": 1})
        await reclaimer.reclaim(QUEUE, no_news)
        assert logged(caplog) == [], "they may be lanes: whether they are is asked now"
        for _ in range(2):
            await reclaimer.reclaim(QUEUE, no_news)
        await Reclaimer(bench.commands, bench.clock, str, aggregates=True).reclaim(QUEUE, no_news)

    on_bench(db, url, test)
    (line,) = logged(caplog)
    assert line.startswith("queue default has 1 groups, but this server has no group_aggregator")


def test_the_recoverer_asks_it_for_each_queue(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        stage(bench, {"a": 1}, NOW_S)
        reclaimer = Reclaimer(bench.commands, bench.clock, str, aggregates=False)
        await recoverer(bench, "other", QUEUE, reclaim=reclaimer.reclaim).tick()
        assert leftovers(bench.queue)["groups"] == {"asynq:{default}:g:g": {"a": 1}}

    on_bench(db, url, test)


GONE: dict[str, Callable[[Inspector], object]] = {
    "deleted": lambda inspector: inspector.delete_task(QUEUE, "a"),
    "run": lambda inspector: inspector.run_task(QUEUE, "a"),
    "archived": lambda inspector: inspector.archive_task(QUEUE, "a"),
    "all deleted": lambda inspector: inspector.delete_all_tasks(QUEUE, "scheduled"),
    "all run": lambda inspector: inspector.run_all_tasks(QUEUE, "scheduled"),
}


@pytest.mark.parametrize("way", GONE)
def test_the_name_of_a_group_whose_scheduled_tasks_are_gone_goes_too(way: str, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        reclaimer = Reclaimer(bench.commands, bench.clock, str, aggregates=True)
        with Client(url) as client, Inspector(url) as inspector:
            client.enqueue("t", group="g", process_in=3600, task_id="a")
            await reclaimer.reclaim(QUEUE, no_news)
            assert inspector.groups(QUEUE) == [GroupInfo("g", 0)]
            GONE[way](inspector)
            await reclaimer.reclaim(QUEUE, no_news)
            assert inspector.groups(QUEUE) == []
        assert not bench.db.exists(keys.scheduled_groups(QUEUE))

    on_bench(db, url, test)


def test_a_group_stays_listed_while_tasks_of_it_are_scheduled_or_in_it(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        reclaimer = Reclaimer(bench.commands, bench.clock, str, aggregates=True)
        with Client(url) as client, Inspector(url) as inspector:
            client.enqueue("t", process_in=60, task_id="first")
            for group, due_s in (("g", 3600), ("g", 7200), ("g", 3600), ("other", 3600)):
                client.enqueue("t", group=group, process_in=due_s, task_id=f"{group}-{due_s}-{uuid4()}")
            client.enqueue("t", group="full", process_in=30, task_id="joins")
            bench.db.zrem(keys.scheduled(QUEUE), "joins")  # as forwarders do, Go's too
            bench.db.zadd(keys.group(QUEUE, "full"), {"joins": 1})

            async def listed() -> list[str]:
                await reclaimer.reclaim(QUEUE, no_news)
                return [info.group for info in inspector.groups(QUEUE)]

            assert await listed() == ["full", "g", "other"]
            assert bench.db.zrange(keys.scheduled_groups(QUEUE), 0, -1) == [b"other", b"g"], "full is not asked again"
            early = [info.id for info in inspector.iter_tasks(QUEUE, "scheduled") if "-3600-" in info.id]
            for task_id in early:
                inspector.delete_task(QUEUE, task_id)
            # One task is due before the time of "other": it might be one of it, for all that is known of the group.
            assert await listed() == ["full", "g", "other"]
            inspector.delete_task(QUEUE, "first")
            assert await listed() == ["full", "g"]

    on_bench(db, url, test)


def test_a_named_schedulers_group_is_unlisted_as_well(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        tick = NamedTick("n", "e", NOW_S, 60, "", 60)
        task = NewTask("a", message("a"), run_at_s=NOW_S + 60, group="g")
        await bench.commands.run(enqueue_tick(tick, EnqueueBatch(QUEUE, TaskState.SCHEDULED, [task], NOW_NS)))
        reclaimer = Reclaimer(bench.commands, bench.clock, str, aggregates=True)
        await reclaimer.reclaim(QUEUE, no_news)
        assert bench.db.smembers(keys.groups(QUEUE)) == {b"g"}
        bench.db.zrem(keys.scheduled(QUEUE), "a")
        await reclaimer.reclaim(QUEUE, no_news)
        assert not bench.db.exists(keys.groups(QUEUE), keys.scheduled_groups(QUEUE))

    on_bench(db, url, test)


def test_a_thousand_names_go_in_one_round(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        names = [f"g{number}" for number in range(2 * STRETCH + 1)]
        bench.db.sadd(keys.groups(QUEUE), *names)
        bench.db.zadd(keys.scheduled_groups(QUEUE), dict.fromkeys(names, NOW_S))
        await Reclaimer(bench.commands, bench.clock, str, aggregates=False).reclaim(QUEUE, no_news)
        assert not bench.db.exists(keys.groups(QUEUE), keys.scheduled_groups(QUEUE))

    on_bench(db, url, test)


def test_groups_that_may_be_lanes_by_now_are_told(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        told: list[str] = []
        reclaimer = Reclaimer(bench.commands, bench.clock, told.append, aggregates=False)
        await reclaimer.reclaim(QUEUE, no_news)
        assert told == []
        bench.db.sadd(keys.groups(QUEUE), "acme")
        bench.db.zadd(keys.group(QUEUE, "acme"), {"a": NOW_S})
        await reclaimer.reclaim(QUEUE, no_news)
        bench.commands.lanes.add(QUEUE)
        await reclaimer.reclaim(QUEUE, no_news)
        assert told == [QUEUE]

    on_bench(db, url, test)

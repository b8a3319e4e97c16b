"""The forwarder: what is due goes on in time, in every queue, whatever trouble another queue has."""

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from fastq.server.actors.forwarder import BATCH, Forwarder
from fastq.wire import keys
from tests.broker.harness import NOW_NS, NOW_S, QUEUE, QueueBench
from tests.faulty_proxy import Act, faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.harness import Bench, ScriptFault, logged, on_bench


def forwarder(bench: Bench, *queues: str, on_tasks: Callable[[str], None] = lambda queue: None) -> Forwarder:
    return Forwarder(bench.commands, queues or (QUEUE,), 5.0, bench.clock, bench.stats, on_tasks)


def wait_in(bench: QueueBench, name: str, scores: dict[str, float]) -> None:
    for task_id, score in scores.items():
        bench.put(task_id, name)
        bench.db.zadd(bench.key(name), {task_id: score})


def test_due_tasks_of_every_queue_and_set_go_to_pending(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        for queue in ("q1", "q2"):
            there = QueueBench(bench.db, queue=queue)
            wait_in(there, "scheduled", {"s": NOW_S, "s-later": NOW_S + 100})
            wait_in(there, "retry", {"r": NOW_S - 1, "r-later": NOW_S + 100})
        assert await forwarder(bench, "q1", "q2").tick() == 5.0
        for queue in ("q1", "q2"):
            there = QueueBench(bench.db, queue=queue)
            assert there.places() == {"pending": ["r", "s"], "scheduled": ["s-later"], "retry": ["r-later"]}
            assert there.task("s")["pending_since"] == str(NOW_NS).encode()

    on_bench(db, url, test)


def test_more_than_a_batch_is_forwarded_in_one_go_and_in_order(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        ids = {f"{number:04d}": float(number) for number in range(3 * BATCH + 7)}
        wait_in(bench.queue, "scheduled", ids)
        await forwarder(bench).tick()
        assert bench.queue.places() == {"pending": list(ids)[::-1]}

    on_bench(db, url, test)


@pytest.mark.parametrize(
    ("due_s", "pause_s"),
    [
        (NOW_S + 0.0, 5.0),  # forwarded
        (NOW_S + 1.0, 1.0),
        (NOW_S + 3.0, 3.0),
        (NOW_S + 5.0, 5.0),
        (NOW_S + 600.0, 5.0),
        (NOW_S + 1.2, 2.0),  # no score of asynq's; it is due with the next whole second
        (1e30, 5.0),
        (float("inf"), 5.0),
    ],
)
def test_it_wakes_when_the_next_task_is_due(due_s: float, pause_s: float, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        wait_in(bench.queue, "retry", {"a": due_s, "b": NOW_S + 900.0})
        wait_in(bench.queue, "scheduled", {"c": NOW_S + 900.0})
        assert await forwarder(bench).tick() == pause_s

    on_bench(db, url, test)


@pytest.mark.parametrize("due_s", [float("-inf"), -1e300, float("inf"), 1e300])
def test_a_time_that_no_clock_reaches_is_told_without_harm(due_s: float, db: Redis, url: str) -> None:
    """Anybody may publish, and put any score into a set."""

    async def test(bench: Bench) -> None:
        forwarding = forwarder(bench)
        assert await forwarding.tick() == 5.0
        forwarding.note_due(QUEUE, due_s)
        assert 0.0 < await forwarding.tick() <= 5.0

    on_bench(db, url, test)


def test_a_task_is_forwarded_right_at_the_beginning_of_its_second(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        forwarding = forwarder(bench)
        wait_in(bench.queue, "scheduled", {"a": NOW_S + 2.0})
        bench.clock.advance(0.7)
        pause_s = await forwarding.tick()
        assert pause_s == pytest.approx(1.3)
        bench.clock.advance(pause_s - 0.01)
        assert 0.005 <= await forwarding.tick() <= 0.011
        assert "pending" not in bench.queue.places()
        bench.clock.advance(0.011)
        await forwarding.tick()
        assert bench.queue.places() == {"pending": ["a"]}

    on_bench(db, url, test)


def test_a_grouped_task_goes_to_its_group_which_is_listed(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        wait_in(bench.queue, "scheduled", {"a": 1, "b": 2})
        bench.db.hset(keys.task(QUEUE, "a"), "group", "g1")
        await forwarder(bench).tick()
        assert bench.queue.places() == {"pending": ["b"]}
        assert bench.db.zrange(keys.group(QUEUE, "g1"), 0, -1) == [b"a"]
        assert bench.db.smembers(keys.groups(QUEUE)) == {b"g1"}

    on_bench(db, url, test)


def test_ids_without_a_task_are_dropped_and_said(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        wait_in(bench.queue, "retry", {"dangling-1": 1, "a": 2, "dangling-2": 3})
        bench.db.delete(keys.task(QUEUE, "dangling-1"), keys.task(QUEUE, "dangling-2"))
        await forwarder(bench).tick()
        assert bench.queue.places() == {"pending": ["a"]}

    on_bench(db, url, test)
    assert logged(caplog) == ["dropped 2 ids without a task from queue default"]


def test_a_queue_that_fails_does_not_keep_the_others_waiting(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        bench.db.set(keys.scheduled("odd"), "not a set")
        wait_in(bench.queue, "scheduled", {f"{number:04d}": 1.0 for number in range(BATCH + 1)})
        await forwarder(bench, "odd", QUEUE).tick()
        assert len(bench.queue.places()["pending"]) == BATCH + 1

    on_bench(db, url, test)
    (said,) = logged(caplog)
    assert said.startswith("queue odd: forward: ")


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REPLY, Act.CUT_BEFORE_REQUEST])
def test_a_lost_reply_neither_loses_nor_doubles_a_task(act: Act, db: Any, shared_server: RedisServer) -> None:
    fault = ScriptFault("forward", act)
    db.script_load(fault.text)
    with faulty_proxy(shared_server.socket_path, fault) as proxy:

        async def test(bench: Bench) -> None:
            wait_in(bench.queue, "scheduled", {"a": 1, "b": 2})
            await forwarder(bench).tick()
            assert bench.queue.places() == {"pending": ["b", "a"]}

        on_bench(db, shared_server.url, test, through=proxy.url)


def calls(bench: Bench) -> int:
    stats: Any = bench.db.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


def test_only_the_queue_whose_task_is_due_is_asked(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        forwarding = forwarder(bench, "q1", "q2", "q3")
        wait_in(QueueBench(bench.db, queue="q2"), "retry", {"a": NOW_S + 2.0})
        await forwarding.tick()
        before = calls(bench)
        bench.clock.advance(1.0)
        assert await forwarding.tick() == 1.0
        assert calls(bench) == before
        bench.clock.advance(1.0)
        assert await forwarding.tick() == 3.0
        assert calls(bench) == before + 1
        assert QueueBench(bench.db, queue="q2").places() == {"pending": ["a"]}
        bench.clock.advance(3.0)
        assert await forwarding.tick() == 2.0, "the one that was asked between has its own time"
        assert calls(bench) == before + 3

    on_bench(db, url, test)


def test_a_time_that_is_told_is_kept_without_a_call(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        forwarding = forwarder(bench, "q1", QUEUE)
        await forwarding.tick()
        wait_in(bench.queue, "scheduled", {"a": NOW_S + 3.0})
        before = calls(bench)
        forwarding.note_due(QUEUE, NOW_S + 3.0)
        forwarding.note_due(QUEUE, NOW_S + 4.0)
        assert await forwarding.tick() == 3.0
        assert calls(bench) == before
        bench.clock.advance(3.0)
        assert await forwarding.tick() == 2.0
        assert calls(bench) == before + 1
        assert bench.queue.places() == {"pending": ["a"]}

    on_bench(db, url, test)


def test_a_time_that_is_told_wakes_it_only_if_it_is_before_its_next_look(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        forwarding = forwarder(bench)
        await forwarding.tick()
        forwarding.note_due(QUEUE, NOW_S + 5.0)
        assert not forwarding._is_woken
        forwarding.note_due(QUEUE, NOW_S + 4.0)
        assert forwarding._is_woken

    on_bench(db, url, test)


def test_a_time_that_is_told_while_redis_is_asked_is_not_forgotten(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task may have been put after the script looked, and the message be here before the script's reply."""

    async def test(bench: Bench) -> None:
        forwarding = forwarder(bench)
        run_many = bench.commands.run_many

        async def overtaken(operations: Any) -> Any:
            results = await run_many(operations)
            forwarding.note_due(QUEUE, NOW_S + 2.0)
            return results

        monkeypatch.setattr(bench.commands, "run_many", overtaken)
        assert await forwarding.tick() == 2.0

    on_bench(db, url, test)


def test_a_queue_that_failed_is_asked_again_soon(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        forwarding = forwarder(bench, QUEUE, "q2")
        await forwarding.tick()
        wait_in(bench.queue, "scheduled", {"a": NOW_S})
        bench.db.set(keys.retry(QUEUE), "not a set")
        forwarding.note_due(QUEUE, NOW_S)
        bench.clock.advance(1.0)
        pause_s = await forwarding.tick()
        assert 0.0 < pause_s <= 0.2
        assert bench.db.zcard(keys.scheduled(QUEUE)) == 1, "nothing is written by a call that fails"
        bench.db.delete(keys.retry(QUEUE))
        bench.clock.advance(0.25)
        assert await forwarding.tick() == 3.75
        assert bench.queue.places() == {"pending": ["a"]}

    on_bench(db, url, test)


def test_a_wall_clock_that_is_set_back_does_not_put_off_the_next_look(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        forwarding = forwarder(bench)
        await forwarding.tick()
        bench.clock.jump(-3600.0)
        bench.clock.advance(5.0)
        before = calls(bench)
        assert await forwarding.tick() == 5.0
        assert calls(bench) == before + 1

    on_bench(db, url, test)


def test_whoever_fetches_is_told_which_queues_have_tasks_now(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        told: list[str] = []
        wait_in(QueueBench(bench.db, queue="q1"), "retry", {"a": 1.0})
        wait_in(QueueBench(bench.db, queue="q2"), "retry", {"dangling": 1.0})
        bench.db.delete(keys.task("q2", "dangling"))
        forwarding = forwarder(bench, "q1", "q2", "q3", on_tasks=told.append)
        await forwarding.tick()
        assert told == ["q1"]

    on_bench(db, url, test)

"""The janitor: completed tasks go when their retention ends, in bounded batches, in every queue."""

import pytest
from redis import Redis

from fastq.errors import BrokerError
from fastq.server.actors.archive_keeper import ArchiveKeeper
from fastq.server.actors.janitor import Janitor
from fastq.server.base.config import ServerConfig
from fastq.wire import keys
from tests.broker.harness import NOW_S, QUEUE, QueueBench
from tests.server.harness import Bench, on_bench


def janitor(bench: Bench, *queues: str, batch_size: int = 10) -> Janitor:
    config = ServerConfig(queues=dict.fromkeys(queues or (QUEUE,), 1), janitor_batch_size=batch_size)
    return Janitor(bench.commands, config, ArchiveKeeper(bench.broker, config, bench.clock), bench.clock, bench.outage)


def complete(queue: QueueBench, scores: dict[str, float]) -> None:
    for task_id, score in scores.items():
        queue.put(task_id, "completed")
        queue.db.zadd(queue.key("completed"), {task_id: score})


def test_it_deletes_what_has_expired_and_keeps_the_rest(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        complete(bench.queue, {"old": 1, "now": NOW_S, "kept": NOW_S + 1})
        assert await janitor(bench).tick() == 8.0
        assert bench.queue.places() == {"completed": ["kept"]}
        assert bench.queue.states() == {"kept": "completed"}
        bench.clock.advance(1)
        await janitor(bench).tick()
        assert bench.queue.places() == {}
        assert bench.queue.states() == {}

    on_bench(db, url, test)


@pytest.mark.parametrize("count", [9, 10, 11, 25])
def test_no_call_deletes_more_than_a_batch_and_all_go_in_one_tick(count: int, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        complete(bench.queue, {str(number): number for number in range(count)})
        bench.db.config_resetstat()
        await janitor(bench).tick()
        assert bench.queue.places() == {}
        assert bench.db.info("commandstats")["cmdstat_evalsha"]["calls"] == count // 10 + 1

    on_bench(db, url, test)


def test_a_queue_that_fails_does_not_keep_the_others_from_being_cleaned(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.db.set(keys.completed("odd"), "not a set")
        complete(bench.queue, {str(number): number for number in range(35)})
        with pytest.raises(BrokerError, match="delete_expired_completed"):
            await janitor(bench, "odd", QUEUE).tick()
        assert bench.queue.places() == {}

    on_bench(db, url, test)


def test_a_queue_without_completed_tasks_is_looked_at_in_every_fourth_round(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        complete(bench.queue, {"kept": NOW_S + 3600})
        cleaning = janitor(bench, QUEUE, "empty")
        rounds = []
        for _ in range(9):
            bench.db.config_resetstat()
            await cleaning.tick()
            rounds.append(bench.db.info("commandstats")["cmdstat_evalsha"]["calls"])
        assert rounds == [2, 1, 1, 1, 2, 1, 1, 1, 2]

    on_bench(db, url, test)


def test_the_first_round_comes_after_one_interval(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        assert janitor(bench).first_tick_after_s() == 8.0

    on_bench(db, url, test)

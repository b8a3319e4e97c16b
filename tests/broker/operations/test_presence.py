"""Presence: what a server publishes of itself appears under asynq's keys, lives as long as asked, and goes again."""

from collections.abc import Iterator

import pytest
from redis import Redis

from fastq.broker.operations.finish import FinishOutcome, Guard, Retried, retry
from fastq.broker.operations.lease import list_leases
from fastq.broker.operations.presence import (
    ServerIdentity,
    ServerState,
    clear_server_state,
    count_servers,
    list_server,
    publish_server_state,
    save_checkpoint,
    write_result,
)
from fastq.broker.transport.open import open_broker
from fastq.errors import BrokerError
from fastq.wire import keys
from tests.broker.harness import GOS, NOW, NOW_S, OURS, QUEUE, THEIRS, QueueBench, message, queue_bench

ME = ServerIdentity("host", 7, "3c7b2c4e")
OTHER = ServerIdentity("host", 8, "3c7b2c4e")
INFO_KEY = "asynq:servers:{host:7:3c7b2c4e}"
NOTICE_KEY = "asynq:fastq:{host:7:3c7b2c4e}"
WORKERS_KEY = "asynq:workers:{host:7:3c7b2c4e}"
TTL_S = 3600


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def publish(bench: QueueBench, server: ServerIdentity, workers: dict[str, bytes], ttl_s: int = TTL_S) -> None:
    published = publish_server_state(server, ServerState(b"info", workers, b"notice"), ttl_s)
    for operation in (*list_server(server, NOW_S + ttl_s), *published):
        assert operation.idempotent
        bench.run(operation)


def test_servers_are_counted_until_they_are_out_of_date(bench: QueueBench) -> None:
    publish(bench, ME, {}, ttl_s=10)
    publish(bench, OTHER, {}, ttl_s=20)
    assert [bench.run(count_servers(NOW_S + after_s)) for after_s in (0, 10, 11, 21)] == [2, 2, 1, 0]


def test_a_server_is_listed_with_the_end_of_its_life(bench: QueueBench) -> None:
    publish(bench, ME, {})
    assert bench.db.zrange("asynq:servers", 0, -1, withscores=True) == [(INFO_KEY.encode(), NOW_S + TTL_S)]
    assert bench.db.zrange("asynq:workers", 0, -1, withscores=True) == [(WORKERS_KEY.encode(), NOW_S + TTL_S)]
    for key, value in ((INFO_KEY, b"info"), (NOTICE_KEY, b"notice")):
        assert bench.db.get(key) == value
        assert TTL_S - 600 < bench.db.ttl(key) <= TTL_S
    assert not bench.db.exists(WORKERS_KEY), "without running tasks there is no hash, as with asynq"


def test_running_tasks_are_listed_while_they_run(bench: QueueBench) -> None:
    publish(bench, ME, {"a": b"\x00", "b": b"2"})
    assert bench.db.hgetall(WORKERS_KEY) == {b"a": b"\x00", b"b": b"2"}
    assert TTL_S - 600 < bench.db.ttl(WORKERS_KEY) <= TTL_S
    publish(bench, ME, {"b": b"2"})
    assert bench.db.hgetall(WORKERS_KEY) == {b"b": b"2"}
    publish(bench, ME, {})
    assert not bench.db.exists(WORKERS_KEY)


def test_thousands_of_running_tasks_are_listed(bench: QueueBench) -> None:
    workers = {str(number): b"info" for number in range(10_000)}
    publish(bench, ME, workers)
    assert bench.db.hlen(WORKERS_KEY) == len(workers)


@pytest.mark.parametrize(
    ("count", "size", "calls"), [(0, 1, 1), (500, 1, 1), (501, 1, 2), (2, 128_000, 1), (3, 128_000, 2), (3, 300_000, 3)]
)
def test_what_runs_is_published_in_calls_of_bounded_size(bench: QueueBench, count: int, size: int, calls: int) -> None:
    """Large payloads of many running tasks, in one call every 5 s, would hold Redis for everybody."""
    publish(bench, ME, {"gone": b"since the last time"})
    workers = {str(number): bytes(size) for number in range(count)}
    operations = publish_server_state(ME, ServerState(b"info", workers, b"notice"), TTL_S)
    assert [operation.name for operation in operations] == [
        "write_server_state",
        *["add_worker_state"] * (calls - 1),
    ]
    for operation in operations:
        assert len(operation.args) <= 3 + 2 * 500
        bench.run(operation)
    assert bench.db.hgetall(WORKERS_KEY) == {task_id.encode(): info for task_id, info in workers.items()}
    assert not workers or TTL_S - 600 < bench.db.ttl(WORKERS_KEY) <= TTL_S


def test_a_server_that_leaves_takes_its_name_along_and_no_other(bench: QueueBench) -> None:
    publish(bench, ME, {"a": b"1"})
    publish(bench, OTHER, {"b": b"1"})
    for operation in clear_server_state(ME):
        assert operation.idempotent
        bench.run(operation)
    assert sorted(bench.db.keys("*")) == [
        OTHER.notice_key.encode(),
        b"asynq:servers",
        OTHER.info_key.encode(),
        b"asynq:workers",
        OTHER.workers_key.encode(),
    ]
    assert bench.db.zcard("asynq:servers") == bench.db.zcard("asynq:workers") == 1


def test_all_keys_of_a_server_share_its_hash_tag() -> None:
    for operation in (*publish_server_state(ME, ServerState(b"", {}, b""), 1), *clear_server_state(ME)):
        tags = {key.partition("{")[2].partition("}")[0] for key in operation.keys if "{" in key}
        assert tags <= {"host:7:3c7b2c4e"}


def test_a_result_is_written_while_the_task_is_ours(bench: QueueBench) -> None:
    bench.activate("a")
    assert bench.run(write_result(QUEUE, "a", OURS, b"\x00\xff"))
    assert bench.run(write_result(QUEUE, "a", OURS, b"last"))
    assert bench.task("a") == {"msg": message("a"), "state": b"active", "result": b"last"}


def test_a_result_of_a_task_that_is_not_ours_is_refused(bench: QueueBench) -> None:
    bench.activate("theirs", owner=THEIRS)
    bench.activate("gos", owner=GOS)
    bench.pend("pending")
    for task_id in ("theirs", "gos", "pending", "nosuch"):
        assert not bench.run(write_result(QUEUE, task_id, OURS, b"x"))
        assert "result" not in bench.task(task_id)
    assert bench.task("nosuch") == {}, "asynq's own write makes a hash of a result alone"


def test_a_checkpoint_is_saved_while_the_task_is_ours_and_forgets_how_often_it_was_lost(bench: QueueBench) -> None:
    bench.activate("a")
    bench.db.hset(keys.task(QUEUE, "a"), "lost", 2)
    assert bench.run(save_checkpoint(QUEUE, "a", OURS, b"message", OURS.score(NOW_S)))
    assert bench.task("a") == {"msg": b"message", "state": b"active"}
    bench.activate("theirs", owner=THEIRS)
    bench.pend("pending")
    for task_id in ("theirs", "pending", "nosuch"):
        before = bench.task(task_id)
        assert not bench.run(save_checkpoint(QUEUE, task_id, OURS, b"x", OURS.score(NOW_S)))
        assert bench.task(task_id) == before


def test_a_checkpoint_is_not_replaced_by_a_recoverer_that_has_read_the_message_before(bench: QueueBench) -> None:
    bench.activate("a", until_s=NOW_S - 70)
    (found,) = bench.run(list_leases(QUEUE, "-inf", str(NOW_S - 30), 10)).tasks
    saved = message("a", headers={"fastq-checkpoint": "7"})
    assert bench.run(save_checkpoint(QUEUE, "a", OURS, saved, OURS.score(NOW_S)))
    lost = Retried("a", found.message, NOW_S, is_failure=False)
    assert bench.run(retry(QUEUE, [lost], NOW, Guard(expired_at=NOW_S - 30))) == [FinishOutcome.NOT_OURS]
    assert bench.task("a")["msg"] == saved
    assert bench.scores("lease") == {"a": NOW_S + 30 + OURS.fraction}
    assert bench.run(save_checkpoint(QUEUE, "a", OURS, saved, OURS.score(NOW_S - 10)))
    assert bench.scores("lease") == {"a": NOW_S + 30 + OURS.fraction}, "a lease is never shortened"


def test_a_result_for_a_key_that_is_no_hash_is_an_error(bench: QueueBench, url: str) -> None:
    bench.activate("a")
    bench.db.delete(keys.task(QUEUE, "a"))
    bench.db.set(keys.task(QUEUE, "a"), "x")
    broker = open_broker(url)
    with pytest.raises(BrokerError, match="write_result"):
        broker.run(write_result(QUEUE, "a", OURS, b"x"))
    broker.close()

"""The inspectors on a real cluster: queues on three nodes, and servers on others than their list."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis
from redis.cluster import ClusterNode

from fastq import Client, GroupInfo, QueueNotFoundError
from fastq.wire import keys
from tests.inspector.harness import FACES, Ask
from tests.inspector.test_processes import publish
from tests.redis_servers import RedisServer, redis_cluster
from tests.waiting import PATIENCE_S

SLOTS = 16_384
QUEUES = ("a", "b", "c", "d", "e")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Sequence[RedisServer]]:
    with redis_cluster() as nodes:
        yield nodes


@pytest.fixture
def url(nodes: Sequence[RedisServer]) -> str:
    return "redis-cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


@pytest.fixture
def db(nodes: Sequence[RedisServer]) -> Iterator[Any]:
    started = [ClusterNode("127.0.0.1", node.port) for node in nodes]  # type: ignore[no-untyped-call]  # redis-py's
    with redis.RedisCluster(startup_nodes=started) as client:
        client.flushall(target_nodes=redis.RedisCluster.PRIMARIES)
        yield client


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, url: str, db: Any) -> Ask:
    return FACES[request.param](url)


@pytest.fixture
def filled(url: str, db: Any) -> None:
    """Put tasks into each of some queues, which are on all three nodes."""
    assert len({keys_node(db, queue) for queue in QUEUES}) == 3
    with Client(url) as client:
        for queue in QUEUES:
            for number in range(5):
                client.enqueue("t", queue=queue, task_id=f"p{number}")
                client.enqueue("t", b"u%d" % number, queue=queue, task_id=f"s{number}", process_in=3600, unique=3600)
                client.enqueue("t", b"g%d" % number, queue=queue, task_id=f"g{number}", group="g", unique=3600)


def keys_node(db: Any, queue: str) -> Any:
    return db.get_node_from_key(keys.pending(queue)).name


def left(db: Any) -> list[bytes]:
    return sorted(db.scan_iter(count=1000))


def test_queues_of_all_nodes_are_told_of(ask: Ask, filled: None) -> None:
    assert ask("queues") == list(QUEUES)
    for queue in QUEUES:
        info = ask("get_queue_info", queue)
        assert (info.pending, info.scheduled, info.aggregating, info.size) == (5, 5, 5, 15)
        assert ask("groups", queue) == [GroupInfo("g", 5)]
        assert [each.id for each in ask("list_pending_tasks", queue)] == [f"p{n}" for n in range(5)]
        assert [each.id for each in ask("iter_tasks", queue, "scheduled", page_size=2)] == [f"s{n}" for n in range(5)]
        assert ask("get_task_info", queue, "g3").group == "g"
        assert ask("history", queue, 2)[0].processed == 0


def test_tasks_of_all_nodes_are_run_archived_and_deleted(ask: Ask, filled: None, db: Any) -> None:
    for queue in QUEUES:
        ask("archive_task", queue, "p0")
        ask("run_task", queue, "s0")
        ask("delete_task", queue, "g0")
        ask("update_task_payload", queue, "s1", b"new")
        assert ask("run_all_scheduled_tasks", queue) == 4
        assert ask("archive_all_aggregating_tasks", queue, "g") == 4
        ask("pause_queue", queue)
        assert [each.id for each in ask("list_pending_tasks", queue)] == [
            *(f"p{n}" for n in range(1, 5)),
            *(f"s{n}" for n in range(5)),
        ]
        assert ask("delete_all_archived_tasks", queue) == 5
        assert ask("delete_all_pending_tasks", queue) == 9
    assert left(db) == sorted([b"asynq:queues", *(keys.paused(queue).encode() for queue in QUEUES)])


def test_queues_of_all_nodes_are_deleted_with_what_was_left_over(ask: Ask, filled: None, db: Any) -> None:
    for queue in QUEUES:
        db.set(keys.unique(queue, "t", b"old"), "gone")
        db.hset(keys.task(queue, "orphan"), "state", "retry")
        ask("delete_queue", queue, force=True)
    assert left(db) == []
    with pytest.raises(QueueNotFoundError):
        ask("delete_queue", "a")


def test_servers_are_told_of_wherever_their_keys_are(ask: Ask, db: Any) -> None:
    expected = [publish(db, f"server-{number}", 2) for number in range(6)]
    assert ask("servers") == expected


def test_the_nodes_of_a_queue_are_those_of_its_slot(ask: Ask, db: Any, nodes: Sequence[RedisServer]) -> None:
    found = {}
    for queue in QUEUES:
        assert ask("cluster_key_slot", queue) == db.keyslot(keys.pending(queue))
        (found[queue],) = ask("cluster_nodes", queue)
    assert {queue: node.addr for queue, node in found.items()} == {queue: keys_node(db, queue) for queue in QUEUES}
    for node in nodes:
        with node.client() as client:
            execute: Any = client.execute_command
            my_id = execute("CLUSTER", "MYID").decode()
        assert {each.addr for each in found.values() if each.id == my_id} <= {f"127.0.0.1:{node.port}"}
    everywhere = ask("all_cluster_nodes")
    assert {each.addr for each in everywhere} == {f"127.0.0.1:{node.port}" for node in nodes}
    assert sum(each.slots for each in everywhere if each.is_master) == SLOTS
    assert set(found.values()) <= set(everywhere)


def test_a_cancellation_reaches_every_node(ask: Ask, nodes: Sequence[RedisServer], db: Any) -> None:
    with nodes[2].client() as client:
        with_channel: Any = client
        with with_channel.pubsub() as pubsub:
            pubsub.subscribe(keys.CANCEL_CHANNEL)
            assert pubsub.get_message(timeout=PATIENCE_S)["type"] == "subscribe"
            ask("cancel_processing", "it")
            assert pubsub.get_message(timeout=PATIENCE_S)["data"] == b"it"


def test_own_keys_of_all_nodes_are_deleted(ask: Ask, filled: None, db: Any) -> None:
    before = left(db)
    own = [make(queue) for make in (keys.errors, keys.archive_rule) for queue in QUEUES]
    for key in (*own, keys.scheduler_ticks(), keys.server_notice(keys.server_info("h", 1, "i"))):
        db.set(key, 1)
    assert ask("own_keys") == {"archive_rule": 5, "errors": 5, "fastq": 1, "scheduler_ticks": 1}
    assert ask("delete_own_keys") == 12
    assert left(db) == before

"""The doctor on a real cluster: queues on three nodes, and keys on all of them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from fastq.broker.inspect.examine import examine_list, examine_lock, examine_set
from fastq.broker.transport.open import open_broker
from fastq.common.states import TaskState
from fastq.errors import BrokerError
from fastq.inspector.doctor.examination import Order, Report, examine
from fastq.inspector.doctor.finding import Level
from fastq.wire import keys
from tests.broker.clusters import MIGRATE_MS, Cluster
from tests.broker.harness import QueueBench
from tests.inspector.doctor.harness import DEFECTS, sound
from tests.inspector.harness import Seeded
from tests.inspector.test_cluster import QUEUES, db, keys_node, nodes, url
from tests.redis_servers import RedisServer, silent

__all__ = ["db", "nodes", "url"]


@pytest.fixture
def look(url: str) -> Iterator[Any]:
    broker = open_broker(url)

    def examined(*, repair: bool = False) -> set[tuple[str, str | None]]:
        report: Report = broker.drive(examine(Order(time.time_ns)))
        for one in report.repairs if repair else ():
            broker.drive(one.carry_out())
        ours = [
            finding for finding in report.findings if finding.check not in ("persistence", "served", "slow commands")
        ]
        return {(finding.check, finding.queue) for finding in ours if finding.level is not Level.OK}

    yield examined
    broker.close()


def test_the_node_without_memory_is_named_whichever_it_is(url: str, nodes: Sequence[RedisServer], db: Any) -> None:
    del db  # emptied
    for node in nodes:
        with node.client() as client, closing(open_broker(url)) as broker:
            client.config_set("maxmemory", "100kb")
            report: Report = broker.drive(examine(Order(time.time_ns)))
            client.config_set("maxmemory", 0)
        (found,) = (finding for finding in report.findings if finding.check == "memory")
        assert found.level is Level.PROBLEM
        assert found.seen.startswith(f"127.0.0.1:{node.port}: ")


def test_a_silent_node_is_named_and_the_queues_of_the_others_are_looked_at(
    url: str, nodes: Sequence[RedisServer], db: Any
) -> None:
    for queue in QUEUES:
        DEFECTS["dangling in pending"].make(sound(db, queue))
    listing = db.get_node_from_key(keys.all_queues()).name
    for node in nodes:
        with closing(open_broker(f"{url}?read_timeout=0.5")) as broker, silent(node):
            report: Report = broker.drive(examine(Order(time.time_ns)))
        problems = {(one.check, one.queue): one for one in report.of_level(Level.PROBLEM)}
        name = f"127.0.0.1:{node.port}"
        assert problems["node", None].seen.startswith(f"{name} does not answer: ")
        others = {("ids without task", queue) for queue in QUEUES if keys_node(db, queue) != name}
        assert (others <= problems.keys()) is (name != listing), problems


def test_defects_on_each_node_are_seen_and_repaired(look: Any, db: Any) -> None:
    names: Sequence[str] = ("dangling in pending", "lost, retry", "leftover", "lock")
    for queue in QUEUES:
        sound(db, queue)
    assert look() == set()
    for queue in QUEUES:
        for name in names:
            DEFECTS[name].make(Seeded(db, queue))
    db.srem(keys.all_queues(), QUEUES[0])
    assert len({keys_node(db, queue) for queue in QUEUES}) == 3
    checks = {DEFECTS[name].check for name in names}
    expected = {(check, queue) for check in checks for queue in QUEUES}
    expected |= {(check, QUEUES[0]) for check in ("unlisted queues", "remains of queues")}
    assert look() == expected - {("ids without task", QUEUES[0])}, "it is walked once it is listed"
    for _ in range(2):
        look(repair=True)
    assert look() == set()


def test_a_task_on_its_way_to_another_node_is_neither_reported_nor_repaired(
    nodes: Sequence[RedisServer],
) -> None:
    cluster = Cluster(nodes)
    source, target = nodes[:2]
    (name,) = cluster.queues_on(source)
    with source.client() as client:
        queue = QueueBench(client, queue=name)
        queue.pend("p1", "p2")
        queue.activate("a1")
        client.sadd(keys.groups(name), "g")  # where a key of the script's own is missing, Redis does not begin it
        queue.put("r1", "retry")
        client.zadd(keys.retry(name), {"r1": 4e9})
        lock = keys.unique(name, "t", None)
        client.set(lock, "p1")
        cluster.begin_move(name, source, target)
        for task_id in ("p1", "r1"):
            cluster.ask(source, "MIGRATE", "127.0.0.1", target.port, keys.task(name, task_id), 0, MIGRATE_MS)
        broker = open_broker(client)
        examined = broker.run_many(
            [
                examine_list(name, TaskState.PENDING, "0", repair=True),
                examine_set(name, keys.retry(name), TaskState.RETRY, "0", repair=True),
                examine_lock(name, lock, repair=True),
            ]
        )
        assert all(isinstance(result, BrokerError) for result in examined), examined
        assert (queue.db.lrange(keys.pending(name), 0, -1), queue.db.zcard(keys.retry(name))) == ([b"p2", b"p1"], 1)
        assert client.get(lock) == b"p1"
    cluster.move_keys(name, source, target)
    cluster.end_move(name, target)

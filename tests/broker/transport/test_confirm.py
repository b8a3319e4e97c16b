"""Writes that replicas are to confirm: what counts as enqueued, and what is said of the rest."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from fastq import AsyncClient, BrokerNotConfirmedError, Client, DuplicateTaskError, Task, TaskIDConflictError
from fastq.wire import keys
from tests.broker.clusters import Cluster
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_cluster, redis_server
from tests.waiting import PATIENCE_S, wait_until

SHORT_S = 0.05


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RedisServer, RedisServer]]:
    """Run a master and its replica."""
    with (
        redis_server(free_port(), "", {"repl-diskless-sync-delay": "0"}) as master,
        redis_server(free_port()) as replica,
    ):
        with replica.client() as client:
            client.replicaof("127.0.0.1", master.port)
            wait_until(lambda: client.info("replication")["master_link_status"] == "up")
        yield master, replica


@contextmanager
def stopped(server: RedisServer) -> Iterator[None]:
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def has(server: RedisServer, task_id: str, queue: str = "default") -> bool:
    with server.client() as db:
        return bool(db.exists(keys.task(queue, task_id)))


def test_a_task_counts_as_enqueued_once_the_replica_has_it(pair: tuple[RedisServer, RedisServer]) -> None:
    master, replica = pair
    with Client(master.tcp_url, wait_replicas=1, wait_timeout=PATIENCE_S / 2) as client:
        for number in range(20):
            info = client.enqueue("t")
            assert has(replica, info.id), f"number {number}"
        client.enqueue_many([Task("t", queue=f"q{number}", task_id="many") for number in range(3)])
        assert [has(replica, "many", f"q{number}") for number in range(3)] == [True] * 3
        with stopped(replica):
            client.ping()


def test_a_task_that_no_replica_has_confirmed_is_enqueued_and_an_error(pair: tuple[RedisServer, RedisServer]) -> None:
    master, replica = pair

    async def enqueue() -> None:
        async with AsyncClient(master.tcp_url, wait_replicas=1, wait_timeout=timedelta(seconds=SHORT_S)) as client:
            results = await asyncio.gather(*(client.enqueue("t") for _ in range(5)), return_exceptions=True)
            assert [type(result) for result in results] == [BrokerNotConfirmedError] * 5

    with stopped(replica):
        with Client(master.tcp_url, wait_replicas=1, wait_timeout=SHORT_S) as client:
            with pytest.raises(BrokerNotConfirmedError) as caught:
                client.enqueue("t", task_id="unconfirmed")
            assert str(caught.value) == (
                "enqueue: written, but 0 of 1 replicas have confirmed it within 0.05 s; a failover may lose it"
            )
            assert caught.value.maybe_applied
            assert not caught.value.transient
            assert has(master, "unconfirmed")
            with pytest.raises(BrokerNotConfirmedError) as caught:
                client.enqueue_many([Task("t"), Task("t")])
            assert caught.value.results is not None
        asyncio.run(enqueue())
        with Client(master.tcp_url) as client:
            client.enqueue("t")


@pytest.mark.parametrize("way", ["Client", "AsyncClient"])
def test_a_task_whose_reply_was_lost_is_not_known_to_be_confirmed(
    way: str, pair: tuple[RedisServer, RedisServer]
) -> None:
    """The one that is found was waited for on a connection that is gone; the one that is sent again is confirmed."""
    master, replica = pair
    with Client(master.url) as client:
        client.enqueue("other", task_id=f"conflict-{way}")
    tasks = [Task("t", task_id=f"lost-{way}"), Task("t", task_id=f"conflict-{way}")]

    def results_of(url: str) -> Any:
        options: Any = {"wait_replicas": 1, "wait_timeout": PATIENCE_S / 2}

        async def enqueue_async() -> Any:
            async with AsyncClient(url, **options) as client:
                return await client.enqueue_many(tasks)

        with Client(url, **options) as client:
            return client.enqueue_many(tasks) if way == "Client" else asyncio.run(enqueue_async())

    with faulty_proxy(master.socket_path, Fault("EVALSHA", Act.CUT_BEFORE_REPLY)) as proxy:
        with pytest.raises(BrokerNotConfirmedError) as caught:
            results_of(proxy.url)
        assert str(caught.value).startswith(
            "enqueue: written, but no answer to the question whether 1 replicas have it: "
        )
        assert caught.value.results is not None
        assert [type(result) for result in caught.value.results] == [BrokerNotConfirmedError, TaskIDConflictError]
        proxy.faults.append(Fault("EVALSHA", Act.CUT_BEFORE_REQUEST))
        tasks = [Task("t", task_id=f"again-{way}")]
        assert results_of(proxy.url).enqueued == 1
        assert has(replica, f"again-{way}")


@pytest.mark.parametrize("way", ["Client", "AsyncClient"])
def test_a_conflict_is_said_whether_or_not_replicas_answer(way: str, pair: tuple[RedisServer, RedisServer]) -> None:
    master, replica = pair
    options: Any = {"wait_replicas": 1, "wait_timeout": SHORT_S}
    with Client(master.url) as client:
        client.enqueue("t", task_id=f"there-{way}")
        client.enqueue("once", way, unique=60)
    there = Task("t", task_id=f"there-{way}")
    once = Task("once", way, unique=60)

    async def enqueue(*tasks: Task) -> Any:
        async with AsyncClient(master.tcp_url, **options) as client:
            return await (client.enqueue(tasks[0]) if len(tasks) == 1 else client.enqueue_many(tasks))

    def answer_to(*tasks: Task) -> Any:
        if way == "AsyncClient":
            return asyncio.run(enqueue(*tasks))
        with Client(master.tcp_url, **options) as client:
            return client.enqueue(tasks[0]) if len(tasks) == 1 else client.enqueue_many(tasks)

    with stopped(replica):
        with pytest.raises(TaskIDConflictError):
            answer_to(there)
        with pytest.raises(DuplicateTaskError):
            answer_to(once)
        with pytest.raises(BrokerNotConfirmedError) as caught:
            answer_to(Task("t"), there, once)
    kinds = [BrokerNotConfirmedError, TaskIDConflictError, DuplicateTaskError]
    assert [type(result) for result in caught.value.results or ()] == kinds


def test_a_refused_wait_confirms_nothing(pair: tuple[RedisServer, RedisServer]) -> None:
    master, _ = pair
    with master.client() as db:
        db.execute_command("ACL", "SETUSER", "producer", "on", ">word", "~*", "&*", "+@all", "-wait")
    with (
        Client(f"redis://producer:word@127.0.0.1:{master.port}", wait_replicas=1) as client,
        pytest.raises(BrokerNotConfirmedError, match=r"no answer to the question whether 1 replicas have it: .*wait"),
    ):
        client.enqueue("t")


@pytest.mark.parametrize("way", ["Client", "AsyncClient"])
def test_each_node_of_a_cluster_is_asked_for_its_own_writes(way: str) -> None:
    """None has a replica, so that nothing can be confirmed; but all is written."""
    with redis_cluster() as nodes:
        cluster = Cluster(nodes)
        tasks = [Task("t", queue=cluster.queues_on(node)[0]) for node in nodes]

        async def enqueue_async() -> Any:
            async with AsyncClient(cluster.url, wait_replicas=1, wait_timeout=SHORT_S) as client:
                return await client.enqueue_many(tasks)

        def enqueue() -> Any:
            with Client(cluster.url, wait_replicas=1, wait_timeout=SHORT_S) as client:
                return client.enqueue_many(tasks)

        with pytest.raises(BrokerNotConfirmedError) as caught:
            enqueue() if way == "Client" else asyncio.run(enqueue_async())
        assert caught.value.results is not None
        assert [type(result) for result in caught.value.results] == [BrokerNotConfirmedError] * 3
        for node, task in zip(nodes, tasks, strict=True):
            with node.client() as db:
                assert db.llen(keys.pending(str(task.options["queue"]))) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"wait_replicas": -1}, "^wait_replicas must be a number of replicas, not -1$"),
        ({"wait_replicas": "2"}, "^wait_replicas must be a number of replicas, not '2'$"),
        ({"wait_replicas": 1, "wait_timeout": 0}, "^wait_timeout must be more than 0 and at most 60 s, not 0 s$"),
        ({"wait_replicas": 1, "timeout": 1.0}, "^wait_timeout must be less than timeout \\(1.0\\), not 1.0$"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], text: str) -> None:
    for client in (Client, AsyncClient):
        with pytest.raises(ValueError, match=text):
            client(**options)

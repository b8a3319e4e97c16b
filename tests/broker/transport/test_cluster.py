"""Clients on a real cluster: which node gets what, and what happens while slots move and nodes go."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.cluster import ClusterNode

from fastq import (
    AsyncClient,
    BrokerAuthError,
    BrokerConnectionError,
    Client,
    DuplicateTaskError,
    Task,
    TaskIDConflictError,
    TaskInfo,
)
from fastq.broker.operation import Operation
from fastq.broker.operations.aggregate import (
    AggregationSet,
    CommitOutcome,
    GroupRule,
    commit_set,
    delete_members,
    list_sets,
    read_set,
    reclaim_set,
    relist_groups,
    scan_groups,
    take_set,
)
from fastq.broker.operations.ends import look_at, parts_of, read_end
from fastq.broker.operations.enqueue import NewTask, register_queue
from fastq.broker.operations.lease import list_leases
from fastq.broker.operations.maintain import forward
from fastq.broker.transport import faults
from fastq.broker.transport.connection import connect_async
from fastq.broker.transport.open import open_async_broker, open_broker
from fastq.broker.transport.wait import TaskWatch
from fastq.common.states import TaskState
from fastq.errors import BrokerError
from fastq.wire import keys
from tests.broker.clusters import MIGRATE_MS, Cluster, node_errors, slot_of
from tests.broker.harness import NOW_NS, QueueBench, message, run, until
from tests.cutting_proxy import cutting_proxy
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_cluster, redis_server
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with redis_cluster() as nodes:
        yield Cluster(nodes)


class Blocking:
    """Drive a Client."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)

    def do(self, call: Callable[[Any], Any]) -> Any:
        return call(self._client)

    def close(self) -> None:
        self._client.close()


class Looping:
    """Drive an AsyncClient on a loop of its own, from call to call."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(url)

    def do(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await call(self._client)

        return self._runner.run(run())

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


@pytest.fixture(params=[Blocking, Looping], ids=["Client", "AsyncClient"])
def client(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Any]:
    made = request.param(cluster.url)
    yield made
    made.close()


def enqueue(queue: str, **options: Any) -> Callable[[Any], Any]:
    return lambda client: client.enqueue("t", b"x", queue=queue, **options)


def registered(cluster: Cluster) -> set[str]:
    nodes = [ClusterNode("127.0.0.1", node.port) for node in cluster.nodes]  # type: ignore[no-untyped-call]  # redis-py's
    with redis.RedisCluster(startup_nodes=nodes) as peer:
        found: Any = peer.smembers("asynq:queues")
        return {name.decode() for name in found}


def test_each_queue_is_on_the_node_of_its_slot(cluster: Cluster, client: Any) -> None:
    for node in cluster.nodes:
        for queue in cluster.queues_on(node, 3):
            info = client.do(enqueue(queue, task_id="a"))
            assert info.queue == queue
            assert cluster.keys_of(node, queue) == [f"asynq:{{{queue}}}:pending", f"asynq:{{{queue}}}:t:a"]
            assert queue in registered(cluster)


def test_one_call_reaches_all_nodes_and_answers_in_order(cluster: Cluster, client: Any) -> None:
    queues = [cluster.queues_on(node, 2) for node in cluster.nodes]
    names = [name for pair in zip(*queues, strict=True) for name in pair]
    tasks = [
        Task("t", b"%d" % n, queue=names[n % 6], task_id=f"{n}", unique=60 if n % 5 == 0 else None) for n in range(1300)
    ]
    results = client.do(lambda client: client.enqueue_many(tasks))
    assert [result.id for result in results if isinstance(result, TaskInfo)] == [f"{n}" for n in range(1300)]
    assert [result.queue for result in results[:12]] == names * 2
    for node, pair in zip(cluster.nodes, queues, strict=True):
        for queue in pair:
            assert len([key for key in cluster.keys_of(node, queue) if "}:t:" in key]) in {216, 217}


def test_conflicts_and_duplicates_come_from_their_nodes(cluster: Cluster, client: Any) -> None:
    first, second, third = (cluster.queues_on(node)[0] for node in cluster.nodes)
    client.do(enqueue(first, task_id="a"))
    client.do(enqueue(second, unique=60))
    tasks = [
        Task("t", b"x", queue=first, task_id="a"),
        Task("t", b"x", queue=second, unique=60),
        Task("t", b"x", queue=third),
    ]
    results = client.do(lambda client: client.enqueue_many(tasks))
    assert [type(result) for result in results] == [TaskIDConflictError, DuplicateTaskError, TaskInfo]


def test_ping_asks_some_node(client: Any) -> None:
    client.do(lambda client: client.ping())


def test_scripts_that_the_nodes_forgot_heal(cluster: Cluster, client: Any) -> None:
    queues = [cluster.queues_on(node)[0] for node in cluster.nodes]
    client.do(lambda client: client.enqueue_many([Task("t", queue=queue) for queue in queues]))
    for node in cluster.nodes:
        cluster.ask(node, "SCRIPT", "FLUSH")
    results = client.do(lambda client: client.enqueue_many([Task("t", queue=queue) for queue in queues]))
    assert results.enqueued == 3


def test_a_moved_slot_is_followed_and_remembered(cluster: Cluster, client: Any) -> None:
    source, target = cluster.nodes[:2]
    queue = cluster.queues_on(source)[0]
    client.do(enqueue(queue, task_id="a"))
    cluster.begin_move(queue, source, target)
    cluster.move_keys(queue, source, target)
    cluster.end_move(queue, target)
    before = cluster.redirections("MOVED")
    client.do(enqueue(queue, task_id="b"))
    followed = cluster.redirections("MOVED")
    client.do(enqueue(queue, task_id="c"))
    assert followed > before
    assert cluster.redirections("MOVED") == followed, "the new map is known"
    assert [key for key in cluster.keys_of(target, queue) if ":t:" in key] == [
        f"asynq:{{{queue}}}:t:{task_id}" for task_id in "abc"
    ]


def test_only_the_commands_of_the_moved_slot_are_sent_again(cluster: Cluster, client: Any) -> None:
    source, target = cluster.nodes[1:]
    moved, stays = cluster.queues_on(source, 2)
    client.do(lambda client: client.enqueue_many([Task("t", queue=moved), Task("t", queue=stays)]))
    cluster.begin_move(moved, source, target)
    cluster.move_keys(moved, source, target)
    cluster.end_move(moved, target)
    tasks = [Task("t", queue=queue) for queue in (moved, stays) for _ in range(3)]
    assert client.do(lambda client: client.enqueue_many(tasks)).enqueued == 6
    assert len(cluster.keys_of(target, moved)) == len(cluster.keys_of(source, stays)) == 5


def test_a_slot_whose_keys_have_moved_is_asked_for_at_its_new_node(cluster: Cluster, client: Any) -> None:
    source, target = cluster.nodes[:2]
    queue = cluster.queues_on(source)[0]
    client.do(enqueue(queue, task_id="a"))
    cluster.begin_move(queue, source, target)
    cluster.move_keys(queue, source, target)
    before = cluster.redirections("ASK")
    assert client.do(lambda client: client._broker.drive(read_end((queue, "a", "")))) is None, "it has not ended"
    assert cluster.redirections("ASK") > before
    cluster.end_move(queue, target)


def test_a_task_on_its_way_to_another_node_is_not_enqueued_twice(
    cluster: Cluster, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new node would take it, knowing neither its id nor its lock, and then refuse those of the first one."""
    monkeypatch.setitem(faults._TRIES, "TRYAGAIN", 2)
    source, target = cluster.nodes[:2]
    queue = cluster.queues_on(source)[0]
    client.do(enqueue(queue, task_id="a", unique=60))
    cluster.begin_move(queue, source, target)
    cluster.ask(source, "MIGRATE", "127.0.0.1", target.port, keys.pending(queue), 0, MIGRATE_MS)
    for task_id in "ab":
        with pytest.raises(BrokerConnectionError, match="the cluster is moving this queue to another node") as raised:
            client.do(enqueue(queue, task_id=task_id, unique=60))
        assert not raised.value.maybe_applied
    assert cluster.keys_of(target, queue) == [keys.pending(queue)]
    cluster.move_keys(queue, source, target)
    cluster.end_move(queue, target)
    with pytest.raises(DuplicateTaskError):
        client.do(enqueue(queue, task_id="b", unique=60))


def test_a_slot_that_stays_on_its_way_refuses_and_nothing_is_written(
    cluster: Cluster, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some keys are here, some are there: no node can do it, and a pending list begun there would stop the move."""
    monkeypatch.setitem(faults._TRIES, "TRYAGAIN", 2)
    source, target = cluster.nodes[:2]
    queue = cluster.queues_on(source)[0]
    client.do(enqueue(queue, task_id="a"))
    cluster.begin_move(queue, source, target)
    with pytest.raises(BrokerConnectionError, match="the cluster is moving this queue to another node; try again") as e:
        client.do(enqueue(queue, task_id="b"))
    assert not e.value.maybe_applied
    assert e.value.transient
    assert cluster.keys_of(source, queue) == [f"asynq:{{{queue}}}:pending", f"asynq:{{{queue}}}:t:a"]
    assert cluster.keys_of(target, queue) == []
    cluster.move_keys(queue, source, target)
    cluster.end_move(queue, target)
    assert client.do(enqueue(queue, task_id="b")).id == "b"


@pytest.mark.parametrize("options", [{}, {"process_in": 3600}, {"group": "g"}], ids=["pending", "scheduled", "group"])
def test_an_enqueue_waits_for_the_slot_that_moves(cluster: Cluster, client: Any, options: dict[str, Any]) -> None:
    source, target = cluster.nodes[:2]
    queue = cluster.queues_on(source)[0]
    client.do(enqueue(queue, task_id="a", **options))
    before = refusals(source)
    cluster.begin_move(queue, source, target)

    def end_once_it_was_refused() -> None:
        wait_until(lambda: refusals(source) > before)
        cluster.move_keys(queue, source, target)
        cluster.end_move(queue, target)

    with ThreadPoolExecutor() as threads:
        ending = threads.submit(end_once_it_was_refused)
        assert client.do(enqueue(queue, task_id="b", **options)).id == "b"
        ending.result()
    assert keys.task(queue, "b") in cluster.keys_of(target, queue)


def refusals(node: RedisServer) -> int:
    found = node_errors(node)
    return sum(found.get(f"errorstat_{kind}", {}).get("count", 0) for kind in ("ERR", "TRYAGAIN"))


def test_a_task_on_its_way_to_another_node_is_not_taken_for_a_dangling_id(cluster: Cluster) -> None:
    """Its id is still here and its hash is there already: whoever took the id for one without task would lose it."""
    source, target = cluster.nodes[:2]
    queue = cluster.queues_on(source)[0]
    with source.client() as db, closing(open_broker(cluster.url)) as broker:
        bench = QueueBench(db, queue=queue)
        bench.activate("running", until_s=1)
        bench.pend("waiting")
        bench.put("due", "scheduled")
        db.zadd(bench.key("scheduled"), {"due": 1})
        db.sadd(bench.key("groups"), "g")
        bench.put("grouped", "aggregating")
        one = AggregationSet(queue, "g", "s")
        db.zadd(one.key, {"grouped": 1})
        cluster.begin_move(queue, source, target)
        moved = [keys.task(queue, "running"), keys.task(queue, "due"), keys.task(queue, "grouped")]
        cluster.ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, MIGRATE_MS, "KEYS", *moved)
        operations: list[Operation[Any]] = [
            list_leases(queue, "-inf", "2", 10),
            forward(queue, NOW_NS, 10),
            read_set(one, 0),
        ]
        for operation in operations:
            (result,) = broker.run_many((operation,))
            assert isinstance(result, BrokerConnectionError), result
        assert [db.zrange(bench.key(name), 0, -1) for name in ("lease", "scheduled")] == [[b"running"], [b"due"]]
        assert db.lrange(bench.key("active"), 0, -1) == [b"running"]
        assert db.zrange(one.key, 0, -1) == [b"grouped"]
    cluster.move_keys(queue, source, target)
    cluster.end_move(queue, target)


def test_groups_are_aggregated_on_the_nodes_of_their_queues(cluster: Cluster) -> None:
    with Client(cluster.url) as client, closing(open_broker(cluster.url)) as broker:
        for node in cluster.nodes:
            (queue,) = cluster.queues_on(node)
            client.enqueue("t", b"1", queue=queue, group="g", task_id="a", unique=60)
            client.enqueue("t", b"2", queue=queue, group="g", task_id="b")
            now_s, rule = 4_000_000_000, GroupRule(60)
            assert broker.run(scan_groups(queue, 0, rule, now_s)).due == ["g"]
            one = AggregationSet(queue, "g", "s")
            assert broker.run(take_set(one, rule, now_s, now_s + 120)) == 2
            assert broker.run(list_sets(queue, now_s + 120, 10)).sets == [one]
            assert broker.run(reclaim_set(one)) == 2
            with node.client() as db:
                db.srem(keys.groups(queue), "g")
            cursor, listed = 0, 0
            while True:
                found = broker.run(relist_groups(queue, cursor))
                cursor, listed = found.cursor, listed + found.groups
                if not cursor:
                    break
            assert listed == 1
            assert broker.run(take_set(one, rule, now_s, now_s + 120)) == 2
            assert [task.id for task in broker.run(read_set(one, 0)).tasks] == ["a", "b"]
            whole = NewTask("whole", message("whole", queue=queue))
            results = broker.run_many((register_queue(queue), commit_set(one, 2, whole, TaskState.PENDING, NOW_NS)))
            assert results[1] is CommitOutcome.DONE
            assert broker.run(delete_members(one, {"a": keys.unique(queue, "t", b"1"), "b": ""})) == 0
            assert cluster.keys_of(node, queue) == [keys.pending(queue), keys.task(queue, "whole")]


def test_a_node_that_takes_over_its_first_slot_is_found(cluster: Cluster, client: Any) -> None:
    source = cluster.nodes[0]
    queue = cluster.queues_on(source)[0]
    client.do(enqueue(cluster.queues_on(source)[0]))  # the client's slot map is from before
    config = {"cluster-enabled": "yes", "cluster-node-timeout": "30000"}
    with redis_server(free_port(also=10000), config=config) as newcomer:
        cluster.ask(newcomer, "CLUSTER", "MEET", "127.0.0.1", source.port)
        new_id = cluster.id_of(newcomer)
        wait_until(lambda: all(new_id in str(cluster.ask(node, "CLUSTER", "NODES")) for node in cluster.nodes))
        wait_until(lambda: b"cluster_state:ok" in cluster.ask(newcomer, "CLUSTER", "INFO"))
        cluster.begin_move(queue, source, newcomer)
        assert client.do(lambda client: client._broker.drive(read_end((queue, "a", "")))).kind == "gone"
        assert "cmdstat_asking" in cluster.ask(newcomer, "INFO", "commandstats")
        for node in cluster.nodes:  # as if it had never come
            cluster.ask(node, "CLUSTER", "SETSLOT", slot_of(queue), "STABLE")
            cluster.ask(node, "CLUSTER", "FORGET", new_id)


def test_a_task_is_not_gone_while_its_queue_moves(cluster: Cluster, client: Any) -> None:
    source, target, _ = cluster.nodes
    queue = cluster.queues_on(source)[0]
    for task_id in "ab":
        client.do(enqueue(queue, task_id=task_id))
    cluster.begin_move(queue, source, target)
    (both,) = parts_of([(queue, "a", ""), (queue, "b", "")])
    assert client.do(lambda client: client._broker.drive(read_end((queue, "a", "")))) is None
    assert client.do(lambda client: client._broker.drive(look_at(both))) == []
    cluster.ask(source, "MIGRATE", "127.0.0.1", target.port, keys.task(queue, "a"), 0, MIGRATE_MS)
    for task_id in "ab":
        assert client.do(lambda client, id_=task_id: client._broker.drive(read_end((queue, id_, "")))) is None
    with pytest.raises(BrokerConnectionError, match="the cluster is moving this queue to another node"):
        client.do(lambda client: client._broker.drive(look_at(both)))
    cluster.move_keys(queue, source, target)
    cluster.end_move(queue, target)
    assert client.do(lambda client: client._broker.drive(look_at(both))) == []


def test_a_connection_that_a_node_closed_while_idle_is_replaced_unnoticed(cluster: Cluster, client: Any) -> None:
    queues = [cluster.queues_on(node)[0] for node in cluster.nodes]
    client.do(lambda client: client.enqueue_many([Task("t", queue=queue) for queue in queues]))
    for node in cluster.nodes:
        cluster.ask(node, "CONFIG", "RESETSTAT")
        cluster.ask(node, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert client.do(lambda client: client.enqueue_many([Task("t", queue=queue) for queue in queues])).enqueued == 3
    for node in cluster.nodes:
        with node.client() as peer:
            assert "cmdstat_hget" not in peer.info("commandstats"), "no reply was lost, so nothing was looked for"


def test_a_client_of_redis_pys_own_is_used_and_left_open(cluster: Cluster) -> None:
    queue = cluster.queues_on(cluster.nodes[0])[0]
    with redis.RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", cluster.nodes[0].port)]) as given:  # type: ignore[no-untyped-call]  # redis-py's
        with Client(given) as client:
            client.enqueue("t", queue=queue, task_id="a")
        assert given.exists(f"asynq:{{{queue}}}:t:a") == 1


def test_a_client_of_redis_pys_own_on_a_loop_is_used_left_open_and_can_be_closed(cluster: Cluster) -> None:
    queue = cluster.queues_on(cluster.nodes[0])[0]

    async def run() -> int:
        nodes = [AsyncClusterNode("127.0.0.1", cluster.nodes[0].port)]
        given = redis.asyncio.RedisCluster(startup_nodes=nodes)
        async with AsyncClient(given) as client:
            await client.enqueue("t", queue=queue, task_id="a")
        connections = [connection for node in given.get_nodes() for connection in node._connections]
        assert any(connection.is_connected for connection in connections)
        await given.aclose()
        return sum(connection.is_connected for connection in connections)

    assert asyncio.run(run()) == 0
    assert cluster.keys_of(cluster.nodes[0], queue)


def test_a_client_that_would_look_for_its_nodes_again_closes_all_connections(cluster: Cluster) -> None:
    async def test() -> int:
        client: Any = connect_async(cluster.url)
        for node in cluster.nodes:
            await client.execute_command("EXISTS", f"asynq:{{{cluster.queues_on(node)[0]}}}:pending")
        connections = [connection for node in client.get_nodes() for connection in node._connections]
        assert len(connections) >= len(cluster.nodes)
        client._initialize = True  # as after a connection error
        await client.aclose()
        return sum(connection.is_connected for connection in connections)

    assert asyncio.run(test()) == 0


def enqueue_once(way: type[Blocking] | type[Looping], url: str) -> None:
    """Use a client for one call; a blocking one asks for the slot map when it is made."""
    made = way(url)
    try:
        made.do(enqueue("q"))
    finally:
        made.close()


@pytest.mark.parametrize("way", [Blocking, Looping])
def test_a_cluster_that_is_away(way: type[Blocking] | type[Looping]) -> None:
    url = f"redis-cluster://127.0.0.1:{free_port()}"
    with pytest.raises(BrokerConnectionError, match=r"Redis Cluster cannot be connected.*Error 111") as caught:
        enqueue_once(way, url)
    assert not caught.value.maybe_applied


def test_a_password_that_is_missing_or_wrong() -> None:
    with redis_cluster(password="secret") as nodes:
        port = nodes[0].port
        for credentials, text in (("", "asks for a password"), (":wrong@", "refuses the user name or password")):
            looping = Looping(f"redis-cluster://{credentials}127.0.0.1:{port}")
            with pytest.raises(BrokerAuthError, match=text):
                looping.do(enqueue("q"))
            looping.close()
        looping = Looping(f"redis-cluster://:secret@127.0.0.1:{port}")
        assert looping.do(enqueue("q", task_id="a")).id == "a"
        looping.close()


def test_a_cluster_whose_nodes_all_have_new_addresses_is_found_by_its_seed(tmp_path: Path) -> None:
    """As pods that were all replaced, behind a name that stays: here a proxy's address."""
    name = tmp_path / "seed"
    with redis_cluster(1) as old, redis_cluster(1) as new:
        name.symlink_to(old[0].socket_path)
        with cutting_proxy(str(name)) as proxy:
            url = f"redis-cluster://127.0.0.1:{proxy.port}"
            clients: tuple[Blocking | Looping, ...] = (Blocking(url), Looping(url))
            for client in clients:
                client.do(enqueue("q"))
            old[0].stop()
            for client in clients:
                with pytest.raises(BrokerConnectionError):
                    client.do(enqueue("q"))
            name.unlink()
            name.symlink_to(new[0].socket_path)
            for number, client in enumerate(clients):
                assert client.do(enqueue("q", task_id=f"{number}")).id == f"{number}"
                client.close()
            assert {"asynq:{q}:t:0", "asynq:{q}:t:1"} <= set(Cluster(new).keys_of(new[0], "q"))


def test_the_slots_of_a_dead_node_are_found_where_they_went() -> None:
    """A client that was idle knows the dead node only; the nodes that live know who took its slots over."""
    with redis_cluster() as nodes:
        cluster = Cluster(nodes)
        dead, heir, third = nodes
        queues = cluster.queues_on(dead, 2)
        for node in (heir, third):
            cluster.ask(node, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        clients: tuple[Blocking | Looping, ...] = (Blocking(cluster.url), Looping(cluster.url))
        for client, queue in zip(clients, queues, strict=True):
            client.do(enqueue(queue, task_id="a"))
        dead.stop()
        for client, queue in zip(clients, queues, strict=True):
            with pytest.raises(BrokerConnectionError) as caught:
                client.do(enqueue(queue, task_id="b"))
            assert str(caught.value).startswith("enqueue: ")
        for queue in queues:
            for node in (heir, third):
                cluster.ask(node, "CLUSTER", "SETSLOT", slot_of(queue), "NODE", cluster.id_of(heir))
        cluster.ask(heir, "CLUSTER", "BUMPEPOCH")
        for client, queue in zip(clients, queues, strict=True):
            assert client.do(enqueue(queue, task_id="c")).id == "c"
            assert f"asynq:{{{queue}}}:t:c" in cluster.keys_of(heir, queue)
            client.close()


def test_queues_are_waited_for_on_their_nodes_also_when_a_slot_has_moved(cluster: Cluster) -> None:
    queues = [queue for node in cluster.nodes for queue in cluster.queues_on(node, 2)]

    async def test() -> None:
        broker = open_async_broker(cluster.url)
        watch = TaskWatch(broker.transport)

        async def has_woken(queue: str, db: Any) -> None:
            wait = asyncio.create_task(watch.wait(queue, PATIENCE_S))
            key = keys.pending(queue).encode()
            await until(lambda: wait.done() or any(key in line._watched for line in watch._lines.values()))
            assert not wait.done()
            db.lpush(key, "a")
            assert await wait is True
            db.delete(key)

        for node in cluster.nodes:
            for queue in cluster.queues_on(node, 2):
                with node.client() as db:
                    await has_woken(queue, db)
        assert len(watch._lines) == len(cluster.nodes)
        source, target = cluster.nodes[:2]
        queue = queues[0]
        cluster.begin_move(queue, source, target)
        cluster.end_move(queue, target)
        with pytest.raises(BrokerError) as raised:
            await watch.wait(queue, PATIENCE_S)
        assert raised.value.transient
        await broker.run(list_leases(queue, "-inf", "0", 1))  # as others in the server do: it finds where the slot is
        with target.client() as db:
            await has_woken(queue, db)
        await watch.close()
        await broker.close()

    run(test)


def test_a_slot_that_moves_while_its_queue_is_waited_for_is_noticed_and_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.broker.transport.wait.PING_EVERY_S", 0.02)
    source, target = cluster.nodes[:2]
    queue, other = cluster.queues_on(source, 2)

    async def test() -> None:
        broker = open_async_broker(cluster.url)
        watch = TaskWatch(broker.transport)
        changes: list[int] = []
        broker.transport.on_change(lambda: changes.append(1))
        waits = [asyncio.create_task(watch.wait(name, PATIENCE_S)) for name in (queue, other)]
        await until(lambda: any(len(line._watched) == 2 for line in watch._lines.values()))
        cluster.begin_move(queue, source, target)
        cluster.end_move(queue, target)
        with pytest.raises(BrokerError, match="has moved to another node"):
            await waits[0]
        assert not waits[1].done(), "its slot is where it was"
        assert not changes
        await broker.run(list_leases(queue, "-inf", "0", 1))
        assert changes == [1]
        watch.renew()
        assert await waits[1] is False
        await watch.close()
        await broker.close()

    run(test)

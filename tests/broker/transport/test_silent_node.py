"""A node of a real cluster that stops answering: what it holds up, what is said, and how its successor is found."""

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import RedisCluster as AsyncRedisCluster

from fastq import AsyncClient, Task
from fastq.broker.transport.cluster import AsyncClusterTransport, ClusterTransport
from fastq.broker.transport.connection import connect, connect_async
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import NoReply, Silent, Unsent, is_timeout
from fastq.broker.transport.limit import Limit
from fastq.broker.transport.silence import Silence
from fastq.wire import keys
from tests.broker.clusters import SHORT_S, Cluster, expect_no_reply, slot_of
from tests.broker.harness import run, until
from tests.redis_servers import RedisServer, redis_cluster, silent
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with redis_cluster() as nodes:
        yield Cluster(nodes)


@asynccontextmanager
async def transport_to(cluster: Cluster) -> AsyncIterator[AsyncClusterTransport]:
    client = connect_async(cluster.url, read_timeout_s=PATIENCE_S)
    assert isinstance(client, AsyncRedisCluster)
    transport = AsyncClusterTransport(client)
    try:
        yield transport
    finally:
        await transport.close()
        await client.aclose()


def writes(cluster: Cluster) -> list[Command]:
    """Return a write to each node, in their order."""
    queues = [keys.pending(cluster.queues_on(node)[0]) for node in cluster.nodes]
    return [Command(("LPUSH", key, "a"), key) for key in queues]


def has(node: RedisServer, command: Command) -> bool:
    with node.client() as db:
        return bool(db.exists(str(command.words[1])))


def address_of(node: RedisServer) -> str:
    return f"127.0.0.1:{node.port}"


def test_all_nodes_are_asked_before_the_first_has_answered(cluster: Cluster) -> None:
    async def test() -> None:
        async with transport_to(cluster) as transport:
            await transport.transfer(writes(cluster))
            commands = writes(cluster)
            with silent(cluster.nodes[0]):
                asking = asyncio.create_task(transport.transfer(commands))
                await until(lambda: all(map(has, cluster.nodes[1:], commands[1:])))
                assert not asking.done()
            assert await asking == [1, 1, 1]

    run(test)


def test_a_blocking_client_asks_all_nodes_before_the_first_has_answered(cluster: Cluster) -> None:
    client: Any = connect(cluster.url, read_timeout_s=PATIENCE_S)
    transport = ClusterTransport(client)
    transport.send(writes(cluster)).replies()
    commands = writes(cluster)
    replies: list[Any] = []
    with silent(cluster.nodes[0]):
        thread = threading.Thread(target=lambda: replies.extend(transport.send(commands).replies()))
        thread.start()
        wait_until(lambda: all(map(has, cluster.nodes[1:], commands[1:])))
        assert not replies
    thread.join()
    assert replies == [1, 1, 1]
    client.close()


def test_a_silent_node_is_named_and_asked_nothing_until_it_answers(cluster: Cluster) -> None:
    async def test() -> None:
        async with transport_to(cluster) as transport:
            await transport.transfer(writes(cluster))
            stopped = cluster.nodes[0]
            expect_no_reply(transport._cluster, stopped)
            with silent(stopped):
                lost, *answers = await transport.transfer(writes(cluster))
                assert answers == [1, 1]
                assert isinstance(lost, NoReply)
                assert is_timeout(lost.error)
                assert lost.where == address_of(stopped)
                again = writes(cluster)
                unsent, *answers = await transport.transfer(again)
                assert answers == [1, 1]
                assert isinstance(unsent, Silent)
                assert unsent.where == address_of(stopped)
                assert transport._owners._seen == [], "it has its slots, so no map was read, which costs connections"
            await until(lambda: not transport._nodes[address_of(stopped)].node_transport.is_silent)
            assert not has(stopped, again[0])
            assert await transport.transfer(again[:1]) == [1]

    run(test)


def test_so_it_is_for_a_blocking_client(cluster: Cluster) -> None:
    client: Any = connect(cluster.url, read_timeout_s=PATIENCE_S)
    transport = ClusterTransport(client)
    stopped = cluster.nodes[0]
    transport.send(writes(cluster)).replies()
    expect_no_reply(client, stopped)
    with silent(stopped):
        lost, *answers = transport.send(writes(cluster)).replies()
        assert answers == [1, 1]
        assert isinstance(lost, NoReply)
        again = writes(cluster)
        unsent, *answers = transport.send(again).replies()
        assert answers == [1, 1]
        assert isinstance(unsent, Silent)
        assert unsent.where == address_of(stopped)
    wait_until(lambda: transport.send(writes(cluster)[:1]).replies() == [1])
    assert not has(stopped, again[0])
    client.close()


def test_a_call_whose_time_was_spent_on_a_silent_node_does_not_make_others_silent(cluster: Cluster) -> None:
    client: Any = connect(cluster.url, read_timeout_s=PATIENCE_S)
    transport = ClusterTransport(client)
    transport.send(writes(cluster)).replies()
    with silent(cluster.nodes[0]):
        replies = transport.send(writes(cluster), Limit.from_now(SHORT_S)).replies()
        assert [type(reply) for reply in replies] == [NoReply] * 3
        assert transport.send(writes(cluster)[1:]).replies() == [1, 1]
    client.close()


@pytest.mark.parametrize("reaction", ["refuses", "answers", "closes"])
def test_any_reaction_ends_a_silence(reaction: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silence = Silence(f"127.0.0.1:{listener.getsockname()[1]}", TimeoutError())
        assert not silence.is_over()
        if reaction == "refuses":
            silence._close()
            listener.close()
        else:
            connection, _ = listener.accept()
            with connection:
                wait_until(lambda: silence.is_over() or bool(connection.recv(100, socket.MSG_DONTWAIT)))
                assert not silence.is_over()
                if reaction == "answers":
                    connection.sendall(b"-NOAUTH Authentication required.\r\n")
        wait_until(silence.is_over)


@pytest.mark.parametrize("way", ["asyncio", "blocking"])
def test_the_successor_of_a_silent_node_is_found_and_the_move_is_logged_once(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fastq")
    with redis_cluster() as nodes:
        cluster = Cluster(nodes)
        dead, heir, third = nodes
        for node in (heir, third):
            cluster.ask(node, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        (first, *_), (second, *_) = writes(cluster), writes(cluster)

        def take_over() -> None:
            for command in (first, second):
                slot = slot_of(str(command.key).partition("{")[2].partition("}")[0])
                for node in (heir, third):
                    cluster.ask(node, "CLUSTER", "SETSLOT", slot, "NODE", cluster.id_of(heir))
            cluster.ask(heir, "CLUSTER", "BUMPEPOCH")

        async def test() -> None:
            async with transport_to(cluster) as transport:
                assert await transport.transfer([first]) == [1]
                expect_no_reply(transport._cluster, dead)
                with silent(dead):
                    (lost,) = await transport.transfer([first])
                    assert isinstance(lost, NoReply)
                    take_over()
                    await until(lambda: transport.node_name_of(str(first.key)) == address_of(heir))

        if way == "asyncio":
            run(test)
        else:
            client: Any = connect(cluster.url, read_timeout_s=PATIENCE_S)
            transport = ClusterTransport(client)
            assert transport.send([first]).replies() == [1]
            expect_no_reply(client, dead)
            with silent(dead):
                (lost,) = transport.send([first]).replies()
                assert isinstance(lost, NoReply)
                (unsent,) = transport.send([first]).replies()
                assert isinstance(unsent, Unsent)
                assert unsent.where == address_of(dead)
                take_over()
                wait_until(lambda: transport.send([first]).replies() == [1])
                assert transport.send([second]).replies() == [1]
            client.close()
    said = [record.getMessage() for record in caplog.records if "slots" in record.getMessage()]
    assert said == [f"the Redis cluster moved 2 slots from {address_of(dead)} to {address_of(heir)}"]


def test_callers_of_an_async_client_share_the_pipelines_to_each_node(cluster: Cluster) -> None:
    async def test() -> None:
        queues = [cluster.queues_on(node)[0] for node in cluster.nodes]
        async with AsyncClient(cluster.url) as client:
            await client.enqueue_many([Task("t", queue=queue) for queue in queues])
            for node in cluster.nodes:
                cluster.ask(node, "CONFIG", "RESETSTAT")
            await asyncio.gather(*(client.enqueue("t", queue=queue) for _ in range(50) for queue in queues))
        for node in cluster.nodes:
            with node.client() as db:
                assert db.info("stats")["total_connections_received"] <= 3

    run(test)


def test_a_silent_node_holds_up_only_its_own_callers(cluster: Cluster) -> None:
    async def test() -> None:
        stopped, other = (cluster.queues_on(node)[0] for node in cluster.nodes[:2])
        async with AsyncClient(cluster.url) as client:
            await client.enqueue_many([Task("t", queue=queue) for queue in (stopped, other)])
            with silent(cluster.nodes[0]):
                held_up = [asyncio.create_task(client.enqueue("t", queue=stopped)) for _ in range(200)]
                await asyncio.sleep(0)
                for _ in range(50):
                    await client.enqueue("t", queue=other)
                assert not any(task.done() for task in held_up)
            assert len(await asyncio.gather(*held_up)) == 200

    run(test)

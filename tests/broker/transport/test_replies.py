"""Clients of the user's own: those of redis-py speak RESP3 unless told otherwise, and all that takes one reads it."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.cluster
from redis import Redis

from fastq import AsyncClient, AsyncInspector, Client, Inspector, Scheduler, Semaphore, ServeMux, Task
from fastq.broker.inspect.history import read_minutes_by_type
from fastq.broker.inspect.keyspace import key_types
from fastq.broker.inspect.move import read_notes
from fastq.broker.inspect.queues import list_queues
from fastq.broker.inspect.redis_state import cluster_info, read_setting, redis_info, slow_commands
from fastq.broker.inspect.registry import read_registry
from fastq.broker.inspect.servers import read_scheduler_ticks
from fastq.broker.operation import Flow, together
from fastq.broker.operations.control import count_listeners
from fastq.broker.operations.health import server_version
from fastq.broker.operations.walk import Source
from fastq.broker.transport.open import open_broker
from fastq.broker.transport.replies import fields_of, scored
from fastq.common.states import TaskState
from fastq.inspector.doctor.examination import Order, examine
from fastq.running import RunningTask
from fastq.testing import drain
from fastq.wire import keys
from tests.inspector.doctor.harness import break_it
from tests.redis_servers import RedisServer, redis_cluster
from tests.waiting import wait_until


@pytest.fixture
def given(shared_server: RedisServer, db: Redis) -> Iterator[Redis]:
    """Return a client as its users make it."""
    with Redis(unix_socket_path=shared_server.socket_path) as client:
        assert client.execute_command("HELLO")[b"proto"] == 3, "else nothing here shows anything"
        yield client


# Both protocols say the same ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [[b"a", b"1.5", b"b", b"inf"], [[b"a", 1.5], [b"b", float("inf")]]])
def test_scores_of_both_protocols_are_numbers(reply: list[Any]) -> None:
    assert scored(reply) == [(b"a", 1.5), (b"b", float("inf"))]


@pytest.mark.parametrize("reply", [[b"a", b"1", b"b", b"2"], {b"a": b"1", b"b": b"2"}])
def test_fields_of_both_protocols_are_a_mapping(reply: Any) -> None:
    assert fields_of(reply) == {b"a": b"1", b"b": b"2"}


def test_what_is_empty_is_so_in_both() -> None:
    assert (scored([]), fields_of([]), fields_of({})) == ([], {}, {})


HOUR = datetime(2096, 10, 2, 7, tzinfo=UTC)
OF_THE_MOMENT = {"clock", "connections", "memory", "slow commands"}


def _doctor() -> Flow[list[tuple[str, str, str]]]:
    report = yield from examine(Order(time.time_ns))
    return sorted((f.check, *(("", "") if f.check in OF_THE_MOMENT else (f.level, f.seen))) for f in report.findings)


LAST = Source("default", keys.scheduled("default"), TaskState.SCHEDULED).find_last
QUESTIONS: dict[str, Callable[[], Flow[Any]]] = {
    "registry": read_registry,
    "newest of a set": lambda: together(LAST()),
    "setting": lambda: together(read_setting("maxmemory"), read_setting("no-such-setting")),
    "facts": lambda: together(server_version()),
    "notes of moves": lambda: together(read_notes("default")),
    "queues": lambda: together(list_queues(), *key_types([keys.lease("default"), keys.pending("default")])),
    "listeners": lambda: together(count_listeners("a")),
    "minutes by type": lambda: together(read_minutes_by_type("default", HOUR)),
    "ticks": lambda: together(read_scheduler_ticks()),
    "doctor": _doctor,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_both_protocols_give_the_same_answers(
    question: str, shared_server: RedisServer, db: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.inspector.doctor.examination.SECOND_LOOK_S", 0.0)
    break_it(db, "overdue")
    db.hset(keys.moved("default"), mapping={"token:a": "x:other", "token:b": "y:other"})
    db.zadd(keys.all_servers(), {"asynq:servers:{a}": 4_000_000_000.5})
    db.hset(keys.history_minutes("default", HOUR), "t", ";7a2")
    db.hset(keys.scheduler_ticks(), "enqueued:t", 3)
    answers = []
    for protocol in (2, 3):
        with Redis(unix_socket_path=shared_server.socket_path, protocol=protocol) as client:
            answers.append(open_broker(client).drive(QUESTIONS[question]()))
    assert answers[0] == answers[1]
    assert answers[0]


def test_texts_and_lists_of_facts_are_read(given: Redis) -> None:
    broker = open_broker(given)
    assert broker.run(redis_info())["role"] == "master"
    assert isinstance(broker.run(slow_commands(10)), list)


# All that takes a client ----------------------------------------------------------------------------------------------


def test_every_way_to_take_all_tasks_of_a_state(given: Redis) -> None:
    client, inspector = Client(given), Inspector(given)
    for number in range(3):
        client.enqueue("t", number, queue="jobs", process_in=60)
    assert inspector.run_all_scheduled_tasks("jobs") == 3
    client.enqueue("t", queue="jobs", process_in=60)
    inspector.delete_queue("jobs", force=True)
    assert inspector.queues() == []
    assert not given.exists(keys.paused("jobs"))


def test_an_asyncio_client_and_inspector(shared_server: RedisServer, db: Redis) -> None:
    async def test() -> None:
        async with redis.asyncio.Redis(unix_socket_path=shared_server.socket_path) as given:
            results = await AsyncClient(given).enqueue_many(Task("t", number, process_in=60) for number in range(3))
            assert results.enqueued == 3
            inspector = AsyncInspector(given)
            assert await inspector.archive_all_scheduled_tasks("default") == 3
            assert await inspector.delete_all_archived_tasks("default") == 3

    asyncio.run(test())


def test_drain_a_semaphore_and_a_scheduler(given: Redis) -> None:
    mux = ServeMux()
    seen: list[tuple[bool, int]] = []
    semaphore = Semaphore("scope", 1, given)

    @mux.handler("t")
    def handle(task: RunningTask) -> None:
        seen.append((semaphore.acquire(), semaphore.held()))
        semaphore.release()

    Client(given).enqueue("t", process_in=60)
    assert [run.error for run in drain(mux, given, scheduled=True)] == [None]
    assert seen == [(True, 1)]
    scheduler = Scheduler(given)
    scheduler.register("@every 1s", Task("t"))
    scheduler.start()
    wait_until(lambda: given.llen(keys.pending("default")))
    scheduler.shutdown()
    assert [run.error for run in drain(mux, given)][:1] == [None]


@pytest.fixture(scope="module")
def node() -> Iterator[RedisServer]:
    """Run a cluster of one node."""
    with redis_cluster(1) as (node,):
        yield node


def test_a_cluster_client_and_its_inspector(node: RedisServer) -> None:
    with redis.RedisCluster(host="127.0.0.1", port=node.port) as given:
        Client(given).enqueue("t", process_in=60)
        inspector = Inspector(given)
        assert inspector.run_all_scheduled_tasks("default") == 1
        inspector.delete_queue("default", force=True)
        assert open_broker(given).run(cluster_info())["cluster_state"] == "ok"


# A pipeline is no client ----------------------------------------------------------------------------------------------

ASKING: Sequence[Callable[[Any], Any]] = (Client, Inspector, lambda given: Semaphore("s", 1, given), Scheduler)


@pytest.mark.parametrize("make", ASKING)
def test_a_pipeline_is_refused_with_the_remedy(make: Callable[[Any], Any], given: Redis) -> None:
    with pytest.raises(TypeError, match=r"^redis must be a client, not a Pipeline: .*; give the client that "):
        make(given.pipeline())


@pytest.mark.parametrize("make", [AsyncClient, AsyncInspector])
def test_so_is_one_of_asyncio(make: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"^redis must be a client, not a Pipeline: .*; give the client that "):
        make(redis.asyncio.Redis().pipeline())
    nodes = [redis.asyncio.cluster.ClusterNode("127.0.0.1", 1)]
    with pytest.raises(TypeError, match=r"^redis must be a client, not a ClusterPipeline: "):
        make(redis.asyncio.RedisCluster(startup_nodes=nodes).pipeline())


def test_so_is_one_of_a_cluster(node: RedisServer) -> None:
    with (
        redis.RedisCluster(host="127.0.0.1", port=node.port) as given,
        pytest.raises(TypeError, match=r"^redis must be a client, not a ClusterPipeline: "),
    ):
        Client(given.pipeline())

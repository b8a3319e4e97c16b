"""Redis that forgets, cuts, loads or moves under a busy worker: every task is done, once, and the worker goes on."""

import asyncio
import inspect
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from fastq import AsyncClient, BrokerTimeoutError, Client, Task, TaskIDConflictError
from tests.broker.clusters import Cluster
from tests.e2e.harness import Worker, workers_on
from tests.e2e.troubled import BEGIN, END, Stage, on_stage, silence
from tests.e2e.view import View
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_cluster, redis_sentinel, redis_server, silent
from tests.waiting import after, wait_until

TIMES = 25


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with on_stage(tmp_path) as stage:
        yield stage


def enqueue_many(url: str, count: int, type: str = "ok", **options: Any) -> None:
    with Client(url) as client:
        results = client.enqueue_many([Task(type, retention=3600, **options) for _ in range(count)])
        assert not any(isinstance(result, Exception) for result in results)


def check_all_done(view: View, count: int) -> None:
    """See that every task was done, and counted, once."""
    wait_until(lambda: view.count("processed") >= count and not view.size("active"))
    assert view.size("completed") == count
    assert (view.count("processed"), view.count("failed")) == (count, 0)
    assert (view.size("lease"), view.size("pending"), view.size("retry")) == (0, 0, 0)


# Under load --------------------------------------------------------------------------------------------------------

NUISANCES: dict[str, tuple[str, int, Callable[[Any], object]]] = {
    "scripts forgotten": ("brief", 1000, lambda db: db.script_flush()),
    # Only calls that follow close on one another are met in the middle, so the tasks are as short as can be.
    "connections killed": ("ok", 6000, lambda db: db.client_kill_filter(_type="normal", skipme=True)),
}
"""What happens, and the type of the tasks that the worker is busy with, and how many are enqueued at once."""


@pytest.mark.parametrize(("type", "count", "nuisance"), NUISANCES.values(), ids=NUISANCES)
def test_a_busy_worker_loses_and_repeats_nothing_under_a_constant_nuisance(
    type: str, count: int, nuisance: Callable[[Any], object], stage: Stage
) -> None:
    worker = stage.workers.start("--concurrency", "2").is_ready()
    enqueued = 0
    with stage.server.client() as db:
        for _ in range(TIMES):
            if stage.view.size("pending") < count // 2:  # a fast worker is kept busy to the last nuisance
                enqueue_many(stage.server.url, count, type)
                enqueued += count
            nuisance(db)
            wait_until(after(0.02))
    check_all_done(stage.view, enqueued)
    assert worker.stop() == 0, worker.text
    assert "Traceback" not in worker.text


def test_a_redis_that_is_silent_for_10_s_costs_no_lease_and_no_task(stage: Stage) -> None:
    worker = stage.workers.start("--concurrency", "2").is_ready()
    task_id = stage.enqueue("nap", headers={"seconds": "3"})
    stage.view.expect("started", task_id)
    enqueue_many(stage.server.url, 1000)
    with silence(stage):
        wait_until(after(10.0))
    check_all_done(stage.view, 1001)
    assert worker.stop() == 0, worker.text


AWAY_S = 6.0
SHORT_LEASES = {
    "lease_s": 2,
    "recover_grace_s": 1,
    "recoverer_interval_s": 0.2,
    "heartbeat_interval_s": 0.4,
    "settle_s": 12.0,  # pauses after errors are as long as ever
}
"""Leases for which anybody could take a task, once Redis was away for half of ``AWAY_S``."""


@pytest.mark.parametrize("max_retry", [0, 5])
def test_servers_that_live_keep_their_tasks_through_an_outage_longer_than_their_leases(
    max_retry: int, stage: Stage
) -> None:
    workers = [stage.workers.start_timed(SHORT_LEASES, concurrency=1).is_ready() for _ in range(2)]
    go = stage.server.directory / "go"
    ids = [stage.enqueue("until-file", headers={"file": str(go)}, max_retry=max_retry) for _ in range(2)]
    for _ in ids:
        stage.view.expect("started")
    with silence(stage):
        wait_until(after(AWAY_S))
    wait_until(lambda: all(END in worker.text for worker in workers))
    go.touch()
    for task_id in ids:
        message = stage.view.until("completed", task_id)
        assert message is not None
        assert message.retried == 0
        assert b"lost" not in stage.view.fields(task_id)
    assert (stage.view.count("processed"), stage.view.count("failed")) == (2, 0)
    for worker in workers:
        assert worker.stop() == 0, worker.text
        assert "lost" not in worker.text.replace("whether it did", "")


# Its data ----------------------------------------------------------------------------------------------------------


BALLAST = 40
"""Keys, each of which is loaded in half a second."""
ANSWERS_EVERY = 2 << 20
"""A Redis that loads looks at its clients after so many bytes; a setting only since Redis 7."""


def test_a_redis_that_is_loading_its_data_is_waited_for(tmp_path: Path) -> None:
    config = {"appendonly": "no", "dbfilename": "dump.rdb", "rdbcompression": "no"}
    with on_stage(tmp_path, config) as stage:
        worker = stage.workers.start("--concurrency", "2").is_ready()
        task_id = stage.enqueue("until-file", headers={"file": str(tmp_path / "go")})
        stage.view.expect("started", task_id)
        for number in range(BALLAST):
            stage.do("SET", f"ballast-{number}", bytes(ANSWERS_EVERY))
        stage.do("SAVE")
        stage.kill()
        worker.wait_for(BEGIN)
        (tmp_path / "go").touch()
        worker.wait_for("cannot save the outcomes of 1 tasks yet")
        stage.restart("--key-load-delay", "500000")
        wait_until(lambda: was_turned_away(stage))
        with suppress(ResponseError):  # refused before Redis 7, which then loads for 20 s
            stage.do("CONFIG", "SET", "key-load-delay", 0)
        worker.wait_for(END)
        message = stage.view.until("completed", task_id)
        assert message is not None
        assert (message.retried, stage.view.count("processed")) == (0, 1)
        assert worker.stop() == 0, worker.text


def was_turned_away(stage: Stage) -> bool:
    """Return whether Redis refused something because it was loading its data, and is still loading."""
    with suppress(RedisConnectionError):
        return "errorstat_LOADING" in stage.view.facts("errorstats")
    return False


def test_a_redis_that_was_emptied_is_served_on(stage: Stage) -> None:
    """What ran is not there any more: it is cancelled, and its outcome not written; new tasks are done."""
    worker = stage.workers.start_timed({"heartbeat_interval_s": 0.2}, concurrency=2).is_ready()
    gone = stage.enqueue("nap", headers={"seconds": "600"})
    stage.view.expect("started", gone)
    stage.do("FLUSHALL")
    stage.do("SCRIPT", "FLUSH")
    worker.wait_for(f"lost the lease of task {gone}")
    stage.view.until("completed", stage.enqueue("ok"))
    assert (stage.view.count("processed"), stage.view.ids("completed").count(gone)) == (1, 0)
    wait_until(lambda: b"active" in stage.view.published())
    assert worker.stop() == 0, worker.text


# Its place ---------------------------------------------------------------------------------------------------------


def test_a_failover_costs_no_handler_and_no_task(tmp_path: Path) -> None:
    with (
        redis_sentinel() as setup,
        workers_on(setup.master.url, tmp_path) as workers,
        setup.replica.client() as db,
    ):
        url = f"redis-sentinel://127.0.0.1:{setup.sentinel_port}/?master=mymaster"
        with Client(url) as client, setup.master.client() as old:
            worker = workers.start("--concurrency", "2", "--redis", url).is_ready()
            until_file = Task("until-file", headers={"file": str(tmp_path / "go")}, retention=3600)
            task_id = client.enqueue(until_file).id
            View(old).expect("started", task_id)
            wait_until(lambda: db.zscore("asynq:{default}:lease", task_id))
            with setup.sentinel() as sentinel:  # not before: a master that stands still for a second is none
                sentinel.sentinel_set("mymaster", "down-after-milliseconds", 1000)
        setup.master.process.kill()
        wait_until(lambda: db.info("replication")["role"] == "master")
        (tmp_path / "go").touch()
        view = View(db)
        message = view.until("completed", task_id)
        assert message is not None
        assert message.retried == 0
        with Client(url) as client:
            view.until("completed", client.enqueue(Task("ok", retention=3600)).id)
        assert (view.count("processed"), view.count("failed"), view.size("lease")) == (2, 0, 0)
        worker.wait_for(END)
        assert worker.stop() == 0, worker.text


def let_nodes_be_away_for(cluster: Cluster, ms: int) -> None:
    """Set how long a node may be silent before the others hold it for dead, and the cluster for down."""
    for node in cluster.nodes:
        cluster.ask(node, "CONFIG", "SET", "cluster-node-timeout", ms)


def test_a_cluster_that_is_down_or_moves_the_queue_is_waited_for(tmp_path: Path) -> None:
    with redis_cluster() as nodes, workers_on(nodes[0].url, tmp_path) as workers:
        cluster = Cluster(nodes)
        queue = cluster.queues_on(nodes[0])[0]
        view = View(nodes[0].client())
        worker = workers.start("--concurrency", "2", "--redis", cluster.url, "--queues", f"{queue}=1").is_ready()
        let_nodes_be_away_for(cluster, 2000)
        nodes[2].process.send_signal(signal.SIGSTOP)
        wait_until(lambda: b"cluster_state:fail" in cluster.ask(nodes[0], "CLUSTER", "INFO"))
        worker.wait_for(BEGIN)
        nodes[2].process.send_signal(signal.SIGCONT)
        worker.wait_for(END)
        # Before they may be away for longer: a node that counts as failed does so for twice that time.
        wait_until(lambda: all(b"cluster_state:ok" in cluster.ask(node, "CLUSTER", "INFO") for node in nodes))
        let_nodes_be_away_for(cluster, 60_000)
        enqueue_many(cluster.url, 500, queue=queue)
        wait_until(lambda: view.count("processed", queue) == 500)
        cluster.begin_move(queue, nodes[0], nodes[1])
        cluster.move_keys(queue, nodes[0], nodes[1])
        cluster.end_move(queue, nodes[1])
        enqueue_many(cluster.url, 500, queue=queue)
        moved = View(nodes[1].client())
        wait_until(lambda: moved.count("processed", queue) == 1000)
        assert (moved.count("failed", queue), moved.size("completed", queue)) == (0, 1000)
        assert worker.stop() == 0, worker.text


RESOLVER = """
import socket
from pathlib import Path

known, address = socket.getaddrinfo, Path({address!r})

def getaddrinfo(host, *more, **named):
    return known(address.read_text() if host == "redis.test" else host, *more, **named)

socket.getaddrinfo = getaddrinfo
"""


async def put(enqueue: Callable[..., Any], task_id: str) -> None:
    """Enqueue a task, whether or not Redis is slow beyond a client's patience now and then."""
    for _ in range(TIMES):
        with suppress(BrokerTimeoutError):
            with suppress(TaskIDConflictError):
                info = enqueue("ok", task_id=task_id, retention=3600)
                if inspect.isawaitable(info):
                    await info
            return
    raise AssertionError(f"{task_id} could not be enqueued")


@pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is there on Linux only")
def test_a_name_that_leads_to_another_server_is_followed_although_nothing_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine of the old server is gone without a word: connections to it stay open, and nothing comes."""
    address, port = tmp_path / "address", free_port()
    resolver = RESOLVER.format(address=str(address))
    (tmp_path / "sitecustomize.py").write_text(resolver)  # for the worker
    monkeypatch.setattr("socket.getaddrinfo", socket.getaddrinfo)  # undone after the test
    exec(resolver, {})  # the same here
    url = f"redis://redis.test:{port}?read_timeout=1"

    async def test(old: RedisServer, new: View, worker: Worker) -> None:
        async with AsyncClient(url) as looping:
            with Client(url) as blocking:
                await put(blocking.enqueue, "a")
                await put(looping.enqueue, "b")
                for task_id in "ab":
                    View(old.client()).until("completed", task_id)
                address.write_text("127.0.0.2")
                with silent(old):
                    await put(blocking.enqueue, "c")
                    await put(looping.enqueue, "d")
                    for task_id in "cd":
                        new.until("completed", task_id)
                    assert worker.stop() == 0, worker.text

    with (
        redis_server(port) as old,
        redis_server(port, config={"bind": "127.0.0.2"}) as new,
        workers_on(old.url, tmp_path) as workers,
    ):
        address.write_text("127.0.0.1")
        worker = workers.start("--concurrency", "1", "--redis", url).is_ready()
        asyncio.run(test(old, View(new.client()), worker))

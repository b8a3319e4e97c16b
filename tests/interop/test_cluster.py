"""A slot of a cluster that moves while servers acknowledge tasks in it: what Go asynq gives up, fastq does not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastq import Client, Task
from tests.broker.clusters import Cluster
from tests.chaos.topology.books import read_refusals
from tests.e2e.harness import workers_on
from tests.e2e.view import View
from tests.interop.peer import GoPeer
from tests.interop.records import GoTask
from tests.redis_servers import redis_cluster, redis_server
from tests.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with redis_cluster() as nodes:
        yield Cluster(nodes)


@pytest.fixture
def go(peer_binary: Path, cluster: Cluster) -> Iterator[GoPeer]:
    with GoPeer(peer_binary) as peer:
        peer.request("connect", cluster=[f"127.0.0.1:{node.port}" for node in cluster.nodes])
        yield peer


def move(cluster: Cluster, queue: str, meanwhile: Callable[[], None]) -> View:
    """Move a queue; when its lease is at the new node and nothing else, do something that ends while it is so."""
    source, target, _ = cluster.nodes
    cluster.begin_move(queue, source, target)
    cluster.ask(source, "MIGRATE", "127.0.0.1", target.port, f"asynq:{{{queue}}}:lease", 0, 60_000)
    meanwhile()
    cluster.move_keys(queue, source, target)
    cluster.end_move(queue, target)
    return View(target.client())


def test_go_gives_up_an_ack_that_is_refused_while_its_slot_moves(cluster: Cluster, go: GoPeer) -> None:
    """The checker of ``make chaos-topology`` explains second runs by this; asynq's log says which."""
    (queue,) = cluster.queues_on(cluster.nodes[0])

    def end() -> None:
        go.request("release", gate="end")
        wait_until(lambda: read_refusals(go.log()))

    with go.server(queues={queue: 1}, log_level="warn"):
        go.enqueue(GoTask("t", b'{"do": "wait", "gate": "end"}', options={"queue": queue, "task_id": "task"}))
        go.executions(started=1)
        view = move(cluster, queue, end)
    # The server has ended, and tried each such ack for the last time.
    (refusal,) = read_refusals(go.log())
    assert refusal.id == "task"
    assert "TRYAGAIN " in refusal.why
    assert "ERROR: Could not remove task id=task" in go.log()
    assert (view.ids("active", queue), view.count("processed", queue)) == (["task"], 0)


def test_fastq_repeats_an_ack_that_is_refused_while_its_slot_moves(cluster: Cluster, tmp_path: Path) -> None:
    (queue,) = cluster.queues_on(cluster.nodes[0])
    file = tmp_path / "go"
    with redis_server() as events, workers_on(events.url, tmp_path) as workers, Client(cluster.url) as client:
        worker = workers.start("--redis", cluster.url, "--queues", queue).is_ready()

        def end() -> None:
            file.touch()
            worker.wait_for("cannot save the outcomes of 1 tasks yet")

        task = Task("until-file", headers={"file": str(file)}, queue=queue, retention=3600)
        task_id = client.enqueue(task).id
        View(events.client()).expect("started", task_id)
        view = move(cluster, queue, end)
        message = view.until("completed", task_id, queue)
        assert message is not None
        assert (message.retried, view.count("processed", queue)) == (0, 1)
        assert worker.stop() == 0, worker.text

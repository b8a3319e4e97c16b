"""The end of a server in each state: in time, with nothing lost, and what did not run at the head as it was."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client, Task
from fastq.broker.scripts import SCRIPTS
from tests.e2e.harness import Workers, workers_on
from tests.e2e.troubled import BEGIN, TROUBLES, Stage, on_stage
from tests.e2e.view import View
from tests.faulty_proxy import Act, FaultyProxy, faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.harness import ScriptFault
from tests.waiting import after, wait_until


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with on_stage(tmp_path) as stage:
        yield stage


# While Redis is away ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["silent", "killed"])
@pytest.mark.parametrize("signals", [1, 2])
def test_a_full_server_ends_in_time_though_redis_is_away(trouble: str, signals: int, stage: Stage) -> None:
    timeout_s = 1 if signals == 1 else 600
    worker = stage.workers.start("--concurrency", "2", "--shutdown-timeout", str(timeout_s)).is_ready()
    ids = [stage.enqueue("nap", task_id=f"id-{number}", headers={"seconds": "600"}) for number in range(6)]
    for _ in range(2):
        stage.view.expect("started")
    with TROUBLES[trouble](stage):
        worker.wait_for(BEGIN)
        for number in range(signals):
            worker.signal(signal.SIGTERM)
            if number == 0:
                worker.wait_for("shutting down; ")
        assert worker.ended() == 0, worker.text
    assert "tasks; unless Redis saved it although its reply was lost, they count as lost" in worker.text
    wait_until(stage.answers)
    assert sorted(stage.view.ids("pending") + stage.view.ids("active")) == ids
    assert {stage.view.message(task_id).retried for task_id in ids} == {0}


@pytest.mark.parametrize("trouble", ["silent", "killed"])
def test_an_idle_server_ends_in_time_though_redis_is_away(trouble: str, stage: Stage) -> None:
    worker = stage.workers.start("--concurrency", "2", "--shutdown-timeout", "600").is_ready()
    with TROUBLES[trouble](stage):
        worker.wait_for(BEGIN)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0, worker.text
    assert "Traceback" not in worker.text


# While much happens -------------------------------------------------------------------------------------------------


def test_a_server_in_the_middle_of_retries_ends_with_every_task_in_one_place(stage: Stage) -> None:
    count = 5_000
    with Client(stage.server.url) as client:
        client.enqueue_many([Task("fail", "x", max_retry=number % 2) for number in range(count)])
    worker = stage.workers.start("--concurrency", "2").is_ready()
    view = stage.view
    wait_until(lambda: view.count("failed") > 500)
    assert worker.stop() == 0, worker.text
    places = {where: view.ids(where) for where in ("pending", "retry", "archived", "active", "lease")}
    assert (places["active"], places["lease"]) == ([], [])
    ids = [task_id for found in places.values() for task_id in found]
    assert len(ids) == len(set(ids)) == count
    assert view.count("failed") == view.count("processed") == len(places["retry"]) + len(places["archived"])
    assert {view.message(task_id).retried for task_id in places["pending"]} <= {0}
    assert {view.message(task_id).retried for task_id in places["retry"]} == {1}


# While a dequeue has no reply yet -----------------------------------------------------------------------------------


@pytest.fixture
def proxy(db: Redis, shared_server: RedisServer) -> Iterator[FaultyProxy]:
    for name in ("dequeue", "requeue", "complete"):
        db.script_load(SCRIPTS[name].text)
    with faulty_proxy(shared_server.socket_path) as proxy:
        yield proxy


@pytest.fixture
def workers(proxy: FaultyProxy, tmp_path: Path) -> Iterator[Workers]:
    with workers_on(proxy.url, tmp_path) as workers:
        yield workers


def enqueue_three(client: Client) -> list[str]:
    ids = [f"id-{number}" for number in range(3)]
    client.enqueue_many([Task("ok", task_id=task_id, retention=3600) for task_id in ids])
    return ids


def test_what_a_dequeue_brings_after_the_stop_goes_back_to_the_head(
    proxy: FaultyProxy, workers: Workers, client: Client, view: View
) -> None:
    worker = workers.start("--concurrency", "8", "--shutdown-timeout", "60").is_ready()
    running = client.enqueue(Task("wait", retention=3600)).id
    view.expect("started", running)
    # The handler waits, and so does the server: no dequeue is under way that brings nothing.
    wait_until(lambda: view.facts("stats")["tracking_total_keys"] == 1)
    fault = ScriptFault("dequeue", Act.DELAY)
    proxy.faults.append(fault)
    ids = enqueue_three(client)
    wait_until(lambda: view.size("active") == 4)
    worker.signal(signal.SIGTERM)
    worker.wait_for("shutting down; ")
    wait_until(after(1.5))  # what has not begun was given back by then
    fault.until.set()
    view.open()
    assert worker.ended() == 0, worker.text
    assert (view.ids("completed"), view.ids("pending")) == ([running], ids)
    assert (view.size("active"), view.size("lease")) == (0, 0)
    assert {view.message(task_id).retried for task_id in ids} == {0}


def test_what_a_late_dequeue_leases_after_sigtstp_is_found_and_run(
    proxy: FaultyProxy, workers: Workers, client: Client, view: View
) -> None:
    """Nobody looked for it any more: it stayed leased for as long as the server went on, and cost an attempt."""
    worker = workers.start("--concurrency", "8").is_ready()
    # The server waits: no dequeue is under way that the fault comes too late for.
    wait_until(lambda: view.facts("stats")["tracking_total_keys"] == 1)
    proxy.faults.append(ScriptFault("dequeue", Act.HOLD, times=None))
    ids = enqueue_three(client)
    wait_until(lambda: proxy.held)  # a slow start is in trouble before any dequeue was held
    worker.signal(signal.SIGTSTP)
    worker.wait_for("SIGTSTP: no longer fetching")
    assert view.ids("pending") == ids
    proxy.release()
    late = client.enqueue(Task("ok", task_id="late", retention=3600)).id
    try:
        for task_id in ids:
            view.until("completed", task_id)
    except AssertionError as error:
        error.add_note(worker.text)
        raise
    assert view.ids("pending") == [late]
    assert worker.stop() == 0, worker.text
    assert view.count("processed") == 3

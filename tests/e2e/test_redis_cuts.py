"""A network that loses requests and replies of every script in turn: nothing is lost, nothing counts twice."""

import signal
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client, Task
from fastq.broker.scripts import SCRIPTS
from tests.e2e.harness import Worker, workers_on
from tests.e2e.view import View
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.harness import ScriptFault
from tests.waiting import wait_until

SHORT = {"recoverer_interval_s": 0.1, "heartbeat_interval_s": 0.2, "stall_s": 60.0}
ACTS = [Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY, Act.CUT_IN_REPLY]
CUT = [
    "archive",
    "complete",
    "delete_expired_completed",
    "dequeue",
    "done",
    "extend_leases",
    "forward",
    "list_leases",
    "repair_active",
    "retry",
    "write_server_state",
]
COUNT = 30


def enqueue_all(url: str) -> None:
    """Enqueue tasks that between them take every way out."""
    kinds = [
        Task("ok"),
        Task("ok", retention=3600),
        Task("fail", "x", max_retry=1),
        Task("skip"),
        Task("nap", headers={"seconds": "0.1"}, retention=1),
    ]
    with Client(url) as client:
        for _ in range(COUNT):
            results = client.enqueue_many(kinds)
            assert not any(isinstance(result, Exception) for result in results)


def make_retries_due(db: Redis, view: View) -> None:
    for task_id in view.ids("retry"):
        db.zadd("asynq:{default}:retry", {task_id: 1}, xx=True)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name.lower())
def test_each_script_may_be_cut_again_and_again(
    act: Act, db: Redis, shared_server: RedisServer, tmp_path: Path
) -> None:
    for script in SCRIPTS.values():
        db.script_load(script.text)
    faults: list[Fault] = [ScriptFault(name, act, times=1, skip=skip) for name in CUT for skip in (0, 1)]
    view = View(db)
    enqueue_all(shared_server.url)
    with faulty_proxy(shared_server.socket_path, *faults) as proxy, workers_on(proxy.url, tmp_path) as workers:
        worker = workers.start_timed(
            SHORT,
            concurrency=2,
            delayed_task_check_interval=0.05,
            janitor_interval=0.1,
            prefetch_time=0.2,
            shutdown_timeout=1.0,
            log_tracebacks="never",  # any that there is is a defect
        ).is_ready()

        def all_is_done() -> bool:
            make_retries_due(db, view)
            return view.count("processed") >= 6 * COUNT

        wait_until(all_is_done)
        wait_until(lambda: all(fault.times == 0 for fault in faults))
        check(view)
        stop_in_a_cut(shared_server.url, view, worker, act, proxy.faults)


def check(view: View) -> None:
    """See that each task came to its end: of six runs a kind three were failures, in one case with a second try."""
    wait_until(lambda: not view.size("active") and not view.size("lease"))
    assert (view.count("processed"), view.count("failed")) == (6 * COUNT, 3 * COUNT)
    assert (view.size("archived"), view.size("retry"), view.size("pending")) == (2 * COUNT, 0, 0)
    wait_until(lambda: view.size("completed") == COUNT)  # the others' retention is over


def stop_in_a_cut(url: str, view: View, worker: Worker, act: Act, faults: list[Fault]) -> None:
    """See that what is given back at the end is there, though that was cut, too."""
    with Client(url) as client:
        task_id = client.enqueue(Task("nap", headers={"seconds": "600"})).id
    view.until("active", task_id)
    faults.append(ScriptFault("requeue", act, times=1))
    worker.signal(signal.SIGTERM)  # a second one would leave a Redis that is slow to answer a quarter of a second
    assert worker.ended() == 0, worker.text
    assert faults[-1].times == 0
    assert (view.ids("pending"), view.size("active"), view.size("lease")) == ([task_id], 0, 0)
    assert view.message(task_id).retried == 0
    assert "Traceback" not in worker.text

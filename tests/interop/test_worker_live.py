"""fastq-worker among Go's: its clients, its servers, its Inspector, all alive on one Redis."""

import signal
import socket
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from fastq import Client, Task
from fastq.broker.operations.cancel import CancelAs, Cancellation, cancel_processing
from fastq.broker.transport.open import open_broker
from fastq.wire import keys
from tests.e2e.harness import Worker, Workers
from tests.e2e.view import Event, View
from tests.interop.peer import SECOND_NS, GoPeer, hear_cancellations
from tests.interop.records import GoOptions, GoTask, GoTaskInfo, PeerError
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

COUNT = 10_000
HOUR_NS = 3600 * SECOND_NS
QUICK = ("--retry-delay", "tests.e2e.apps:quick_retry", "--delayed-task-check-interval", "0.05")


# Go's tasks -------------------------------------------------------------------------------------------------------

KINDS = ("bytes", "ok", "fail-times", "fail", "skip", "revoke", "async-echo", "ok-forgotten")


def go_task(number: int) -> GoTask:
    kind = KINDS[number % len(KINDS)]
    options: GoOptions = {"task_id": f"id-{number}", "queue": f"q{number % 3}", "max_retry": 0 if kind == "fail" else 3}
    if kind != "ok-forgotten":
        options["retention_ns"] = HOUR_NS
    return GoTask(kind, f'"{number}"'.encode(), {"times": "2", "n": str(number)}, options)


def test_ten_thousand_tasks_of_a_go_client_end_as_go_expects(go: GoPeer, workers: Workers, view: View) -> None:
    sent = [go_task(number) for number in range(COUNT)]
    assert all(isinstance(info, GoTaskInfo) for info in go.enqueue_many(sent))
    worker = workers.start("--queues", "q0=3,q1=2,q2=1", "--concurrency", "2", *QUICK).is_ready()
    each = COUNT // len(KINDS)
    runs = each * (len(KINDS) + 2)  # those that fail twice run three times
    wait_until(lambda: sum(view.count("processed", f"q{n}") for n in range(3)) == runs)
    assert worker.stop() == 0, worker.text
    infos = [go.inspect("GetQueueInfo", f"q{n}") for n in range(3)]
    total = Counter[str]()
    for info in infos:
        total.update({name: value for name, value in info.items() if isinstance(value, int)})
    assert (total["completed"], total["archived"], total["size"]) == (4 * each, 2 * each, 6 * each)
    assert (total["active"], total["pending"], total["retry"], total["scheduled"]) == (0, 0, 0, 0)
    assert (total["processed_total"], total["failed_total"]) == (runs, 4 * each)
    for number in range(0, COUNT, 97):
        check_go_task(go, sent[number], number)


def check_go_task(go: GoPeer, task: GoTask, number: int) -> None:
    queue, task_id = f"q{number % 3}", f"id-{number}"
    if task.type in ("revoke", "ok-forgotten"):
        with pytest.raises(PeerError, match="task_not_found"):
            go.task_info(queue, task_id)
        return
    info = go.task_info(queue, task_id)
    assert task.payload is not None
    assert (info.id, info.queue, info.type, info.payload) == (task_id, queue, task.type, task.payload)
    assert info.headers == task.headers
    state, retried, error, result = {
        "bytes": ("completed", 0, "", task.payload[::-1]),
        "ok": ("completed", 0, "", b""),
        "fail-times": ("completed", 2, "ValueError: attempt 1 (", b'"at last"'),
        "fail": ("archived", 0, f"ValueError: {number} (", b""),
        "skip": ("archived", 0, "SkipRetry: no use (", b""),
        "async-echo": ("completed", 0, "", task.payload),
    }[task.type]
    assert (info.state, info.retried, info.result or b"") == (state, retried, result)
    assert info.last_err.startswith(error)
    assert bool(info.last_err) == bool(info.last_failed_at_ns) == bool(error)
    assert bool(info.completed_at_ns) == (state == "completed")
    assert info.max_retry == (0 if task.type == "fail" else 3)
    assert info.retention_ns == HOUR_NS


# A Go server ------------------------------------------------------------------------------------------------------

SCRIPTS: list[dict[str, Any]] = [
    {"do": "result", "result": "YWI="},
    {"do": "ok"},
    {"do": "error", "text": "no", "times": 2},
    {"do": "error", "text": "never"},
    {"do": "skip", "text": "bad"},
    {"do": "revoke", "text": "off"},
    {"do": "panic", "text": "oh", "times": 1},
    {"do": "ok"},
]


def test_ten_thousand_tasks_of_a_fastq_client_end_as_asynq_means_them(go: GoPeer, redis_url: str, view: View) -> None:
    with Client(redis_url) as client:
        results = client.enqueue_many(
            Task(
                "t",
                SCRIPTS[n % 8],
                task_id=f"id-{n}",
                queue=f"q{n % 3}",
                max_retry=0 if n % 8 == 3 else 3,
                retention=3600,
                headers={"n": str(n)},
            )
            for n in range(COUNT)
        )
        assert not any(isinstance(result, Exception) for result in results)
    each = COUNT // 8
    runs = each * 11  # two retries more of the third, one of the seventh
    config: dict[str, Any] = {"concurrency": 20, "retry_delay_ns": 1, "delayed_task_check_ns": SECOND_NS // 20}
    with go.server(queues={"q0": 3, "q1": 2, "q2": 1}, task_check_ns=SECOND_NS // 100, **config):
        executions = go.executions(finished=runs)
    assert len(executions) == runs
    ends = Counter(execution.id for execution in executions)
    for n in range(COUNT):
        assert ends[f"id-{n}"] == {2: 3, 6: 2}.get(n % 8, 1)
        state = {3: "archived", 4: "archived", 5: ""}.get(n % 8, "completed")
        assert view.state(f"id-{n}", f"q{n % 3}") == state
    assert {execution.headers["n"] for execution in executions if execution.headers} == {str(n) for n in range(COUNT)}
    for n in range(0, COUNT, 8):
        assert view.result(f"id-{n}", f"q{n % 3}") == b"ab"


# Go's Inspector ---------------------------------------------------------------------------------------------------


def test_the_go_inspector_sees_the_worker_field_by_field(go: GoPeer, workers: Workers, view: View) -> None:
    before_ns = time.time_ns()
    worker = workers.start_timed(
        {"heartbeat_interval_s": 0.2}, concurrency=3, queues={"critical": 6, "default": 3}, strict_priority=True
    ).is_ready()
    tasks = [
        go.enqueue(GoTask("wait", b"p\xff", {"k": "v"}, {"queue": "critical", "timeout_ns": 90 * SECOND_NS})),
        go.enqueue(GoTask("wait", b"", None, {"queue": "default", "deadline": int(time.time()) + 50})),
    ]
    for _ in tasks:
        view.expect("started")
    wait_until(lambda: len(go.inspect("Servers")[0]["active_workers"]) == 2)
    (server,) = go.inspect("Servers")
    running = {info["task_id"]: info for info in server.pop("active_workers")}
    started_ns = server.pop("started_ns")
    assert before_ns < started_ns < time.time_ns()
    assert len(server.pop("id")) == 36
    assert server == {
        "host": socket.gethostname(),
        "pid": worker.pid,
        "concurrency": 300,
        "queues": {"critical": 6, "default": 3},
        "strict_priority": True,
        "status": "active",
    }
    for task, payload in zip(tasks, ("cP8=", None), strict=True):
        info = running.pop(task.id)
        start_ns, deadline_ns = info.pop("started_ns"), info.pop("deadline_ns")
        assert before_ns < start_ns < time.time_ns()
        if task.timeout_ns:
            assert deadline_ns - start_ns == pytest.approx(90 * SECOND_NS, abs=SECOND_NS // 10)
        else:
            assert deadline_ns == pytest.approx(task.deadline_ns, abs=SECOND_NS // 10)
        assert (info.pop("task_payload") or None) == payload
        assert info == {"task_id": task.id, "task_type": "wait", "queue": task.queue}
    assert sorted(go.inspect("Queues")) == ["critical", "default"]
    (active,) = go.inspect("ListActiveTasks", "critical")
    assert (active["id"], active["state"], active["is_orphaned"]) == (tasks[0].id, "active", False)
    worker.signal(signal.SIGTSTP)
    wait_until(lambda: go.inspect("Servers")[0]["status"] == "stopped")
    view.open(times=2)
    wait_until(lambda: go.inspect("Servers")[0]["active_workers"] == [])
    assert worker.stop() == 0, worker.text
    assert go.inspect("Servers") == []


def test_the_go_inspector_cancels_a_running_task(go: GoPeer, workers: Workers, view: View) -> None:
    task = go.enqueue(GoTask("clean"))
    workers.start("--concurrency", "1").is_ready()
    view.expect("started", task.id)
    hear_cancellations(view.db)
    go.inspect("CancelProcessing", task.id)
    view.until("retry", task.id)
    assert go.task_info("default", task.id).last_err.startswith("TaskCanceled: ")


def test_a_go_server_takes_no_notice_of_our_channel_and_cancels_by_the_bare_id(
    go: GoPeer, redis_url: str, view: View
) -> None:
    for task_id, gate in (("a", "g"), ("b", "never")):
        go.enqueue(GoTask("t", f'{{"do": "wait", "gate": "{gate}"}}'.encode(), options={"task_id": task_id}))
    with go.server(retry_delay_ns=HOUR_NS, task_check_ns=SECOND_NS // 100):
        go.executions(started=2)
        hear_cancellations(view.db)
        for message in (Cancellation("a", "default", CancelAs.DELETE).encode(), b"nonsense"):
            view.db.publish(keys.CANCEL_AS_CHANNEL, message)
        broker = open_broker(redis_url)
        broker.drive(cancel_processing("b", "default", "delete"))
        broker.close()
        ended = [(run.id, run.outcome) for run in go.executions(finished=1) if run.end_ns is not None]
        assert ended == [("b", "context canceled")]
        assert view.state("a") == "active"
        go.request("release", gate="g")
        go.executions(finished=2)
    assert (view.state("a"), view.state("b")) == ("", "retry")


# All together -----------------------------------------------------------------------------------------------------


def shares(events: Sequence[Event], families: Sequence[set[int]]) -> list[int]:
    """Count the events of each family of processes."""
    return [sum(event.pid in family for event in events) for family in families]


def test_two_workers_and_a_go_server_share_three_queues_and_run_each_task_once(
    go: GoPeer, workers: Workers, view: View, redis_url: str
) -> None:
    queues = {"q0": 3, "q1": 2, "q2": 1}
    flags = ("--queues", "q0=3,q1=2,q2=1", "--concurrency", "1")
    pair: list[Worker] = [workers.start(*flags).is_ready() for _ in range(2)]
    with go.server(queues=queues, concurrency=10, task_check_ns=SECOND_NS // 100):
        with Client(redis_url) as client:
            families = [worker.family() for worker in pair]
            events, total, rounds = list[Event](), 0, 0
            while rounds < 3 or not all(shares(events, families)):  # until all have had their turns
                assert rounds < 30, "one of them takes no part"
                rounds += 1
                sent = client.enqueue_many(Task("told", queue=f"q{n % 3}") for n in range(COUNT // 4))
                go.enqueue_many(GoTask("told", options={"queue": f"q{n % 3}"}) for n in range(COUNT // 12))
                assert not any(isinstance(result, Exception) for result in sent)
                total += COUNT // 4 + COUNT // 12
                wait_until(lambda so_far=total: sum(view.count("processed", queue) for queue in queues) == so_far)  # type: ignore[misc]  # bound now
                events += view.events()
        executions = go.executions()
    for worker in pair:
        assert worker.stop() == 0, worker.text
    runs = Counter([event.task_id for event in events] + [execution.id for execution in executions])
    assert (len(runs), set(runs.values())) == (total, {1})
    assert executions
    assert sum(shares(events, families)) + len(executions) == total
    assert sum(view.count("failed", queue) for queue in queues) == 0
    for queue in queues:
        assert (view.size("active", queue), view.size("lease", queue), view.size("pending", queue)) == (0, 0, 0)

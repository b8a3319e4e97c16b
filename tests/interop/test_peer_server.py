"""The peer tells the truth about asynq.Server and asynq.Scheduler."""

import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from tests.interop.peer import SECOND_NS, GoPeer, hear_cancellations
from tests.interop.records import Execution, GoOptions, GoTask, GoTaskInfo, PeerError
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

HOUR_NS = 3600 * SECOND_NS
QUICK: dict[str, Any] = {"concurrency": 20, "retry_delay_ns": HOUR_NS, "task_check_ns": SECOND_NS // 100}


@dataclass(frozen=True)
class Case:
    """A script and options; what the handler returns and what asynq makes of it (state None: the task is gone)."""

    script: dict[str, Any]
    options: GoOptions
    outcome: str
    state: str | None
    retried: int = 0
    last_err: str = ""
    result: bytes | None = None


CASES = [
    Case({}, {}, "ok", None),
    Case({"do": "ok"}, {"retention_ns": HOUR_NS}, "ok", "completed"),
    Case({"do": "result", "result": "YWI="}, {"retention_ns": HOUR_NS}, "ok", "completed", result=b"ab"),
    Case({"do": "error", "text": "no"}, {"max_retry": 3}, "no", "retry", 1, "no"),
    Case({"do": "error", "text": "no"}, {"max_retry": 0}, "no", "archived", 0, "no"),
    Case({"do": "error", "text": "no", "times": 0}, {}, "no", "retry", 1, "no"),
    Case({"do": "not_failure", "text": "later"}, {}, "later", "retry", 0, "later"),
    Case(
        {"do": "skip", "text": "bad"},
        {},
        "bad: skip retry for the task",
        "archived",
        0,
        "bad: skip retry for the task",
    ),
    Case({"do": "revoke", "text": "off"}, {"retention_ns": HOUR_NS}, "off: revoke task", None),
    Case({"do": "panic", "text": "oh"}, {}, "panic: oh", "retry", 1, "panic error cause by: panic"),
    Case({"do": "sleep", "for_ns": SECOND_NS // 1000}, {}, "ok", None),
    Case(
        {"do": "sleep", "for_ns": HOUR_NS},
        {"timeout_ns": SECOND_NS},
        "context deadline exceeded",
        "retry",
        1,
        "context deadline exceeded",
    ),
    Case({"do": "fly"}, {}, 'script: unknown do "fly": skip retry for the task', "archived", 0, "script: unknown do"),
]


def scripted(case: Case, number: int) -> GoTask:
    """Put the script into the payload or, every other time, into a header."""
    options: GoOptions = {**case.options, "task_id": f"id-{number}", "queue": f"q{number % 3}"}
    text = json.dumps(case.script)
    if number % 2:
        return GoTask("t", b"p", {"script": text}, options)
    return GoTask("t", text.encode(), None, options)


def check_task(go: GoPeer, case: Case, queue: str, task_id: str) -> None:
    if case.state is None:
        with pytest.raises(PeerError, match="task_not_found"):
            go.task_info(queue, task_id)
        return
    info = go.task_info(queue, task_id)
    assert (info.state, info.retried, info.result) == (case.state, case.retried, case.result)
    assert info.last_err.startswith(case.last_err)
    assert bool(info.last_err) == bool(info.last_failed_at_ns) == bool(case.last_err)
    assert bool(info.completed_at_ns) == (case.state == "completed")


def test_a_server_runs_a_hundred_tasks_with_every_outcome(go: GoPeer) -> None:
    cases = {f"id-{number}": CASES[number % len(CASES)] for number in range(100)}
    tasks = {f"id-{number}": scripted(case, number) for number, case in enumerate(cases.values())}
    go.enqueue_many(tasks.values())
    with go.server(queues={"q0": 3, "q1": 2, "q2": 1}, **QUICK):
        runs = {run.id: run for run in go.executions(finished=100)}
    assert runs.keys() == cases.keys()
    for number, (task_id, case) in enumerate(cases.items()):
        run, task = runs[task_id], tasks[task_id]
        assert (run.queue, run.type, run.payload) == (f"q{number % 3}", "t", task.payload)
        assert run.headers == task.headers
        assert (run.retried, run.max_retry) == (0, case.options.get("max_retry", 25))
        assert run.outcome == case.outcome
        check_task(go, case, run.queue, task_id)
    facts = [go.inspect("GetQueueInfo", f"q{number}") for number in range(3)]
    not_counted = sum(case.script.get("do") == "not_failure" for case in cases.values())
    assert sum(queue["processed_total"] for queue in facts) == 100 - not_counted
    assert sum(queue["active"] for queue in facts) == 0


def test_the_clock_of_an_execution_is_right(go: GoPeer) -> None:
    before = time.time_ns()
    go.enqueue(GoTask("t", b'{"do": "sleep", "for_ns": 20000000}', options={"timeout_ns": 60 * SECOND_NS}))
    with go.server(**QUICK):
        (run,) = go.executions(finished=1)
    assert run.end_ns is not None
    assert run.deadline_ns is not None
    assert before < run.start_ns < run.end_ns < time.time_ns()
    assert run.end_ns - run.start_ns >= 20_000_000
    assert before + 60 * SECOND_NS < run.deadline_ns <= run.start_ns + 60 * SECOND_NS


def test_times_limits_a_script_to_the_first_attempts(go: GoPeer) -> None:
    go.enqueue(GoTask("t", b'{"do": "error", "text": "no", "times": 2}'))
    with go.server(**{**QUICK, "retry_delay_ns": 0, "delayed_task_check_ns": SECOND_NS // 10}):
        runs = go.executions(finished=3)
    assert [(run.retried, run.outcome) for run in runs] == [(0, "no"), (1, "no"), (2, "ok")]


def test_a_gate_holds_a_task_active_until_released(go: GoPeer) -> None:
    go.enqueue(GoTask("t", b'{"do": "wait", "gate": "g"}', options={"task_id": "held"}))
    with go.server(**QUICK):
        (run,) = go.executions(started=1)
        assert run.end_ns is None
        assert go.task_info("default", "held").state == "active"
        wait_until(lambda: bool(go.inspect("Servers")))  # it may run tasks before it shows itself
        (server,) = go.inspect("Servers")
        assert (server["status"], server["concurrency"], server["queues"]) == ("active", 20, {"default": 1})
        go.request("release", gate="g")
        (run,) = go.executions(finished=1)
    assert run.outcome == "ok"
    assert go.inspect("Servers") == []


def test_a_cancelled_handler_ends_with_its_context(go: GoPeer, db: redis.Redis) -> None:
    go.enqueue(GoTask("t", b'{"do": "wait", "gate": "never"}', options={"task_id": "held"}))
    with go.server(**QUICK):
        go.executions(started=1)
        hear_cancellations(db)
        go.inspect("CancelProcessing", "held")
        (run,) = go.executions(finished=1)
    assert run.outcome == "context canceled"
    assert go.task_info("default", "held").last_err == "context canceled"


def test_a_stopped_server_takes_no_more(go: GoPeer) -> None:
    with go.server(**QUICK):
        go.request("server_stop", name="server")
        go.enqueue(GoTask("t", options={"task_id": "late"}))
    assert go.executions() == []
    assert go.task_info("default", "late").state == "pending"


def test_the_higher_queue_goes_first_when_strict(go: GoPeer) -> None:
    queues = ["low", "high"] * 10
    go.enqueue_many(GoTask("t", options={"queue": queue}) for queue in queues)
    with go.server(**{**QUICK, "concurrency": 1, "strict": True, "queues": {"low": 1, "high": 2}}):
        runs = go.executions(finished=20)
    assert [run.queue for run in runs] == ["high"] * 10 + ["low"] * 10


def test_a_group_becomes_one_task(go: GoPeer) -> None:
    for number in range(3):
        go.enqueue(GoTask("t", f"{number}".encode(), {"n": str(number)}, {"group": "g", "task_id": str(number)}))
    assert go.inspect("Groups", "default") == [{"group": "g", "size": 3}]
    groups = {"grace_ns": SECOND_NS, "max_size": 3, "type": "bundle"}
    with go.server(groups=groups, **QUICK):
        (run,) = go.executions(finished=1)
    (called,) = go.request("aggregations", count=1)
    assert run.type == "bundle"
    assert run.payload is not None
    assert json.loads(run.payload) == called
    assert called["group"] == "g"
    assert [(task["payload"], task["headers"]) for task in called["tasks"]] == [
        ("MA==", {"n": "0"}),
        ("MQ==", {"n": "1"}),
        ("Mg==", {"n": "2"}),
    ]
    assert go.inspect("Groups", "default") == []


def test_a_scheduler_enqueues_and_is_seen(go: GoPeer, db: redis.Redis) -> None:
    task = GoTask("tick", b"p", {"k": "v"}, {"queue": "ticks"}).params()
    (entry,) = go.request(
        "scheduler_start", name="s", heartbeat_ns=SECOND_NS, entries=[{"spec": "@every 1s", "task": task}]
    )
    other = go.request("scheduler_register", name="s", entry={"spec": "0 0 1 1 *", "task": task})
    go.request("scheduler_unregister", name="s", entry_id=other)
    with go.server(queues={"ticks": 1}, **QUICK):
        runs = go.executions(finished=3)
    (seen,) = go.inspect("SchedulerEntries")
    events = go.inspect("ListSchedulerEnqueueEvents", entry)
    go.request("scheduler_shutdown", name="s")
    assert {(run.type, run.payload, run.queue) for run in runs} == {("tick", b"p", "ticks")}
    assert (seen["id"], seen["spec"], seen["opts"]) == (entry, "@every 1s", ['Queue("ticks")'])
    assert {runs[0].id, runs[1].id} <= {event["task_id"] for event in events}
    assert db.exists("asynq:schedulers", f"asynq:scheduler_history:{entry}") == 0


def test_executions_that_do_not_come_time_out(go: GoPeer) -> None:
    with pytest.raises(PeerError, match="0 executions started, 0 finished: not after 50ms"):
        go.executions(finished=1, timeout=0.05)


def test_two_servers_share_the_work_by_name(go: GoPeer) -> None:
    with go.server("a", **{**QUICK, "concurrency": 1}), go.server("b", **{**QUICK, "concurrency": 1}):
        go.enqueue_many(GoTask("t", b'{"do": "wait", "gate": "g"}') for _ in range(2))
        started: list[Execution] = go.executions(started=2)
        go.request("release", gate="g")
    assert Counter(run.server for run in started) == {"a": 1, "b": 1}


def test_list_entries_are_task_infos(go: GoPeer) -> None:
    info = go.enqueue(GoTask("t", b"p", {"k": "v"}))
    (listed,) = go.inspect("ListPendingTasks", "default")
    read = GoTaskInfo.from_json(listed)
    assert vars(read) == {**vars(info), "next_process_at_ns": read.next_process_at_ns}

"""``fastq`` on what a real asynq wrote: its numbers are those of asynq's own Inspector."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Fastq
from tests.interop.peer import HOUR_NS, QUICK, SECOND_NS, GoPeer, hear_cancellations
from tests.interop.records import GoOptions, GoTask, GoTaskInfo
from tests.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture
def fastq(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastq:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Fastq(redis_url)


def script(words: dict[str, Any], options: GoOptions, type: str = "go") -> GoTask:
    return GoTask(type, json.dumps(words).encode(), options=options)


RUNS = [
    script({"do": "ok"}, {"task_id": "done"}),
    script({"do": "result", "result": "YWI="}, {"retention_ns": HOUR_NS, "task_id": "kept"}),
    script({"do": "error", "text": "no"}, {"max_retry": 3, "task_id": "again"}),
    script({"do": "error", "text": "never"}, {"max_retry": 0, "task_id": "dead"}),
]
WAITS = [
    script({"do": "ok"}, {"task_id": "p1"}),
    script({"do": "ok"}, {"process_in_ns": HOUR_NS, "task_id": "s1"}),
    script({"do": "ok"}, {"group": "g", "task_id": "g1"}),
    script({"do": "ok"}, {"queue": "other", "task_id": "o1"}),
]


@pytest.fixture
def worked(go: GoPeer, fastq: Fastq) -> Fastq:
    """Return the command on queues that Go filled, and worked on."""
    go.enqueue_many(RUNS)
    with go.server(**QUICK, queues={"default": 1}):
        go.executions(finished=len(RUNS))
    go.enqueue_many(WAITS)
    return fastq


PLAIN = ("size", "groups", "pending", "active", "scheduled", "retry", "archived", "completed", "aggregating", "paused")
COUNTED = ("processed", "failed", "processed_total", "failed_total")


def test_the_numbers_of_a_queue_are_those_of_asynq(go: GoPeer, worked: Fastq) -> None:
    worked.done("queue", "pause", "other")
    for queue in ("default", "other"):
        theirs = go.inspect("GetQueueInfo", queue)
        (ours,) = worked.json("queue", "inspect", queue)
        assert {name: ours[name] for name in PLAIN + COUNTED} == {name: theirs[name] for name in PLAIN + COUNTED}
    stats = worked.json("stats")
    assert stats["aggregate"]["processed"] == len(RUNS)
    assert stats["aggregate"]["failed"] == 2
    assert [queue["Paused"] for queue in stats["queues"]] == [False, True]
    (days,) = worked.json("queue", "history", "default", "--days", "2")
    assert days["days"][0]["processed"] == len(RUNS)


@pytest.mark.parametrize(
    ("state", "method", "ids"),
    [
        ("pending", "ListPendingTasks", ["p1"]),
        ("scheduled", "ListScheduledTasks", ["s1"]),
        ("retry", "ListRetryTasks", ["again"]),
        ("archived", "ListArchivedTasks", ["dead"]),
        ("completed", "ListCompletedTasks", ["kept"]),
    ],
)
def test_tasks_are_listed_as_asynq_lists_them(
    go: GoPeer, worked: Fastq, state: str, method: str, ids: list[str]
) -> None:
    theirs = go.inspect(method, "default", {"page": 1, "size": 30})
    ours = worked.json("task", "ls", "-q", "default", "-s", state)
    assert [task["id"] for task in ours] == [task["id"] for task in theirs] == ids
    assert [task["last_error"] or "" for task in ours] == [task["last_err"] for task in theirs]
    assert [task["retried"] for task in ours] == [task["retried"] for task in theirs]


def test_what_is_done_to_tasks_asynq_sees(go: GoPeer, worked: Fastq) -> None:
    worked.done("task", "run", "-q", "default", "-i", "dead")
    worked.done("task", "archive", "-q", "default", "-i", "s1")
    worked.done("task", "delete", "-q", "default", "-i", "kept", "--yes")
    worked.done("task", "run-all", "-q", "default", "-s", "aggregating", "-g", "g", "--yes")
    worked.done("task", "enqueue", "-t", "go", "-l", "{}", "--id", "ours", "--retry", "3", "--timeout", "1m")
    states = {name: go.task_info("default", name).state for name in ("dead", "s1", "g1", "ours")}
    assert states == {"dead": "pending", "s1": "archived", "g1": "pending", "ours": "pending"}
    ours = go.task_info("default", "ours")
    assert (ours.payload, ours.max_retry, ours.timeout_ns) == (b"{}", 3, 60 * SECOND_NS)
    worked.done("queue", "rm", "other", "--force", "--yes")
    assert go.inspect("Queues") == ["default"]


def as_stored(info: GoTaskInfo) -> GoTaskInfo:
    """Leave out what asynq takes from its clock: a pending task is next processed in the second of the question."""
    return replace(info, next_process_at_ns=None) if info.state == "pending" else info


def test_what_is_exported_and_imported_is_to_asynq_as_it_was(
    go: GoPeer, worked: Fastq, tmp_path: Path, db: Any
) -> None:
    ids = [("default", task_id) for task_id in ("kept", "again", "dead", "p1", "s1", "g1")] + [("other", "o1")]
    before = {found: as_stored(go.task_info(*found)) for found in ids}
    for queue in ("default", "other"):
        worked.done("task", "export", "-q", queue, "-o", str(tmp_path / queue))
    db.flushall()
    for queue in ("default", "other"):
        assert " of " in worked.done("task", "import", str(tmp_path / queue))
    assert {found: as_stored(go.task_info(*found)) for found in ids} == before
    worked.done("task", "import", str(tmp_path / "other"), "--queue", "default")
    with go.server(**QUICK, queues={"default": 1}):
        runs = go.executions(finished=len(RUNS) + 2)  # those before the export, too
        assert {run.id for run in runs[len(RUNS) :]} == {"p1", "o1"}


def test_a_go_server_and_what_it_runs_are_listed(go: GoPeer, fastq: Fastq, db: Any) -> None:
    go.enqueue(script({"do": "wait", "gate": "g"}, {"task_id": "busy", "queue": "high"}))
    with go.server(**QUICK, queues={"high": 3, "low": 1}):
        go.executions(started=1)
        # Its heartbeat comes every 5 s; the first one may have been sent before it took the task.
        wait_until(lambda: [server["active_workers"] for server in fastq.json("server", "ls")] not in ([], [[]]))
        (found,) = fastq.json("server", "ls")
        assert (found["status"], found["concurrency"], found["queues"]) == ("active", 20, {"high": 3, "low": 1})
        assert [worker["task_id"] for worker in found["active_workers"]] == ["busy"]
        (row,) = fastq.lines("server", "ls")[1:]
        assert " active 1/20 high:3 low:1 " in row
        (active,) = fastq.json("task", "ls", "-q", "high", "-s", "active")
        assert (active["id"], active["is_orphaned"]) == ("busy", False)
        assert "cannot delete a task in state 'active'" in fastq.failure(
            "task", "rm", "-q", "high", "-i", "busy", "--yes"
        )
        assert "1 active" in fastq.failure("queue", "rm", "high", "--force", "--yes")
        hear_cancellations(db)
        fastq.done("task", "cancel", "busy")
        (run,) = go.executions(finished=1)
        assert run.outcome == "context canceled"


def test_the_entries_of_a_go_scheduler_are_listed(go: GoPeer, fastq: Fastq) -> None:
    entry = {"spec": "@every 1s", "task": script({"do": "ok"}, {"queue": "low"}).params()}
    (entry_id,) = go.request("scheduler_start", name="s", heartbeat_ns=SECOND_NS, entries=[entry])
    wait_until(lambda: fastq.json("cron", "ls"))
    (found,) = fastq.json("cron", "ls")
    assert (found["id"], found["spec"], found["task_type"]) == (entry_id, "@every 1s", "go")
    assert 'Queue("low")' in found["options"]
    wait_until(lambda: fastq.json("cron", "history", entry_id)[0]["events"])
    event = fastq.json("cron", "history", entry_id)[0]["events"][0]
    assert go.task_info("low", event["task_id"]).state == "pending"
    go.request("scheduler_shutdown", name="s")


def test_a_go_server_is_not_asked_to_stop(go: GoPeer, fastq: Fastq) -> None:
    with go.server():
        wait_until(lambda: bool(go.inspect("Servers")))
        for verb in ("stop", "quiet"):
            assert "takes no orders (an asynq server," in fastq.failure("server", verb, "--all", "--yes")
        assert go.inspect("Servers")[0]["status"] == "active"


def test_the_doctor_finds_nothing_wrong_with_what_go_does(go: GoPeer, fastq: Fastq) -> None:
    go.enqueue_many(RUNS + WAITS)
    go.enqueue(script({"do": "ok"}, {"unique_ns": HOUR_NS, "task_id": "u1"}, type="u"))
    with go.server(**QUICK, queues={"default": 1, "other": 1}):
        wait_until(lambda: bool(go.inspect("Servers")))
        found = json.loads(fastq.run("doctor", "--json").stdout)
        assert [check for check in found["checks"] if check["level"] == "problem"] == []
        names = {check["check"]: check["seen"] for check in found["checks"]}
        assert names["server clocks"] == "servers and schedulers: 1, the same as Redis"


def test_the_doctor_finds_what_go_leaves_behind(go: GoPeer, fastq: Fastq, db: Any) -> None:
    go.enqueue(script({"do": "ok"}, {"task_id": "gone"}))
    db.delete("asynq:{default}:t:gone")
    unique: GoOptions = {"unique_ns": HOUR_NS, "task_id": "u1"}
    go.enqueue(script({"do": "ok"}, {**unique, "process_in_ns": HOUR_NS}, type="u"))
    db.delete("asynq:{default}:t:u1")
    with go.server(**QUICK, queues={"default": 1}):
        wait_until(lambda: db.llen("asynq:{default}:active") == 1)  # Go takes the id, and keeps it
    result = fastq.run("doctor", "--json")
    assert result.exit_code == 1
    bad = {
        (check["check"], check["seen"])
        for check in json.loads(result.stdout)["checks"]
        if check["level"] in ("problem", "warning") and check["check"] not in ("persistence", "slow commands")
    }
    assert bad == {
        ("ids without task", "2 in active, scheduled"),
        ("locks without task", "1"),
        ("served", "1 scheduled, and no server is running"),
    }
    assert fastq.run("doctor", "--repair", "--yes").exit_code == 0
    left = [key.decode() for key in db.scan_iter("asynq:*")]
    assert fastq.run("doctor", "--repair", "--yes").exit_code == 0
    assert set(left) >= {"asynq:queues"}
    assert not [key for key in db.scan_iter("asynq:{default}:*") if b":processed" not in key]

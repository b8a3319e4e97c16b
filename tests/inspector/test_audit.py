"""The audit: one line for each call that changes something, none for any other."""

import json
import logging
from typing import Any

import pytest

from fastq import Inspector, Limit, TaskNotFoundError
from fastq.common.states import TaskState
from fastq.inspector.audit import HAS_AUDIT
from fastq.inspector.jobs import Place, doing_all
from fastq.wire import keys
from tests.broker.harness import NOW_S
from tests.inspector.harness import Ask, Seeded

READING = {
    *("cluster_info", "all_cluster_nodes", "cluster_key_slot", "cluster_nodes", "redis_info"),
    *("queues", "get_queue_info", "get_queue_infos", "groups", "list_groups", "count_tasks"),
    *("lanes", "get_lane", "drain_lane", "pools"),
    *("history", "histories", "run_history"),
    *("list_tasks", "iter_tasks", "find_tasks", "export_tasks", "follow"),
    *(f"list_{state}_tasks" for state in ("active", "aggregating", "archived", "completed", "pending", "retry")),
    *(
        "list_scheduled_tasks",
        "get_task_info",
        "get_task_locks",
        "get_failed_attempts",
        "get_task_heads",
        "list_task_heads",
        "read_payload",
        "read_result",
        "check_import",
        "plan_move",
        "plan_retry",
    ),
    *("servers", "wait_for_server", "scheduler_entries", "scheduler_ticks", "list_scheduler_enqueue_events"),
    *("examine", "own_keys", "close"),
}
CALLS: dict[str, tuple[Any, ...]] = {
    "archive_task": ("default", "p1"),
    "run_task": ("default", "p1"),
    "update_task_payload": ("default", "s1", b"secret"),
    "delete_task": ("default", "p1"),
    "cancel_processing": ("a1",),
    "retry_task": ("default", "r1"),
    "retry_tasks": ("default",),
    "pause_queue": ("default",),
    "unpause_queue": ("default",),
    "set_limit": ("default", "acme", Limit(2)),
    "set_max_pending": ("default", 1000),
    "pause_lane": ("default", "acme"),
    "resume_lane": ("default", "acme"),
    "archive_all_tasks": ("default", "pending"),
    "run_all_tasks": ("default", "archived"),
    "delete_all_tasks": ("default", "pending"),
    "stop_server": ("web:1:id",),
    "quiet_server": ("web:1:id",),
    "import_tasks": ([],),
    "move_tasks": ("default", "other"),
    "drain_queue": ("default",),
    "delete_queue": ("default",),
    "delete_own_keys": (),
}
"""A call of each method that changes something; those of the doctor and of jobs have their own test."""


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "fastq.audit"]


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastq.audit")


def test_each_method_reads_or_is_audited() -> None:
    methods = {name for name in dir(Inspector) if not name.startswith("_") and callable(getattr(Inspector, name))}
    aliases = {name for name in methods if name.startswith(("delete_all_", "run_all_", "archive_all_"))}
    assert methods - READING - aliases == (CALLS.keys() | {"carry_out", "repair"}) - aliases


@pytest.mark.parametrize("method", CALLS)
def test_a_call_that_changes_something_is_one_line(
    method: str, ask: Ask, queue: Seeded, caplog: pytest.LogCaptureFixture
) -> None:
    queue.pend("p1", "p2")
    queue.add("scheduled", {"s1": NOW_S})
    queue.add("retry", {"r1": NOW_S})
    try:
        ask(method, *CALLS[method], **({"timeout": 0.01} if method == "drain_queue" else {}))
        outcome = "done"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        outcome = f"failed: {error}"
    (line,) = lines(caplog)
    assert (line["action"], line["outcome"]) == (method, outcome)
    assert line.keys() >= {"time", "user", "host", "pid", "redis"}
    assert "secret" not in str(line)


def test_a_line_says_what_was_asked_and_how_many_tasks_it_changed(
    ask: Ask, queue: Seeded, caplog: pytest.LogCaptureFixture
) -> None:
    queue.pend("p1", "p2", "p3")
    ask("delete_task", "default", "p1")
    ask("delete_all_pending_tasks", "default")
    with pytest.raises(TaskNotFoundError):
        ask("delete_task", "default", "p1")
    queue.pend("p4")
    ask("carry_out", doing_all("delete", Place("default", TaskState.PENDING), 1))
    first, second, third, fourth = [
        {name: value for name, value in line.items() if name not in ("time", "user", "host", "pid", "redis")}
        for line in lines(caplog)
    ]
    assert first == {"action": "delete_task", "queue": "default", "task_id": "p1", "outcome": "done"}
    assert second == {"action": "delete", "state": "pending", "queue": "default", "outcome": "done", "count": 2}
    assert third["outcome"] == "failed: " + str(TaskNotFoundError("default", "p1"))
    assert (fourth["action"], fourth["job"], fourth["count"]) == (
        "carry_out",
        "Delete all 1 pending tasks of default, for good?",
        1,
    )


def test_a_line_says_which_limit_was_set(ask: Ask, queue: Seeded, caplog: pytest.LogCaptureFixture) -> None:
    ask("set_limit", "default", "acme", Limit(2, "5/s"))
    (line,) = lines(caplog)
    assert (line["lane"], line["limit"]) == ("acme", "2, 5/s")


def test_what_is_refused_or_told_by_the_caller_has_no_line(
    ask: Ask, queue: Seeded, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="queue must"):
        ask("pause_queue", " ")
    told = HAS_AUDIT.set(True)
    ask("pause_queue", "default")
    HAS_AUDIT.reset(told)
    assert lines(caplog) == []
    assert queue.db.exists(keys.paused("default"))

"""Groups shared with a real asynq: whoever enqueues, whoever aggregates, each part is in one task."""

import json
from base64 import b64decode
from collections import Counter
from typing import Any

import pytest

from fastq import Client, Task
from fastq.wire.codec import decode_task_message
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.interop.peer import SECOND_NS, GoPeer
from tests.interop.records import GoTask
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

AGGREGATING = ("--group-aggregator", "tests.e2e.apps:aggregate", "--group-grace-period", "1", "--concurrency", "1")
HOUR_NS = 3600 * SECOND_NS


def nothing_is_left(view: View) -> bool:
    return not any(view.db.keys(f"asynq:{{default}}:{kind}") for kind in ("g:*", "groups", "aggregation_sets"))


def fastq_parts(payload: bytes) -> list[str]:
    """Return the parts of a task that a fastq worker's aggregator made."""
    parts: list[str] = json.loads(payload)[1]
    return parts


def test_fastq_aggregates_the_tasks_of_a_go_client(go: GoPeer, workers: Workers, view: View) -> None:
    for number in range(6):
        options: Any = {"group": f"g{number % 2}", "task_id": str(number), "unique_ns": HOUR_NS}
        go.enqueue(GoTask("t", f"{number}".encode(), {"n": str(number)}, options))
    assert {group["group"]: group["size"] for group in go.inspect("Groups", "default")} == {"g0": 3, "g1": 3}
    worker = workers.start(*AGGREGATING).is_ready()
    wait_until(lambda: view.size("completed") == 2)
    infos = [go.task_info("default", task_id) for task_id in view.ids("completed")]
    found = {tuple(fastq_parts(info.payload or b"")): info for info in infos}
    assert set(found) == {("0", "2", "4"), ("1", "3", "5")}
    for info in infos:
        assert (info.type, info.queue, info.group, info.max_retry) == ("whole", "default", "", 25)
        assert (info.timeout_ns, info.retention_ns, info.state) == (1800 * SECOND_NS, HOUR_NS, "completed")
    wait_until(lambda: nothing_is_left(view))
    assert go.inspect("Groups", "default") == []
    # The locks that a Go client took are gone with the tasks, where Go itself keeps them.
    wait_until(lambda: not view.db.keys("asynq:{default}:unique:*"))
    assert worker.stop() == 0, worker.text


def test_a_go_server_aggregates_the_tasks_of_a_fastq_client(go: GoPeer, redis_url: str, view: View) -> None:
    with Client(redis_url) as client:
        for number in range(5):
            options: dict[str, Any] = {"unique": 3600} if number == 0 else {}
            client.enqueue(
                Task("t", f"{number}".encode(), headers={"n": str(number)}, group="g", task_id=str(number), **options)
            )
    groups = {"grace_ns": SECOND_NS, "max_size": 3, "type": "bundle"}
    with go.server(groups=groups, task_check_ns=SECOND_NS // 100):
        executions = go.executions(finished=2)
    assert [run.type for run in executions] == ["bundle", "bundle"]
    bundles = [json.loads(run.payload or b"")["tasks"] for run in executions]
    assert [[b64decode(task["payload"]) for task in tasks] for tasks in bundles] == [[b"0", b"1", b"2"], [b"3", b"4"]]
    assert [task["headers"] for task in bundles[0]] == [{"n": str(number)} for number in range(3)]
    wait_until(lambda: nothing_is_left(view))


def test_go_and_fastq_aggregate_the_same_groups_at_once(
    go: GoPeer, workers: Workers, view: View, redis_url: str
) -> None:
    """Rounds of tasks come from both clients until both servers have aggregated some of them."""
    worker = workers.start(*AGGREGATING, "--group-max-size", "4").is_ready()
    sent: set[str] = set()
    groups = {"grace_ns": SECOND_NS, "max_size": 4, "type": "whole"}
    with go.server(groups=groups, task_check_ns=SECOND_NS // 100, concurrency=2), Client(redis_url) as client:
        for number in range(30):
            half = [f"{number}-{n}" for n in range(60)]
            results = client.enqueue_many(Task("t", f"f{part}".encode(), group=f"g{part[-1]}") for part in half)
            assert not any(isinstance(result, Exception) for result in results)
            go.enqueue_many(GoTask("t", f"o{part}".encode(), None, {"group": f"g{part[-1]}"}) for part in half)
            sent.update(f"{client_}{part}" for client_ in "fo" for part in half)
            wait_until(lambda: nothing_is_left(view))
            if by_fastq(view) and by_go(go):
                break
    parts = by_fastq(view) + by_go(go)
    assert (set(parts), set(parts.values())) == (sent, {1})
    assert by_fastq(view)
    assert by_go(go)
    assert worker.stop() == 0, worker.text


def by_fastq(view: View) -> Counter[str]:
    """Count the parts of what the worker's aggregator made, whoever runs it or has run it: it has a retention."""
    prefix = "asynq:{default}:t:"
    ids = [key.decode().removeprefix(prefix) for key in view.db.scan_iter(f"{prefix}*")]
    found = [view.fields(task_id).get(b"msg") for task_id in ids]  # Go's own may be done with meanwhile
    messages = [decode_task_message(message) for message in found if message]
    return Counter(part for message in messages if message.retention for part in fastq_parts(message.payload))


def by_go(go: GoPeer) -> Counter[str]:
    """Count the parts of what the Go server's aggregator made."""
    calls = go.request("aggregations", count=0)
    return Counter(b64decode(task["payload"]).decode() for call in calls for task in call["tasks"])

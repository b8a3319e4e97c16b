"""The peer tells the truth about asynq.Client and asynq.Inspector, and about mistakes."""

import hashlib
import json
import re
import signal
import time
from datetime import UTC, datetime
from os import kill
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.interop.keyspace import dump
from tests.interop.peer import SECOND_NS, GoPeer
from tests.interop.records import GoOptions, GoTask, GoTaskInfo, PeerError
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.interop

GOLDEN = Path(__file__).parent.parent / "golden" / "keyspace.json"
GO_MOD = Path(__file__).parent / "peer" / "go.mod"
HOUR_NS = 3600 * SECOND_NS


def golden_keys(name: str) -> dict[str, dict[str, Any]]:
    cases = json.loads(GOLDEN.read_text())["cases"]
    (case,) = (case for case in cases if case["name"] == name)
    return {key["key"]: key for key in case["steps"][0]["keys"]}


def test_the_binary_has_the_pinned_asynq(go: GoPeer) -> None:
    pinned = re.search(r"hibiken/asynq (\S+)", GO_MOD.read_text())
    assert pinned is not None
    assert go.request("version")["asynq"] == pinned[1]


def test_one_enqueue_leaves_the_keyspace_of_the_golden_run(go: GoPeer, db: redis.Redis) -> None:
    before = time.time_ns()
    go.enqueue(GoTask("email:send", b'{"id":1}', options={"task_id": "id-1"}))
    found, golden = dump(db), golden_keys("enqueue_immediate")
    assert {key: (entry["type"], entry["ttl"]) for key, entry in found.items()} == {
        key: (entry["type"], entry["ttl"]) for key, entry in golden.items()
    }
    assert found["asynq:queues"]["value"] == {b"default"}
    assert found["asynq:{default}:pending"]["value"] == [b"id-1"]
    task = found["asynq:{default}:t:id-1"]["value"]
    fields = golden["asynq:{default}:t:id-1"]["fields"]
    assert task.keys() == {name.encode() for name in fields}
    assert task[b"msg"].hex() == fields["msg"]["hex"]
    assert task[b"state"] == b"pending"
    assert before <= int(task[b"pending_since"]) <= time.time_ns()


EVERY_OPTION: GoOptions = {
    "queue": "critical",
    "task_id": "every-option",
    "max_retry": 7,
    "timeout_ns": 90 * SECOND_NS,
    "deadline": "2300-01-02T03:04:05Z",
    "unique_ns": HOUR_NS,
    "process_at": "2200-01-02T03:04:05.123456789Z",
    "retention_ns": 2 * HOUR_NS,
    "group": "g",
}


def unix_ns(year: int) -> int:
    return int(datetime(year, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * SECOND_NS


@pytest.mark.parametrize("given_to", ["options", "task_options"])
def test_every_option_arrives(go: GoPeer, given_to: str) -> None:
    options = {given_to: EVERY_OPTION}
    returned = go.enqueue(GoTask("type", b"\x00\xff", {"k": "é", "": ""}, **options))
    assert returned == GoTaskInfo(
        id="every-option",
        queue="critical",
        type="type",
        payload=b"\x00\xff",
        headers={"k": "é", "": ""},
        state="scheduled",
        max_retry=7,
        retried=0,
        last_err="",
        last_failed_at_ns=None,
        timeout_ns=90 * SECOND_NS,
        deadline_ns=unix_ns(2300),
        group="g",
        next_process_at_ns=unix_ns(2200) + 123456789,
        is_orphaned=False,
        retention_ns=2 * HOUR_NS,
        completed_at_ns=None,
        result=None,
    )
    read = go.task_info("critical", "every-option")
    assert vars(read) == {**vars(returned), "next_process_at_ns": unix_ns(2200)}


@pytest.mark.parametrize("moment", [4102444800, 4102444800.5, "2100-01-01T00:00:00Z"])
def test_a_time_may_be_unix_seconds_or_rfc3339(go: GoPeer, moment: float | str) -> None:
    info = go.enqueue(GoTask("type", options={"deadline": moment}))
    assert info.deadline_ns == 4102444800 * SECOND_NS


def test_process_in_counts_from_now(go: GoPeer) -> None:
    before = time.time_ns()
    info = go.enqueue(GoTask("type", options={"process_in_ns": HOUR_NS}))
    assert info.next_process_at_ns is not None
    assert before <= info.next_process_at_ns - HOUR_NS <= time.time_ns()


def test_a_nil_payload_is_not_an_empty_one(go: GoPeer, db: redis.Redis) -> None:
    once: GoOptions = {"unique_ns": HOUR_NS}
    assert go.enqueue(GoTask("type", None, options=once)).payload is None
    assert go.enqueue(GoTask("type", b"", options=once)).payload == b""
    locks = set(db.scan_iter(match="asynq:{default}:unique:*"))
    empty = hashlib.md5(b"").hexdigest()
    assert locks == {b"asynq:{default}:unique:type:", f"asynq:{{default}}:unique:type:{empty}".encode()}


def test_errors_have_their_class(go: GoPeer) -> None:
    once = GoTask("type", b"p", options={"unique_ns": HOUR_NS})
    named = GoTask("type", options={"task_id": "one"})
    blank = GoTask("type", options={"queue": " "})
    outcomes = go.enqueue_many([once, once, named, named, blank])
    assert [outcome.error_class for outcome in outcomes if isinstance(outcome, PeerError)] == [
        "duplicate",
        "id_conflict",
        "other",
    ]
    assert str(outcomes[4]) == "other: queue name must contain one or more characters"
    for method, args, error_class in [
        ("GetTaskInfo", ("default", "none"), "task_not_found"),
        ("GetTaskInfo", ("none", "none"), "queue_not_found"),
        ("DeleteQueue", ("default", False), "queue_not_empty"),
    ]:
        with pytest.raises(PeerError) as caught:
            go.inspect(method, *args)
        assert caught.value.error_class == error_class


@pytest.mark.parametrize(
    ("op", "params", "text"),
    [
        ("fly", {}, 'unknown op "fly"'),
        ("enqueue", {"type": "t", "optons": {}}, 'unknown field "optons"'),
        ("inspect", {"method": "Close", "args": []}, 'no method "Close"'),
        ("inspect", {"method": "GetTaskInfo", "args": ["q"]}, "1 arguments given, 2 taken"),
        ("inspect", {"method": "PauseQueue", "args": [7]}, "cannot unmarshal number"),
        ("server_stop", {"name": "none"}, 'no server "none"'),
    ],
)
def test_a_mistaken_request_is_an_error_of_its_own_class(
    go: GoPeer, op: str, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(PeerError, match=re.escape(text)) as caught:
        go.request(op, **params)
    assert caught.value.error_class == "bad_request"


INSPECTIONS: dict[str, tuple[object, ...]] = {
    **{f"List{state}Tasks": ("default", {"page": 1, "size": 5}) for state in ("Pending", "Active", "Scheduled")},
    **{f"List{state}Tasks": ("default",) for state in ("Retry", "Archived", "Completed")},
    "ListAggregatingTasks": ("default", "g"),
    **{f"RunAll{state}Tasks": ("default",) for state in ("Scheduled", "Retry", "Archived")},
    "RunAllAggregatingTasks": ("default", "g"),
    **{f"ArchiveAll{state}Tasks": ("default",) for state in ("Pending", "Scheduled", "Retry")},
    "ArchiveAllAggregatingTasks": ("default", "g"),
    **{f"DeleteAll{state}Tasks": ("default",) for state in ("Pending", "Scheduled", "Retry", "Archived", "Completed")},
    "DeleteAllAggregatingTasks": ("default", "g"),
    "GetTaskInfo": ("default", "one"),
    "RunTask": ("default", "one"),
    "ArchiveTask": ("default", "one"),
    "DeleteTask": ("default", "one"),
    "UpdateTaskPayload": ("default", "one", b"new"),
    "CancelProcessing": ("one",),
    "Queues": (),
    "GetQueueInfo": ("default",),
    "History": ("default", 3),
    "Groups": ("default",),
    "PauseQueue": ("default",),
    "UnpauseQueue": ("default",),
    "DeleteQueue": ("default", True),
    "Servers": (),
    "SchedulerEntries": (),
    "ListSchedulerEnqueueEvents": ("entry", {"page": 1, "size": 5}),
    "ClusterKeySlot": ("default",),
    "ClusterNodes": ("default",),
}
REFUSED = {
    "RunTask": "already in pending state",
    "UpdateTaskPayload": "not in scheduled state",
    "UnpauseQueue": "is not paused",
    "ClusterKeySlot": "cluster support disabled",
    "ClusterNodes": "cluster support disabled",
}


@pytest.mark.parametrize("method", INSPECTIONS)
def test_a_method_of_the_inspector_answers(go: GoPeer, method: str) -> None:
    go.enqueue(GoTask("type", options={"task_id": "one"}))
    if method in REFUSED:
        with pytest.raises(PeerError, match=REFUSED[method]) as caught:
            go.inspect(method, *INSPECTIONS[method])
        assert caught.value.error_class == "other"
    else:
        go.inspect(method, *INSPECTIONS[method])


def test_no_method_of_the_inspector_is_left_out(go: GoPeer) -> None:
    assert set(go.request("inspect_methods")) == INSPECTIONS.keys()


def test_lists_come_in_pages(go: GoPeer) -> None:
    go.enqueue_many(GoTask("type", options={"task_id": f"id-{number}"}) for number in range(5))
    second = go.inspect("ListPendingTasks", "default", {"page": 2, "size": 2})
    assert [GoTaskInfo.from_json(task).id for task in second] == ["id-2", "id-3"]


def test_queue_facts_are_whole(go: GoPeer) -> None:
    go.enqueue(GoTask("type"))
    facts = go.inspect("GetQueueInfo", "default")
    assert (facts["queue"], facts["size"], facts["pending"], facts["paused"]) == ("default", 1, 1, False)
    assert facts["latency_ns"] > 0
    assert abs(facts["timestamp_ns"] - time.time_ns()) < HOUR_NS
    (today,) = go.inspect("History", "default", 1)
    assert (today["queue"], today["processed"], today["failed"]) == ("default", 0, 0)


def test_decode_shows_what_go_reads_and_leaves_no_trace(go: GoPeer, db: redis.Redis) -> None:
    go.enqueue(GoTask("type", b"\x00p", {"k": "v"}, options={**EVERY_OPTION, "group": "g"}))
    message = db.hget("asynq:{critical}:t:every-option", "msg")
    assert isinstance(message, bytes)
    before = dump(db)
    read = go.task_info("critical", "every-option")
    assert vars(go.decode(message)) == {**vars(read), "state": "archived", "next_process_at_ns": None}
    with pytest.raises(PeerError, match="could not decode task message"):
        go.decode(b"\xff\xff")
    assert dump(db) == before


def test_a_dead_peer_says_so(go: GoPeer) -> None:
    kill(go.pid, signal.SIGKILL)
    with pytest.raises(ConnectionError, match="ended with code -9"):
        go.request("version")


def test_small_benchmarks_add_up(go: GoPeer) -> None:
    filled = go.request("bench_enqueue", n=50, goroutines=4, queue="bench", payload_size=100)
    assert filled["n"] == 50
    assert filled["tasks_per_second"] == pytest.approx(50 / filled["seconds"])
    assert go.inspect("GetQueueInfo", "bench")["pending"] == 50
    limit_ns = round(PATIENCE_S) * SECOND_NS
    worked = go.request("bench_process", n=50, concurrency=4, queue="bench", timeout_ns=limit_ns)
    assert worked["n"] == 50
    facts = go.inspect("GetQueueInfo", "bench")
    assert (facts["pending"], facts["processed_total"]) == (0, 50)

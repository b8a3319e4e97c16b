"""What the inspectors tell of tasks, against what was put there."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import Client, FailedAttempt, Inspector, QueueNotFoundError, TaskLocks, TaskNotFoundError, TaskState
from fastq.broker.inspect import tasks as inspect_tasks
from fastq.broker.inspect.tasks import update_payload
from fastq.broker.transport.open import open_broker
from fastq.errors import TaskStateError
from fastq.inspector import TaskFilter
from fastq.inspector import tasks as inspector_tasks
from fastq.wire import keys
from fastq.wire.attempts import AttemptRecord
from fastq.wire.codec import decode_task_message
from tests.broker.harness import NOW_S, message
from tests.inspector.harness import Ask, Seeded

HOUR = timedelta(hours=1)


def ids(infos: list[Any]) -> list[str]:
    return [info.id for info in infos]


# Heads --------------------------------------------------------------------------------------------------------------


def test_heads_have_the_beginning_of_payload_result_and_error_and_all_else(ask: Ask, queue: Seeded) -> None:
    fields: dict[str, Any] = {"retry": 7, "retried": 2, "group_key": "g", "headers": {"a": "1"}, "deadline": NOW_S}
    error = "\u00e9E" * 400
    queue.add("completed", {"large": NOW_S}, payload=b"p" * 300_000, error_msg=error, **fields)
    queue.add("completed", {"small": NOW_S + 1}, payload=b"p" * 10, error_msg="E", **fields)
    queue.add("completed", {"none": NOW_S + 2}, payload=b"", **fields)
    queue.db.hset(keys.task("default", "large"), "result", b"r" * 5_000)
    large, small, none = ask("list_task_heads", "default", "completed", most_bytes=1_000)
    whole = ask("get_task_info", "default", "large")
    assert (large.payload, large.payload_size) == (b"p" * 1_000, 300_000)
    assert (large.result, large.result_size, large.is_cut) == (b"r" * 1_000, 5_000, True)
    assert large.last_err == error[:666]  # 999 bytes: the next character has two
    assert (large.id, large.type, large.retried, large.headers, large.deadline, large.group) == (
        whole.id, whole.type, whole.retried, whole.headers, whole.deadline, whole.group,
    )  # fmt: skip
    assert (small.payload, small.payload_size, small.is_cut) == (b"p" * 10, 10, False)
    assert (none.payload, none.payload_size, none.result) == (b"", 0, None)
    heads = ask("get_task_heads", "default", ["small", "nothing", "large"], 0)
    assert [head and (head.payload, head.payload_size) for head in heads] == [(b"", 10), None, (b"", 300_000)]
    with pytest.raises(QueueNotFoundError):
        ask("get_task_heads", "nowhere", ["x"], 0)


def test_heads_are_small_whatever_the_type_and_the_headers(ask: Ask, queue: Seeded) -> None:
    headers = {f"h{number}": "v" * 90 for number in range(100)} | {"large": "v" * 1_000_000}
    queue.add("archived", {"x": NOW_S}, type="t" * 999 + "\u00e9" * 500_000, headers=headers, payload=b"p" * 10)
    (head,) = ask("list_task_heads", "default", "archived", most_bytes=100)
    assert (head.type, head.payload, head.id) == ("t" * 999, b"p" * 10, "x")
    assert 5 < len(head.headers) <= 10
    assert head.headers.items() <= headers.items()
    (head,) = ask("get_task_heads", "default", ["x"], 10_000)
    assert 90 < len(head.headers) <= 101
    assert "large" not in head.headers


def test_a_broken_message_is_cut_like_any_bytes(ask: Ask, queue: Seeded) -> None:
    queue.add("archived", {"x": NOW_S}, payload=b"p")
    for broken in (b"\x12\xff" * 2_000, b"\xff" * 3_000, b"\x0f" * 2_000, b"\x0a\x01t\x12\xff\xff\x7f" + b"p" * 2_000):
        queue.db.hset(keys.task("default", "x"), "msg", broken)
        [head] = ask("get_task_heads", "default", ["x"], 1_000)
        assert len(head.payload) <= 1_000, broken[:10]
        assert head.type == ask("get_task_info", "default", "x").type


def test_a_payload_and_a_result_are_read_in_parts(ask: Ask, queue: Seeded) -> None:
    payload, result = bytes(range(256)) * 1_000, b"0123456789"
    queue.add("completed", {"x": NOW_S}, payload=payload, headers={"a": "1"})
    queue.db.hset(keys.task("default", "x"), "result", result)
    parts = [ask("read_payload", "default", "x", start, 70_001) for start in range(0, 300_000, 70_001)]
    assert b"".join(parts) == payload
    assert ask("read_result", "default", "x", 8, 5) == b"89"
    assert ask("read_payload", "default", "x", len(payload), 5) == b""
    with pytest.raises(TaskNotFoundError):
        ask("read_payload", "default", "y", 0, 5)


# One task -----------------------------------------------------------------------------------------------------------


def test_a_task_is_described_with_all_that_its_message_says(ask: Ask, queue: Seeded) -> None:
    fields: dict[str, Any] = {
        "payload": b"\x00p",
        "retry": 7,
        "retried": 2,
        "error_msg": "E: boom",
        "last_failed_at": NOW_S,
        "timeout": 30,
        "deadline": NOW_S + 60,
        "retention": 90,
        "completed_at": NOW_S + 1,
        "group_key": "g",
        "headers": {"a": "1"},
    }
    queue.add("completed", {"id-1": NOW_S}, **fields)
    queue.db.hset(keys.task("default", "id-1"), "result", b"r\xff")
    info = ask("get_task_info", "default", "id-1")
    assert info.state is TaskState.COMPLETED
    assert (info.id, info.queue, info.type, info.payload, info.result) == ("id-1", "default", "t", b"\x00p", b"r\xff")
    assert (info.max_retry, info.retried, info.last_err, info.group) == (7, 2, "E: boom", "g")
    assert (info.timeout, info.retention) == (timedelta(seconds=30), timedelta(seconds=90))
    assert (info.deadline, info.last_failed_at) == (at(NOW_S + 60), at(NOW_S))
    assert (info.completed_at, info.headers) == (at(NOW_S + 1), {"a": "1"})
    assert (info.next_process_at, info.is_orphaned) == (None, False)


def at(unix_s: int) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)


def test_how_often_a_task_was_lost_is_told_of_one_and_of_many(ask: Ask, queue: Seeded) -> None:
    queue.add("retry", {"lost": NOW_S, "never": NOW_S + 1, "garbage": NOW_S + 2})
    for task_id, count in (("lost", "2"), ("garbage", "much")):
        queue.db.hset(keys.task("default", task_id), "lost", count)
    assert ask("get_task_info", "default", "lost").lost == 2
    assert [info.lost for info in ask("list_retry_tasks", "default")] == [2, 0, 0]


def test_the_failed_attempts_of_a_task_are_told_with_the_tracebacks_that_are_kept(ask: Ask, queue: Seeded) -> None:
    queue.add("retry", {"a": NOW_S, "never": NOW_S})
    records = [
        AttemptRecord(1, NOW_S * 1000, NOW_S * 1000 + 250, "web-1:7", "ValueError: no", "ab" * 8),
        AttemptRecord(2, 0, NOW_S * 1000 + 500, "", "LeaseExpiredError: lost"),
        AttemptRecord(2, NOW_S * 1000, NOW_S * 1000, "web-1:7", "KeyError", "cd" * 8),
    ]
    queue.db.hset(keys.task("default", "a"), "attempts", b"".join(record.encode() for record in records))
    queue.db.set(keys.error("default", "ab" * 8), "Traceback ✗\napp.ValueError")
    first, lost, last = ask("get_failed_attempts", "default", "a")
    traceback = "Traceback ✗\napp.ValueError: no"
    assert first == FailedAttempt(
        1, at(NOW_S), at(NOW_S) + timedelta(seconds=0.25), "web-1:7", "ValueError: no", "ab" * 8, traceback
    )
    assert (lost.started_at, lost.server, lost.fingerprint, lost.traceback) == (None, "", "", None)
    assert (last.fingerprint, last.traceback) == ("cd" * 8, None)
    assert [one.error_class for one in (first, lost, last)] == ["ValueError", "LeaseExpiredError", "KeyError"]
    assert ask("get_failed_attempts", "default", "never") == []


@pytest.mark.parametrize("state", ["scheduled", "retry"])
def test_a_task_that_waits_for_its_time_says_when_that_is(ask: Ask, queue: Seeded, state: str) -> None:
    queue.add(state, {"id-1": NOW_S + 5})
    assert ask("get_task_info", "default", "id-1").next_process_at == at(NOW_S + 5)
    assert ask("list_tasks", "default", state)[0].next_process_at == at(NOW_S + 5)


def test_a_pending_task_is_processed_next_now_and_an_aggregating_one_at_no_time(ask: Ask, queue: Seeded) -> None:
    queue.pend("p")
    queue.group("g", {"g1": NOW_S})
    before = datetime.now(UTC)
    moment = ask("get_task_info", "default", "p").next_process_at
    assert before <= moment <= datetime.now(UTC)
    assert ask("get_task_info", "default", "g1").next_process_at is None


def test_who_has_a_task_is_told(ask: Ask, queue: Seeded) -> None:
    lock = keys.unique("default", "t", b"")
    queue.activate("ours", until_s=NOW_S + 30, unique_key=lock)
    queue.activate("go's", until_s=NOW_S + 30, unique_key="mine")  # may be any key, which is not looked at
    queue.put("waits", "pending", unique_key=lock)
    queue.db.zadd(keys.lease("default"), {"go's": NOW_S + 30})
    queue.db.set("mine", "x")
    assert ask("get_task_locks", "default", "ours") == TaskLocks(at(NOW_S + 30), False, True, "", None)
    assert ask("get_task_locks", "default", "go's") == TaskLocks(at(NOW_S + 30), True, False, "", None)
    queue.db.set(lock, "ours")
    assert ask("get_task_locks", "default", "waits") == TaskLocks(None, False, True, "ours", None)
    before = datetime.now(UTC)
    queue.db.expire(lock, 3600)
    until = ask("get_task_locks", "default", "waits").locked_until
    assert before + HOUR <= until + timedelta(seconds=1)
    assert until <= datetime.now(UTC) + HOUR
    queue.db.zadd(keys.lease("default"), {"ours": float("inf")})
    assert ask("get_task_locks", "default", "ours").leased_until.year == 9999


@pytest.mark.parametrize(("times", "run_at", "latest"), [(":", 0, 0), (f"{NOW_S + 5}:{NOW_S + 9}", 5, 9)])
def test_what_is_to_follow_a_run_by_its_key_is_told(
    ask: Ask, queue: Seeded, times: str, run_at: int, latest: int
) -> None:
    queue.activate("sync:42", until_s=NOW_S + 30)
    assert ask("get_task_locks", "default", "sync:42").follow_up_size is None
    newest = message("sync:42", payload=b"four")
    queue.db.hset(keys.again("default"), "sync:42", f"{times}:".encode() + newest)
    locks = ask("get_task_locks", "default", "sync:42")
    expected = at(NOW_S + run_at) if run_at else None, at(NOW_S + latest) if latest else None
    assert (locks.follow_up_size, locks.follow_up_at, locks.follow_up_latest) == (4, *expected)
    queue.db.hset(keys.again("default"), "sync:42", "of another form")
    assert ask("get_task_locks", "default", "sync:42").follow_up_size is None


@pytest.mark.parametrize("method", ["get_task_info", "get_task_locks", "get_failed_attempts"])
def test_a_task_that_is_not_there_is_not_found(ask: Ask, queue: Seeded, method: str) -> None:
    with pytest.raises(TaskNotFoundError, match=r"queue='default', task_id='nosuch'"):
        ask(method, "default", "nosuch")
    with pytest.raises(QueueNotFoundError, match="nosuch"):
        ask(method, "nosuch", "id-1")


@pytest.mark.parametrize(("task_id", "kind"), [("", ValueError), (" \t", ValueError), (7, TypeError)])
@pytest.mark.parametrize("method", ["get_task_info", "get_task_locks", "get_failed_attempts", "update_task_payload"])
def test_a_blank_task_id_is_refused(ask: Ask, queue: Seeded, method: str, task_id: Any, kind: type[Exception]) -> None:
    args = (b"",) if method == "update_task_payload" else ()
    with pytest.raises(kind, match="task_id must"):
        ask(method, "default", task_id, *args)


def test_numbers_beyond_what_python_has_are_shown_as_the_nearest(ask: Ask, queue: Seeded) -> None:
    most = 2**63 - 1
    queue.put("id-1", "scheduled", timeout=most, retention=-most, deadline=most, last_failed_at=-most)
    queue.db.zadd(keys.scheduled("default"), {"id-1": 1e18})
    info = ask("list_scheduled_tasks", "default")[0]
    latest, earliest = (bound.replace(tzinfo=UTC) for bound in (datetime.max, datetime.min))
    assert (info.timeout, info.retention) == (timedelta.max, timedelta.min)
    assert (info.deadline, info.last_failed_at, info.next_process_at) == (latest, earliest, latest)


# A page -------------------------------------------------------------------------------------------------------------


def fill(queue: Seeded, state: str, names: str) -> None:
    if state == "pending":
        queue.pend(*names)
    elif state == "active":
        queue.activate(*names)
    elif state == "aggregating":
        queue.group("g", {name: NOW_S + rank for rank, name in enumerate(names)})
    else:
        queue.add(state, {name: NOW_S + rank for rank, name in enumerate(names)})


def args_of(state: str) -> dict[str, Any]:
    return {"group": "g"} if state == "aggregating" else {}


@pytest.mark.parametrize("state", list(TaskState))
def test_pages_go_from_the_oldest_to_the_newest(ask: Ask, queue: Seeded, state: str) -> None:
    fill(queue, state, "abcde")
    pages = [ask("list_tasks", "default", state, page=n, page_size=2, **args_of(state)) for n in (1, 2, 3, 4)]
    assert [ids(page) for page in pages] == [["a", "b"], ["c", "d"], ["e"], []]
    assert {info.state for page in pages for info in page} == {TaskState(state)}
    named = ask(
        f"list_{state.value}_tasks" if isinstance(state, TaskState) else "", "default", *args_of(state).values()
    )
    assert ids(named) == list("abcde")


def test_a_page_has_30_tasks_unless_told_otherwise(ask: Ask, queue: Seeded) -> None:
    queue.add("archived", {f"{n:03}": NOW_S for n in range(40)})
    assert len(ask("list_archived_tasks", "default")) == 30
    assert ids(ask("list_archived_tasks", "default", page=2)) == [f"{n:03}" for n in range(30, 40)]


def test_a_page_of_many_and_of_big_tasks_is_whole(ask: Ask, queue: Seeded) -> None:
    queue.add("archived", {f"{n:04}": NOW_S for n in range(901)}, payload=b"x" * 2000)
    assert ids(ask("list_archived_tasks", "default", page_size=1000)) == [f"{n:04}" for n in range(901)]


def test_big_tasks_are_read_a_few_at_a_time(queue: Seeded, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_tasks, "MAX_READ_BYTES", 1_000)
    queue.add("archived", dict.fromkeys("abcde", NOW_S), payload=b"x" * 400)
    queue.db.hset(keys.task("default", "d"), "result", b"x" * 600)
    broker = open_broker(url)
    assert len(broker.run(inspect_tasks.read_tasks("default", [*"abcde"]))) == 3
    assert len(broker.run(inspect_tasks.read_tasks("default", [*"de"]))) == 1
    assert [found.message is None for found in broker.drive(inspect_tasks.read_all_tasks("default", [*"abxde"]))] == [
        False,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("page", "kind", "text"),
    [
        ({"page": 0}, ValueError, "page must be from 1 to 1000000000000: 0"),
        ({"page": -1}, ValueError, "page must be from 1 to 1000000000000: -1"),
        ({"page": 10**13}, ValueError, "page must be"),
        ({"page_size": 0}, ValueError, "page_size must be from 1 to 10000: 0"),
        ({"page_size": 10_001}, ValueError, "page_size must be from 1 to 10000: 10001"),
        ({"page_size": 2.0}, TypeError, "page_size must be an int, not float: 2.0"),
        ({"page": True}, TypeError, "page must be an int, not bool: True"),
    ],
)
def test_a_page_out_of_range_is_refused(
    ask: Ask, queue: Seeded, page: dict[str, Any], kind: type[Exception], text: str
) -> None:
    for method in (("list_pending_tasks", "default"), ("list_scheduler_enqueue_events", "entry")):
        with pytest.raises(kind, match=text):
            ask(*method, **page)


@pytest.mark.parametrize(
    ("state", "group", "kind", "text"),
    [
        ("running", None, ValueError, "state must be one of active, pending, .*, not 'running'"),
        (None, None, ValueError, "not None"),
        ("aggregating", None, TypeError, "group must be a str"),
        ("aggregating", " ", ValueError, "group must contain"),
        ("pending", "g", ValueError, "group='g' goes with the state aggregating only, not with pending"),
    ],
)
@pytest.mark.parametrize("method", ["list_tasks", "iter_tasks"])
def test_a_state_or_group_that_is_none_is_refused(
    ask: Ask, queue: Seeded, method: str, state: Any, group: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        ask(method, "default", state, group=group)


@pytest.mark.parametrize("method", ["list_tasks", "iter_tasks"])
def test_tasks_of_a_queue_that_is_not_listed_are_not_found(ask: Ask, db: Redis, method: str) -> None:
    with pytest.raises(QueueNotFoundError, match="nosuch"):
        ask(method, "nosuch", "pending")


def test_a_group_that_is_not_there_has_no_tasks(ask: Ask, queue: Seeded) -> None:
    assert ask("list_aggregating_tasks", "default", "nosuch") == []


def test_an_active_task_without_a_lease_that_goes_on_is_orphaned(ask: Ask, queue: Seeded) -> None:
    queue.activate("held")
    queue.activate("expired", until_s=int(time.time()) - 1)
    queue.activate("unheld")
    queue.db.zrem(keys.lease("default"), "unheld")
    orphaned = {info.id: info.is_orphaned for info in ask("list_active_tasks", "default")}
    assert orphaned == {"held": False, "expired": True, "unheld": True}


def test_ids_without_a_task_or_of_another_state_are_left_out(ask: Ask, queue: Seeded) -> None:
    queue.add("retry", {"a": 1, "dangling": 2, "moved": 3, "odd": 4, "no-hash": 5, "z": 6})
    queue.db.delete(keys.task("default", "dangling"), keys.task("default", "no-hash"))
    queue.db.set(keys.task("default", "no-hash"), "text")
    queue.db.hset(keys.task("default", "moved"), "state", "pending")
    queue.db.hset(keys.task("default", "odd"), "state", "dreaming")
    assert ids(ask("list_retry_tasks", "default")) == ["a", "z"]
    with pytest.raises(TaskNotFoundError):
        ask("get_task_info", "default", "odd")


def test_a_message_that_cannot_be_decoded_is_shown_as_the_archive_would_have_it(ask: Ask, queue: Seeded) -> None:
    queue.pend("good", "bad")
    queue.db.hset(keys.task("default", "bad"), "msg", b"\xff\xff")
    good, bad = ask("list_pending_tasks", "default")
    assert (good.id, bad.id, bad.queue) == ("good", "bad", "default")
    assert (bad.type, bad.payload) == ("fastq:undecodable", b"\xff\xff")
    assert bad.last_err.startswith("InvalidMessageError: ")
    assert ask("get_task_info", "default", "bad") == bad or bad.next_process_at is not None


# All tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(TaskState))
def test_all_tasks_come_in_the_order_of_the_pages(
    ask: Ask, queue: Seeded, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector_tasks, "IDS_A_CALL", 3)
    fill(queue, state, "abcdefg")
    assert ids(ask("iter_tasks", "default", state, page_size=2, **args_of(state))) == list("abcdefg")


def test_no_tasks_are_gone_through_where_there_are_none(ask: Ask, queue: Seeded) -> None:
    assert ask("iter_tasks", "default", "archived") == []


def test_tasks_may_go_while_all_are_gone_through(url: str, queue: Seeded) -> None:
    queue.add("archived", {f"{n:03}": NOW_S for n in range(50)})
    seen = []
    with Inspector(url) as inspector:
        for info in inspector.iter_tasks("default", "archived", page_size=5):
            seen.append(info.id)
            queue.db.zrem(keys.archived("default"), info.id)
            queue.db.delete(keys.task("default", info.id))
            if info.id == "010":  # which goes with tasks that are still to come, and brings another
                queue.db.delete(*(keys.task("default", f"{n:03}") for n in range(40, 50)))
                queue.add("archived", {"later": NOW_S + 1})
    assert seen == [f"{n:03}" for n in range(40)]


def test_a_task_that_comes_while_the_ids_are_read_is_not_counted_twice() -> None:
    flow = inspector_tasks.Listing.of("default", "pending", None).ids()
    next(flow)  # is the queue listed?
    flow.send(True)  # the newest ids
    full = inspector_tasks.IDS_A_CALL
    operation: Any = flow.send([b"f", b"e", b"d", b"c", *[b"x"] * (full - 4)])
    assert operation.args == (full, 2 * full - 1)
    with pytest.raises(StopIteration) as end:
        flow.send([b"c", b"b", b"a"])
    assert end.value.value == [b"a", b"b", b"x", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize("page_size", [0, 10_001])
def test_a_piece_of_all_tasks_has_the_size_of_a_page(ask: Ask, queue: Seeded, page_size: int) -> None:
    with pytest.raises(ValueError, match=f"page_size must be from 1 to 10000: {page_size}"):
        ask("iter_tasks", "default", "pending", page_size=page_size)


# A new payload ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("payload", "stored"), [(b"\x00new", b"\x00new"), ({"n": 1}, b'{"n":1}'), (None, b"")])
def test_a_scheduled_task_gets_another_payload_and_keeps_the_rest(
    ask: Ask, queue: Seeded, payload: Any, stored: bytes
) -> None:
    queue.add("scheduled", {"id-1": NOW_S}, payload=b"old", headers={"h": "1"}, unique_key="lock")
    before = decode_task_message(queue.task("id-1")["msg"])
    ask("update_task_payload", "default", "id-1", payload)
    assert decode_task_message(queue.task("id-1")["msg"]) == before.replace(payload=stored)
    assert queue.places() == {"scheduled": ["id-1"]}


@pytest.mark.parametrize("state", ["pending", "active", "retry", "archived", "completed", "aggregating"])
def test_only_a_scheduled_task_gets_another_payload(ask: Ask, queue: Seeded, state: str) -> None:
    fill(queue, state, "a")
    before = queue.task("a")
    with pytest.raises(TaskStateError, match=f"cannot update a task in state '{state}'.*queue='default', task_id='a'"):
        ask("update_task_payload", "default", "a", b"new")
    assert queue.task("a") == before


def test_a_task_that_is_not_there_gets_no_payload(ask: Ask, queue: Seeded) -> None:
    with pytest.raises(TaskNotFoundError, match="nosuch"):
        ask("update_task_payload", "default", "nosuch", b"")
    with pytest.raises(QueueNotFoundError, match="none"):
        ask("update_task_payload", "none", "id-1", b"")
    with pytest.raises(TypeError, match="payload of type object"):
        ask("update_task_payload", "default", "id-1", object())


def test_a_payload_is_not_written_over_another_ones_change(queue: Seeded, url: str) -> None:
    queue.add("scheduled", {"id-1": NOW_S}, payload=b"old")
    read = queue.task("id-1")["msg"]
    queue.put("id-1", "scheduled", payload=b"another's")
    assert open_broker(url).run(update_payload("default", "id-1", read, b"new")) == -1
    assert decode_task_message(queue.task("id-1")["msg"]).payload == b"another's"


def test_the_newest_come_first_if_they_are_asked_for(ask: Ask, queue: Seeded) -> None:
    queue.add("archived", {f"t{n}": NOW_S + n for n in range(5)})

    def ids(state: str, **more: Any) -> list[str]:
        return [info.id for info in ask("list_tasks", "default", state, newest_first=True, **more)]

    assert ids("archived", page_size=2) == ["t4", "t3"]
    assert ids("archived", page_size=2, page=3) == ["t0"]


def test_large_active_tasks_are_searched_some_at_a_time(url: str, db: Redis) -> None:
    with Client(url) as client:
        for n in range(6):
            client.enqueue("t", b"x" * 200_000, task_id=f"a{n}")
    for n in range(6):
        db.lmove(keys.pending("default"), keys.active("default"), "RIGHT", "LEFT")
        db.hset(keys.task("default", f"a{n}"), "state", "active")
    looked: list[int] = []
    with Inspector(url) as inspector:
        found = inspector.find_tasks(
            "default", "active", TaskFilter(), progress=lambda progress: looked.append(progress.done)
        )
        assert [info.id for info in found] == [f"a{n}" for n in range(6)]
    assert looked == [2, 4, 6]

"""What the inspectors do to all tasks of a state, and to whole queues; in pieces, with nothing left over."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from fastq import BrokerError, Client, QueueNotEmptyError, QueueNotFoundError, TaskState
from fastq.broker.inspect import bulk as inspect_bulk
from fastq.broker.inspect.bulk import delete_all, run_all
from fastq.broker.operations.walk import Source
from fastq.broker.transport.open import open_broker
from fastq.inspector.bulk import archive_all_tasks, delete_all_tasks, delete_queue
from fastq.wire import keys
from tests.broker.harness import NOW_S
from tests.inspector.harness import Ask, Seeded

LOCK = keys.unique("default", "t", b"")
ALL = list(TaskState)
SCORED = ("scheduled", "retry", "archived", "completed")


def fill(queue: Seeded, state: str, names: str = "abcdefg", **fields: Any) -> None:
    if state == "pending":
        queue.pend(*names, **fields)
    elif state == "active":
        queue.activate(*names, **fields)
    elif state == "aggregating":
        queue.group("g", {name: NOW_S + rank for rank, name in enumerate(names)}, **fields)
    else:
        queue.add(state, {name: NOW_S + rank for rank, name in enumerate(names)}, **fields)


def lock_each(queue: Seeded, *names: str) -> None:
    for name in names:
        lock = keys.unique("default", "t", name.encode())
        queue.db.hset(keys.task("default", name), "unique_key", lock)
        queue.db.set(lock, name)


def args_of(state: str) -> list[str]:
    return ["default", "g"] if state == "aggregating" else ["default"]


@pytest.fixture(autouse=True)
def few_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_bulk, "TASKS_A_CALL", 3)


# All of a state -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["pending", *SCORED, "aggregating"])
def test_all_tasks_of_a_state_are_deleted_with_their_locks(ask: Ask, queue: Seeded, state: str) -> None:
    fill(queue, state)
    lock_each(queue, "a", "g")
    assert ask(f"delete_all_{state}_tasks", *args_of(state)) == 7
    assert queue.all_keys() == {keys.all_queues()}
    assert ask(f"delete_all_{state}_tasks", *args_of(state)) == 0


@pytest.mark.parametrize("state", ["scheduled", "retry", "archived", "aggregating"])
def test_all_tasks_of_a_state_are_run_in_their_order(ask: Ask, queue: Seeded, state: str) -> None:
    queue.pend("first")
    fill(queue, state)
    since_ns = time.time_ns()
    assert ask(f"run_all_{state}_tasks", *args_of(state)) == 7
    assert queue.places() == {"pending": [*"gfedcba", "first"]}
    assert set(queue.states().values()) == {"pending"}
    assert {since_ns <= int(queue.task(name)["pending_since"]) <= time.time_ns() for name in "abcdefg"} == {True}
    assert not queue.db.exists(keys.groups("default"))


@pytest.mark.parametrize("state", ["pending", "scheduled", "retry", "aggregating"])
def test_all_tasks_of_a_state_are_archived_as_they_were(ask: Ask, queue: Seeded, state: str) -> None:
    fill(queue, state)
    lock_each(queue, "a")
    before = {name: queue.task(name) for name in "abcdefg"}
    since = int(time.time())
    assert ask(f"archive_all_{state}_tasks", *args_of(state)) == 7
    assert queue.places() == {"archived": list("abcdefg")}
    assert all(since <= score <= time.time() for score in queue.scores("archived").values())
    assert {name: queue.task(name) for name in "abcdefg"} == {
        name: {**fields, "state": b"archived"} for name, fields in before.items()
    }
    assert not queue.db.exists(keys.groups("default"))


@pytest.mark.parametrize("method", ["delete_all_tasks", "run_all_tasks", "archive_all_tasks"])
def test_other_states_groups_and_queues_are_left_alone(ask: Ask, queue: Seeded, method: str, db: Redis) -> None:
    other = Seeded(db, "other")
    other.add("retry", {"x": 1})
    queue.add("retry", {"a": 1})
    queue.add("scheduled", {"b": 1})
    queue.group("g", {"c": 1})
    queue.group("h", {"d": 1})
    assert ask(method, "default", "retry") == 1
    assert ask(method, "default", "aggregating", group="g") == 1
    states = queue.states()
    assert (states["b"], states["d"], other.states()) == ("scheduled", "aggregating", {"x": "retry"})
    assert queue.db.smembers(keys.groups("default")) == {b"h"}


def test_more_than_the_archive_holds_leaves_ten_thousand_and_no_orphans(
    ask: Ask, queue: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect_bulk, "TASKS_A_CALL", 200)
    names = [f"{number:05}" for number in range(10_300)]
    pipeline = queue.db.pipeline(transaction=False)
    for name in names:
        pipeline.hset(keys.task("default", name), mapping={"msg": b"", "state": "pending"})
    pipeline.lpush(keys.pending("default"), *names)
    pipeline.execute()
    queue.add("archived", {"long ago": 1})
    assert ask("archive_all_pending_tasks", "default") == 10_300
    assert queue.places()["archived"] == names[300:]
    assert queue.db.dbsize() == 10_000 + 3, (
        "the tasks, their set, the list of queues, the counter of those that were dropped"
    )


def test_tasks_that_archiving_drops_leave_no_locks_behind(ask: Ask, queue: Seeded) -> None:
    begin_s = int(time.time()) - 20_000
    queue.archive({f"old-{number:05d}": begin_s + number for number in range(10_000)})
    queue.add("archived", {"long ago": 1})
    queue.pend("a", "b")
    lock_each(queue, "long ago", "old-00000", "old-00002", "b")
    assert ask("archive_all_pending_tasks", "default") == 2
    left = {keys.unique("default", "t", name) for name in (b"old-00002", b"b")}
    assert {key for key in queue.all_keys() if ":unique:" in key} == left


def test_locks_that_only_the_messages_name_are_released_too(
    ask: Ask, queue: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As asynq's AddToGroupUnique leaves them; big messages are returned a few at a time.
    monkeypatch.setattr(inspect_bulk, "MAX_DELETED_BYTES", 100)
    for name in "abcdefg":
        lock = keys.unique("default", "t", name.encode())
        queue.group("g", {name: 1}, unique_key=lock, payload=b"x" * 60)
        queue.db.set(lock, name)
    assert ask("delete_all_aggregating_tasks", "default", "g") == 7
    assert queue.all_keys() == {keys.all_queues()}


def test_ids_without_a_task_go_uncounted_and_tasks_that_are_elsewhere_stay(ask: Ask, queue: Seeded) -> None:
    fill(queue, "retry", "abcd")
    queue.db.delete(keys.task("default", "b"))
    queue.pend("c")
    queue.db.delete(keys.task("default", "d"))
    queue.db.set(keys.task("default", "d"), "no hash")
    assert ask("delete_all_retry_tasks", "default") == 1
    assert queue.places() == {"pending": ["c"]}
    assert queue.task("c")["state"] == b"pending"


def test_what_asynqs_archive_left_half_done_is_deleted_and_what_is_active_is_not(ask: Ask, queue: Seeded) -> None:
    queue.put("half", "active")
    queue.activate("held")
    queue.db.zadd(keys.archived("default"), {"half": 1, "held": 2})
    assert ask("delete_all_archived_tasks", "default") == 1
    assert queue.states() == {"held": "active"}
    assert queue.places() == {"active": ["held"], "lease": ["held"]}


def test_tasks_that_come_back_meanwhile_are_not_done_for_ever(queue: Seeded, url: str) -> None:
    fill(queue, "retry")
    calls: list[str] = []

    def meanwhile(name: str) -> None:
        calls.append(name)
        queue.add("retry", dict.fromkeys("abc", NOW_S))  # they fail at once

    flow = run_all(Source("default", keys.retry("default"), TaskState.RETRY), 1)
    assert drive(flow, url, meanwhile) == 7
    assert calls == ["ZCARD", "ZRANGE", "run_tasks", "run_tasks", "run_tasks"]


@pytest.mark.parametrize("act", [delete_all_tasks, archive_all_tasks])
def test_tasks_that_are_enqueued_after_the_start_are_not_deleted_or_archived(
    queue: Seeded, url: str, act: Callable[..., Any]
) -> None:
    fill(queue, "pending", "abcdefgh")
    done: list[str] = []

    def meanwhile(name: str) -> None:
        done.append(name)
        if done.count(name) == 1 and name.endswith("_tasks"):
            queue.db.rpop(keys.pending("default"), 2)  # servers go on
            queue.pend("new-1", "new-2", "new-3")  # and so do producers

    more = () if act is delete_all_tasks else (time.time_ns(),)
    assert drive(act("default", "pending", None, *more), url, meanwhile) == 6
    assert queue.db.lrange(keys.pending("default"), 0, -1) == [b"new-3", b"new-2", b"new-1"]


def test_nothing_more_is_deleted_once_servers_took_the_newest_of_the_start(queue: Seeded, url: str) -> None:
    fill(queue, "pending", "abcdef")

    def meanwhile(name: str) -> None:
        if name == "LINDEX":
            queue.db.delete(keys.pending("default"))
            queue.activate(*"abcdef")
            queue.pend("new-1", "new-2")

    assert drive(delete_all_tasks("default", "pending", None), url, meanwhile) == 0
    assert queue.places()["pending"] == ["new-2", "new-1"]


def test_that_servers_took_all_tasks_meanwhile_is_no_error(queue: Seeded, url: str) -> None:
    fill(queue, "pending", "abcdef")
    pending = keys.pending("default")
    flow = delete_all_tasks("default", "pending", None)
    assert drive(flow, url, lambda name: queue.db.delete(pending) if name == "LINDEX" else None) == 0


def test_no_piece_looks_through_all_tasks_that_came_after_the_start(queue: Seeded, url: str) -> None:
    fill(queue, "pending", "abcdefgh")
    pending, newer = keys.pending("default"), [f"n{number:06}" for number in range(60_000)]
    flow = delete_all_tasks("default", "pending", None)
    with queue.db.monitor() as monitor:
        assert drive(flow, url, lambda name: queue.db.lpush(pending, *newer) if name == "LINDEX" else None) == 8
        queue.db.echo("end")
        seen = iter(lambda: monitor.next_command()["command"], "ECHO end")
        searches = [command for command in seen if command.upper().startswith("LPOS")]
    assert queue.db.llen(pending) == len(newer)
    assert [int(command.rpartition("MAXLEN ")[2]) for command in searches] == [3, 3, 2]


def test_tasks_that_are_archived_after_the_start_are_not_deleted(queue: Seeded, url: str) -> None:
    fill(queue, "archived", "abcd")

    def meanwhile(name: str) -> None:
        if name == "ZRANGE":
            queue.db.zrem(keys.archived("default"), "a", "b")
            queue.add("archived", {"new-1": NOW_S + 60, "new-2": NOW_S + 60})

    assert drive(delete_all_tasks("default", "archived", None), url, meanwhile) == 2
    assert queue.places() == {"archived": ["new-1", "new-2"]}


def test_big_tasks_are_deleted_a_few_at_a_time(queue: Seeded, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_bulk, "TASKS_A_CALL", 200)
    monkeypatch.setattr(inspect_bulk, "MAX_DELETED_BYTES", 2_500)
    fill(queue, "retry", payload=b"x" * 1000)
    queue.db.hset(keys.task("default", "d"), "result", b"x" * 2000)
    left: list[int] = []
    flow = delete_all(Source("default", keys.retry("default"), TaskState.RETRY))
    assert drive(flow, url, lambda _: left.append(queue.db.zcard(keys.retry("default")))) == 7
    assert left == [7, 7, 4, 3, 0]


def test_an_error_of_redis_tells_how_far_it_went(queue: Seeded, url: str) -> None:
    fill(queue, "retry")
    flow = run_all(Source("default", keys.retry("default"), TaskState.RETRY), 1)

    def break_it(name: str) -> None:
        if name == "run_tasks":
            queue.db.delete(keys.pending("default"))
            queue.db.set(keys.pending("default"), "no list")

    with pytest.raises(BrokerError) as error:
        open_broker(url).drive(meddled(flow, break_it))
    assert error.value.__notes__ == ["3 tasks were done before this error, 4 were left"]


def meddled(flow: Any, meanwhile: Callable[[str], None]) -> Any:
    """Make a flow of a flow: after each operation ``meanwhile`` is called with its name."""
    try:
        operation = next(flow)
        while True:
            try:
                result = yield operation
            except BrokerError as error:
                operation = flow.throw(error)
            else:
                meanwhile(operation.name)
                operation = flow.send(result)
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize(
    ("method", "state", "text"),
    [
        ("delete_all_tasks", "active", "state must be one of aggregating, .* to delete its tasks, not 'active'"),
        ("run_all_tasks", "pending", "to run its tasks, not 'pending'"),
        ("archive_all_tasks", "archived", "to archive its tasks, not 'archived'"),
        ("archive_all_tasks", "gone", "not 'gone'"),
    ],
)
def test_a_state_in_which_it_makes_no_sense_is_refused(
    ask: Ask, queue: Seeded, method: str, state: str, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        ask(method, "default", state)


@pytest.mark.parametrize("method", ["delete_all_tasks", "run_all_tasks", "archive_all_tasks"])
def test_tasks_of_a_queue_that_is_not_there_are_not_found(ask: Ask, db: Redis, method: str) -> None:
    with pytest.raises(QueueNotFoundError, match="nosuch"):
        ask(method, "nosuch", "retry")
    with pytest.raises(ValueError, match="queue must"):
        ask(method, "", "retry")


def test_a_full_redis_lets_tasks_be_run_and_archived(ask: Ask, queue: Seeded) -> None:
    fill(queue, "retry", "ab")
    fill(queue, "scheduled", "cd")
    queue.db.config_set("maxmemory", 1)
    try:
        assert ask("run_all_retry_tasks", "default") == 2
        assert ask("archive_all_scheduled_tasks", "default") == 2
        assert ask("delete_all_archived_tasks", "default") == 2
    finally:
        queue.db.config_set("maxmemory", 0)
    assert queue.places() == {"pending": ["b", "a"]}


# A queue ------------------------------------------------------------------------------------------------------------


def stage(queue: Seeded, *names: str) -> None:
    """Let tasks be in an aggregation set."""
    staged = keys.aggregation_set("default", "g", "set-1")
    for name in names:
        queue.put(name, "aggregating", group_key="g")
        queue.db.hset(keys.task("default", name), "group", "g")
    queue.db.zadd(staged, dict.fromkeys(names, 1))
    queue.db.zadd(keys.aggregation_sets("default"), {staged: NOW_S})


def leave_over(queue: Seeded) -> None:
    """Leave what Go's inspector and archive leave: hashes and locks that no list knows; and counters."""
    for number, state in enumerate(ALL):
        queue.put(f"orphan-{number}", state)
    queue.db.set(keys.unique("default", "t", b"old"), "gone")
    queue.put("locker", "archived")
    queue.db.set(keys.unique("default", "t", b"older"), "locker")
    queue.put("ungrouped", "aggregating", group_key="h")
    queue.db.hset(keys.task("default", "ungrouped"), "group", "h")
    for name in ("processed", "failed", "processed:2026-01-01", "failed:2026-01-01", "something:new"):
        queue.db.set(queue.key(name), 1)


def unlist(queue: Seeded, *names: str, staged: bool = False) -> None:
    """Let tasks be in a group, and some in a set of it, that are not listed, as asynq's recoverer leaves groups."""
    queue.group("h", dict.fromkeys(names, 1))
    queue.db.srem(keys.groups("default"), "h")
    if staged:
        queue.db.rename(keys.group("default", "h"), keys.aggregation_set("default", "h", "set-2"))
        queue.db.zadd(keys.group("default", "h"), {names[0]: 1})


def test_a_deleted_queue_leaves_nothing_behind(ask: Ask, queue: Seeded, db: Redis) -> None:
    for index, state in enumerate(["pending", *SCORED, "aggregating"]):
        fill(queue, state, "".join(chr(ord("a") + index * 4 + n) for n in range(4)))
    queue.group("single", {"y": 1}, unique_key=LOCK)
    queue.db.set(LOCK, "y")
    lock_each(queue, "a", "e", "i", "z")
    stage(queue, "z", "zz")
    leave_over(queue)
    unlist(queue, *"uvw", staged=True)
    Seeded(db, "default2").pend("x")
    db.set("asynq:{default", "not the queue's")
    with pytest.raises(QueueNotEmptyError):
        ask("delete_queue", "default")
    ask("delete_queue", "default", force=True)
    assert {key for key in queue.all_keys() if "{default}" in key} == set()
    assert db.smembers(keys.all_queues()) == {b"default2"}
    assert {"asynq:{default2}:pending", "asynq:{default2}:t:x", "asynq:{default"} < queue.all_keys()
    with pytest.raises(QueueNotFoundError, match="default"):
        ask("delete_queue", "default", force=True)


def leave_as_go(queue: Seeded) -> None:
    """Leave what asynq's RemoveQueue leaves of a paused queue with completed and grouped tasks, and keys of fastq."""
    queue.add("completed", {"c": 4e9}, unique_key=LOCK)
    queue.group("g", {"x": 1, "y": 2})
    leave_over(queue)
    queue.db.set(keys.paused("default"), 1)
    queue.db.hset(keys.archive_rule("default"), mapping={"max": 5, "ttl": 100, "full": "pause"})
    queue.db.sadd(keys.groups("default"), "gs")
    queue.db.zadd(queue.key("scheduled_groups"), {"gs": 4e9})
    queue.db.srem(keys.all_queues(), "default")


def test_a_queue_that_is_not_listed_is_deleted_and_leaves_no_heirlooms(ask: Ask, queue: Seeded) -> None:
    leave_as_go(queue)
    assert ask("queues") == []
    found = ask("get_queue_info", "default", search=True)
    assert (found.completed, found.aggregating, found.paused) == (1, 2, True)
    before = queue.all_keys()
    with pytest.raises(QueueNotEmptyError, match="1 completed"):
        ask("delete_queue", "default")
    assert queue.all_keys() == before
    ask("delete_queue", "default", force=True)
    assert queue.all_keys() == set()
    for search in (False, True):
        with pytest.raises(QueueNotFoundError):
            ask("get_queue_info", "default", search=search)
    Seeded(queue.db).pend("new")
    again = ask("get_queue_info", "default")
    assert (again.paused, again.pending, again.processed_total, again.archive_max) == (False, 1, 0, 10_000)


def test_an_empty_queue_is_deleted_with_what_others_left_over(ask: Ask, queue: Seeded) -> None:
    leave_over(queue)
    queue.db.sadd(keys.groups("default"), "only a name")
    ask("delete_queue", "default")
    assert queue.all_keys() == set()


def test_the_name_of_a_queue_is_no_pattern(ask: Ask, db: Redis) -> None:
    names = ["a*[b]?\\^c", "aXbYZc", "a*b?\\^c", "a*[b]Y\\^c"]
    for name in names:
        Seeded(db, name).pend("x")
    Seeded(db, names[0]).put("orphan", "retry")
    ask("delete_queue", names[0], force=True)
    assert sorted(ask("queues")) == sorted(names[1:])
    assert db.dbsize() == 1 + 3 * 2


@pytest.mark.parametrize("staged", [False, True])
def test_tasks_of_a_group_that_is_not_listed_are_not_deleted_without_force(
    ask: Ask, queue: Seeded, staged: bool
) -> None:
    unlist(queue, *"abcd", staged=staged)
    before = queue.all_keys()
    with pytest.raises(QueueNotEmptyError, match=r"it has [45] aggregating \(queue='default'\)"):
        ask("delete_queue", "default")
    assert queue.all_keys() == before
    ask("delete_queue", "default", force=True)
    assert queue.all_keys() == set()


def test_a_group_that_is_aggregated_while_its_queue_is_swept_keeps_its_tasks(url: str, queue: Seeded) -> None:
    queue.put("orphan", "aggregating", group_key="g")
    done: list[str] = []

    def meanwhile(name: str) -> None:
        if name == "close_queue" and not done:
            done.append(name)
            stage(queue, *"ab")
            unlist(queue, *"cd")

    drive(delete_queue("default", time.time_ns(), force=False), url, meanwhile)
    assert queue.states() == dict.fromkeys("abcd", "aggregating")
    assert queue.db.smembers(keys.all_queues()) == {b"default"}


@pytest.mark.parametrize("state", [*ALL, "staged"])
def test_a_queue_with_tasks_of_any_state_is_not_deleted(ask: Ask, queue: Seeded, state: str) -> None:
    stage(queue, *"ab") if state == "staged" else fill(queue, state, "ab")
    before = queue.all_keys()
    text = f"2 {'aggregating' if state == 'staged' else state}"
    with pytest.raises(QueueNotEmptyError, match=rf"queue is not empty: it has {text} \(queue='default'\)"):
        ask("delete_queue", "default")
    assert queue.all_keys() == before


def test_a_queue_with_a_task_behind_a_run_is_not_deleted_without_force(ask: Ask, queue: Seeded, db: Redis) -> None:
    db.hset(keys.again("default"), "sync:1", b"::message")  # the run was on a Go server, and is over
    with pytest.raises(QueueNotEmptyError, match="it has 1 behind a run"):
        ask("delete_queue", "default")
    assert db.hlen(keys.again("default")) == 1
    ask("delete_queue", "default", force=True)
    assert db.keys("asynq:{default}:*") == []


def test_active_tasks_are_in_the_way_even_of_force(ask: Ask, queue: Seeded) -> None:
    queue.activate("a")
    queue.pend("p")
    before = queue.all_keys()
    with pytest.raises(QueueNotEmptyError, match="it has 1 pending, 1 active") as error:
        ask("delete_queue", "default", force=True)
    assert error.value.sizes == {"pending": 1, "active": 1}
    assert queue.all_keys() == before


def drive(flow: Any, url: str, meanwhile: Callable[[str], None]) -> Any:
    """Carry out a flow, and return what it does; after each operation call ``meanwhile`` with its name."""
    broker = open_broker(url)
    try:
        step = next(flow)
        while True:
            result = broker.run_many(step) if isinstance(step, tuple) else broker.run(step)
            for operation in step if isinstance(step, tuple) else (step,):
                meanwhile(operation.name)
            step = flow.send(result)
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize(("force", "moment"), [(False, "close_queue"), (False, "sweep_queue"), (True, "sweep_queue")])
def test_what_is_enqueued_while_a_queue_is_deleted_makes_it_a_queue_anew(
    url: str, queue: Seeded, force: bool, moment: str
) -> None:
    leave_over(queue)
    done: list[str] = []

    def meanwhile(name: str) -> None:
        if name == moment and not done:
            done.append(name)
            assert queue.db.exists(keys.paused("default"))
            with Client(url) as client:
                client.enqueue("t", b"", task_id="p", unique=3600)
                client.enqueue("t", task_id="s", process_in=3600)
                client.enqueue("t", task_id="g", group="new")
                client.enqueue("t", task_id="l", lane="acme")

    drive(delete_queue("default", time.time_ns(), force=force), url, meanwhile)
    assert done
    assert queue.states() == {"p": "pending", "s": "scheduled", "g": "aggregating", "l": "aggregating"}
    assert queue.db.hget(keys.limits("default"), "*") == b"0:0:1:1", "else nobody would serve the lane"
    assert queue.places() == {"pending": ["p"], "scheduled": ["s"]}
    assert queue.db.get(LOCK) == b"p"
    assert queue.db.zrange(keys.group("default", "new"), 0, -1) == [b"g"]
    assert queue.db.smembers(keys.all_queues()) == {b"default"}
    assert not queue.db.exists(keys.paused("default"))


def test_a_task_that_joins_a_group_that_was_only_a_name_keeps_its_queue(url: str, queue: Seeded) -> None:
    queue.db.sadd(keys.groups("default"), "g")

    def meanwhile(name: str) -> None:
        if name == "list_groups":
            with Client(url) as client:
                client.enqueue("t", task_id="it", group="g")

    with pytest.raises(QueueNotEmptyError, match="1 aggregating"):
        drive(delete_queue("default", time.time_ns(), force=False), url, meanwhile)
    assert queue.states() == {"it": "aggregating"}
    assert not queue.db.exists(keys.paused("default"))


@pytest.mark.parametrize(("name", "kind"), [(" ", ValueError), (3, TypeError)])
def test_a_queue_without_a_name_is_not_deleted(ask: Ask, db: Redis, name: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="queue must"):
        ask("delete_queue", name, force=True)

"""fastq's Inspector and Go's give the same answers about the same Redis, and do the same to it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import redis

from fastq import Client, FastqError, Inspector, ServerInfo, TaskInfo, TaskState
from fastq.pool.shared.event_kind import EventKind
from fastq.wire import keys
from tests.broker.harness import NOW_S, QueueBench, run
from tests.interop.peer import SECOND_NS, GoPeer, hear_cancellations
from tests.interop.records import GoTask, PeerError
from tests.interop.samples import QUEUES, samples
from tests.interop.telling import entry_as_go_tells, ns, task_as_go_tells, task_as_go_told, told, told_of, unix_ns
from tests.test_keyspace_server import Stage
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

COUNT = 192
SEED = 20261121
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR_NS = 3600 * SECOND_NS
QUICK: dict[str, Any] = {"concurrency": 20, "retry_delay_ns": HOUR_NS, "task_check_ns": SECOND_NS // 100}
LISTED = [state for state in TaskState if state is not TaskState.AGGREGATING]


@pytest.fixture
def inspector(redis_url: str) -> Iterator[Inspector]:
    with Inspector(redis_url) as inspector:
        yield inspector


# Both tell the same -------------------------------------------------------------------------------------------------


def compare_queue(go: GoPeer, inspector: Inspector, queue: str) -> None:
    """Compare what both tell of a queue and of every task in it; pages of 7."""
    ours, theirs = inspector.get_queue_info(queue), go.inspect("GetQueueInfo", queue)
    about = {"memory_usage", "latency_ns", "timestamp_ns"}
    exact = theirs.keys() - about
    assert {name: getattr(ours, name) for name in exact} == {name: theirs[name] for name in exact}
    assert abs(ns(ours.latency) - theirs["latency_ns"]) < HOUR_NS
    assert bool(ours.latency) == bool(theirs["latency_ns"])
    assert ours.memory_usage is not None
    assert (ours.memory_usage > 0) == (theirs["memory_usage"] > 0)
    sizes = {each["group"]: each["size"] for each in go.inspect("Groups", queue) or []}
    assert {each.group: each.size for each in inspector.groups(queue)} == sizes
    days = [
        (day["date_ns"] // (24 * HOUR_NS), day["processed"], day["failed"]) for day in go.inspect("History", queue, 3)
    ]
    assert [((day.date - EPOCH.date()).days, day.processed, day.failed) for day in inspector.history(queue, 3)] == days
    for state in LISTED:
        compare_pages(go, inspector, f"List{state.title()}Tasks", queue, state, None)
    for group in sizes:
        compare_pages(go, inspector, "ListAggregatingTasks", queue, TaskState.AGGREGATING, group)


def compare_pages(
    go: GoPeer, inspector: Inspector, method: str, queue: str, state: TaskState, group: str | None
) -> None:
    names = (queue,) if group is None else (queue, group)
    seen: list[TaskInfo] = []
    number = 1
    while True:
        theirs = [task_as_go_told(told) for told in go.inspect(method, *names, {"page": number, "size": 7})]
        ours = inspector.list_tasks(queue, state, group=group, page=number, page_size=7)
        assert [task_as_go_tells(info) for info in ours] == theirs
        if not ours:
            break
        seen += ours
        number += 1
    assert [info.id for info in inspector.iter_tasks(queue, state, group=group)] == [info.id for info in seen]
    for info in seen[:20]:
        told = task_as_go_told(go.inspect("GetTaskInfo", queue, info.id))
        ours_now = task_as_go_tells(inspector.get_task_info(queue, info.id))
        assert {**ours_now, "is_orphaned": False} == told  # asynq tells of orphans in lists only


def test_both_tell_the_same_of_all_that_both_clients_enqueued(go: GoPeer, inspector: Inspector, redis_url: str) -> None:
    todo = list(samples(COUNT, SEED))
    with Client(redis_url) as client:
        for one in todo[::2]:
            client.enqueue(one.type, one.payload, headers=one.headers, **one.options())
    go.enqueue_many(one.go_task() for one in todo[1::2])
    assert inspector.queues() == sorted(go.inspect("Queues")) == sorted(QUEUES)
    go.inspect("PauseQueue", QUEUES[0])
    inspector.pause_queue(QUEUES[1])
    assert sum(inspector.get_queue_info(queue).size for queue in QUEUES) == COUNT
    for queue in QUEUES:
        compare_queue(go, inspector, queue)


def script(number: int) -> GoTask:
    """Make a task for Go's server, of each end in turn."""
    do = ("result", "error", "skip", "panic", "not_failure", "ok")[number % 6]
    payload = b'{"do": "%s", "text": "t%d", "result": "YWI="}' % (do.encode(), number)
    return GoTask("t", payload, options={"task_id": f"go-{number}", "retention_ns": HOUR_NS, "queue": "ran"})


async def run_by_fastq(stage: Stage) -> None:
    """Let fastq's server end tasks in each way, and go on with the last."""
    ends = [
        (EventKind.RESULT, b"result"),
        (EventKind.FAILED, b"E: boom"),
        (EventKind.SKIP_RETRY, b"E: bad"),
        (EventKind.TIMEOUT, b"time"),
        (EventKind.DONE, b""),
    ]
    for number, (kind, data) in enumerate(ends * 3):
        await stage.enqueue(f"py-{number}", retention=3600)
        await stage.fetch()
        await stage.end(kind, data)
    await stage.enqueue("py-active")
    await stage.fetch()


def test_both_tell_the_same_of_what_both_servers_made_of_tasks(
    go: GoPeer, inspector: Inspector, db: redis.Redis, redis_url: str
) -> None:
    async def stage() -> None:
        async with aclosing(Stage(db, redis_url)) as stage:
            await run_by_fastq(stage)

    run(stage)
    db.zadd(keys.lease("default"), {"py-active": int(time.time()) - 5})
    go.enqueue_many(script(number) for number in range(30))
    go.enqueue(GoTask("t", b'{"do": "wait", "gate": "g"}', options={"task_id": "held", "queue": "ran"}))
    with go.server(queues={"ran": 1}, **QUICK):
        go.executions(started=31, finished=30)
        wait_until(lambda: inspector.get_queue_info("ran").processed_total == 25)
        for queue in ("ran", "default"):
            compare_queue(go, inspector, queue)
        (orphan,) = inspector.list_active_tasks("default")
        (held,) = inspector.list_active_tasks("ran")
        assert (orphan.is_orphaned, held.is_orphaned) == (True, False)
        assert inspector.get_queue_info("ran").archived
        compare_servers(go, inspector)
        go.request("release", gate="g")


def compare_servers(go: GoPeer, inspector: Inspector) -> None:
    names = [name for name in ServerInfo.__slots__ if name not in ("children", "places")]  # fastq's own

    def read() -> tuple[Sequence[Any], Sequence[Any]]:
        ours, theirs = inspector.servers(), go.inspect("Servers")
        return [told_of(server, names) for server in ours], [told(server) for server in theirs]

    def agree() -> bool:
        """Return whether both see what it runs; a heartbeat may come between the two looks."""
        ours, theirs = read()
        return [bool(server["active_workers"]) for server in ours] == [True] and ours == theirs

    try:
        wait_until(agree)
    except AssertionError:
        ours, theirs = read()
        assert ours == theirs
        raise


def test_both_tell_the_same_of_schedulers(go: GoPeer, inspector: Inspector) -> None:
    task = GoTask("tick", b"p", None, {"queue": "ticks", "max_retry": 3}).params()
    entries = [{"spec": "@every 1s", "task": task}, {"spec": "0 0 1 1 *", "task": task}]
    ids = go.request("scheduler_start", name="s", heartbeat_ns=SECOND_NS, entries=entries)
    wait_until(lambda: len(inspector.list_scheduler_enqueue_events(ids[0])) > 2)
    wait_until(lambda: len(inspector.scheduler_entries()) == 2)
    ours = sorted(map(entry_as_go_tells, inspector.scheduler_entries()), key=lambda entry: str(entry["id"]))
    theirs = sorted(go.inspect("SchedulerEntries"), key=lambda entry: str(entry["id"]))
    moving = {"next_ns", "prev_ns"}  # another second may have come between
    assert [{k: v for k, v in entry.items() if k not in moving} for entry in ours] == [
        {**{k: v for k, v in entry.items() if k not in moving}, "task": {**entry["task"], "headers": None}}
        for entry in theirs
    ]
    yearly = [
        [entry[name] for entry in each if entry["spec"] != "@every 1s" for name in moving] for each in (ours, theirs)
    ]
    assert yearly[0] == yearly[1]
    go.request("scheduler_unregister", name="s", entry_id=ids[0])
    found = [(event.task_id, unix_ns(event.enqueue_time)) for event in inspector.list_scheduler_enqueue_events(ids[0])]
    told = [
        (event["task_id"], event["enqueued_at_ns"] // 1000 * 1000)
        for event in go.inspect("ListSchedulerEnqueueEvents", ids[0])
    ]
    assert set(found) <= set(told)
    assert found == told[-len(found) :]
    go.request("scheduler_shutdown", name="s")
    assert inspector.scheduler_entries() == []


# Both do the same ---------------------------------------------------------------------------------------------------


PLACES = ("pending", "active", "scheduled", "retry", "archived", "completed", "aggregating")
ERRORS = {
    "TaskNotFoundError": "task not found",
    "QueueNotFoundError": "queue",
    "TaskStateError": "FAILED_PRECONDITION",
    "QueueNotEmptyError": "queue",
}
ACTIONS: dict[str, tuple[str, Callable[[str], tuple[Any, ...]]]] = {
    "run_task": ("RunTask", lambda queue: (queue, "it")),
    "archive_task": ("ArchiveTask", lambda queue: (queue, "it")),
    "delete_task": ("DeleteTask", lambda queue: (queue, "it")),
    "update_task_payload": ("UpdateTaskPayload", lambda queue: (queue, "it", b"new")),
    "delete_all_pending_tasks": ("DeleteAllPendingTasks", lambda queue: (queue,)),
    "delete_all_scheduled_tasks": ("DeleteAllScheduledTasks", lambda queue: (queue,)),
    "delete_all_retry_tasks": ("DeleteAllRetryTasks", lambda queue: (queue,)),
    "delete_all_archived_tasks": ("DeleteAllArchivedTasks", lambda queue: (queue,)),
    "delete_all_completed_tasks": ("DeleteAllCompletedTasks", lambda queue: (queue,)),
    "delete_all_aggregating_tasks": ("DeleteAllAggregatingTasks", lambda queue: (queue, "g")),
    "run_all_scheduled_tasks": ("RunAllScheduledTasks", lambda queue: (queue,)),
    "run_all_retry_tasks": ("RunAllRetryTasks", lambda queue: (queue,)),
    "run_all_archived_tasks": ("RunAllArchivedTasks", lambda queue: (queue,)),
    "run_all_aggregating_tasks": ("RunAllAggregatingTasks", lambda queue: (queue, "g")),
    "archive_all_pending_tasks": ("ArchiveAllPendingTasks", lambda queue: (queue,)),
    "archive_all_scheduled_tasks": ("ArchiveAllScheduledTasks", lambda queue: (queue,)),
    "archive_all_retry_tasks": ("ArchiveAllRetryTasks", lambda queue: (queue,)),
    "archive_all_aggregating_tasks": ("ArchiveAllAggregatingTasks", lambda queue: (queue, "g")),
    "pause_queue": ("PauseQueue", lambda queue: (queue,)),
    "unpause_queue": ("UnpauseQueue", lambda queue: (queue,)),
}


def fill(db: redis.Redis, queue: str, state: str) -> QueueBench:
    """Put three tasks into a state, each with a lock; one more queue state, that others stay, is another's test."""
    bench = QueueBench(db, queue=queue)
    db.sadd(keys.all_queues(), queue)
    names = ("before", "it", "after")
    if state == "pending":
        bench.pend(*names)
    elif state == "active":
        bench.activate(*names)
    else:
        for rank, name in enumerate(names):
            bench.put(name, state)
            place = keys.group(queue, "g") if state == "aggregating" else bench.key(state)
            bench.db.zadd(place, {name: NOW_S + rank})
            if state == "aggregating":
                bench.db.hset(keys.task(queue, name), "group", "g")
                bench.db.sadd(keys.groups(queue), "g")
    for name in names:
        lock = keys.unique(queue, "t", name.encode())
        bench.db.hset(keys.task(queue, name), "unique_key", lock)
        bench.db.set(lock, name)
    return bench


def contents(db: Any, queue: str) -> dict[str, Any]:
    """Return all of a queue's keys, but for the times of now, and since when a task is pending."""
    read = {
        b"list": lambda key: db.lrange(key, 0, -1),
        b"set": db.smembers,
        b"zset": lambda key: [(name, 0 if abs(score - time.time()) < 99 else score) for name, score in scored(db, key)],
        b"string": lambda key: "since" if key.endswith(b":paused") else db.get(key),
        b"hash": lambda key: {
            k: v for k, v in db.hgetall(key).items() if k not in (b"msg", b"pending_since", b"unique_key")
        },
    }
    prefix = keys.queue_prefix(queue)
    found = db.keys(prefix.replace("[", "\\[") + "*")
    return {key.decode().removeprefix(prefix): read[db.type(key)](key) for key in found}


def scored(db: Any, key: bytes) -> list[tuple[bytes, float]]:
    pairs: list[tuple[bytes, float]] = db.zrange(key, 0, -1, withscores=True)
    return pairs


@pytest.mark.parametrize("state", PLACES)
def test_both_do_the_same_to_tasks_of_every_state(
    go: GoPeer, inspector: Inspector, db: redis.Redis, state: str
) -> None:
    for action, (go_name, args_of) in ACTIONS.items():
        db.flushall()
        for queue in ("theirs", "ours"):
            fill(db, queue, state)
        theirs = outcome(partial(go.inspect, go_name), args_of("theirs"))
        ours = outcome(getattr(inspector, action), args_of("ours"))
        assert same(theirs, ours), f"{action}: Go: {theirs!r}, fastq: {ours!r}"
        left = contents(db, "theirs")
        if action == f"delete_all_{state}_tasks":  # asynq keeps the locks of pending and grouped ones
            left = {key: value for key, value in left.items() if not key.startswith("unique:")}
        assert contents(db, "ours") == left, action


def outcome(call: Callable[..., Any], args: Sequence[Any]) -> Any:
    try:
        return call(*args)
    except (PeerError, FastqError) as error:
        return error


def same(theirs: Any, ours: Any) -> bool:
    """Return whether both did it, or both refused for the same reason."""
    if isinstance(ours, FastqError):
        name = type(ours).__name__
        text = "is not paused" if name == "QueueStateError" else ERRORS[name]
        return isinstance(theirs, PeerError) and text in theirs.text
    return bool(theirs == ours)


@pytest.mark.parametrize(("action", "go_name"), [(name, ACTIONS[name][0]) for name in ACTIONS if "queue" not in name])
def test_both_find_no_queue_and_no_task_where_there_is_none(
    go: GoPeer, inspector: Inspector, db: redis.Redis, action: str, go_name: str
) -> None:
    args = ACTIONS[action][1]("q")
    theirs, ours = outcome(partial(go.inspect, go_name), args), outcome(getattr(inspector, action), args)
    assert type(ours).__name__ == "QueueNotFoundError"
    assert same(theirs, ours), (theirs, ours)
    db.sadd(keys.all_queues(), "q")
    theirs, ours = outcome(partial(go.inspect, go_name), args), outcome(getattr(inspector, action), args)
    assert same(theirs, ours), (theirs, ours)
    assert type(ours).__name__ == ("TaskNotFoundError" if len(args) > 1 and "all" not in action else "int")


def test_go_reads_what_a_new_payload_makes_of_a_task(go: GoPeer, inspector: Inspector, redis_url: str) -> None:
    with Client(redis_url) as client:
        client.enqueue("t", b"old", task_id="it", process_in=3600, headers={"h": "1"}, unique=3600)
    inspector.update_task_payload("default", "it", b"new")
    told = go.task_info("default", "it")
    assert (told.payload, told.headers, told.state) == (b"new", {"h": "1"}, "scheduled")


def test_a_go_server_stops_what_fastqs_inspector_cancels(go: GoPeer, inspector: Inspector, db: redis.Redis) -> None:
    go.enqueue(GoTask("t", b'{"do": "wait", "gate": "never"}', options={"task_id": "it"}))
    with go.server(**QUICK):
        go.executions(started=1)
        hear_cancellations(db)
        inspector.cancel_processing("it")
        (execution,) = go.executions(finished=1)
    assert execution.outcome == "context canceled"
    assert inspector.get_task_info("default", "it").state is TaskState.RETRY

"""Holds what Go's Inspector and fastq's say of every task, queue, server and entry against each other."""

from collections.abc import Mapping
from typing import Any, Final

from redis import Redis

from fastq import Inspector, QueueInfo, TaskInfo, TaskState
from fastq.wire import keys
from tests.interop.crowd.books import TaskKey
from tests.interop.peer import GoPeer
from tests.interop.telling import entry_as_go_tells, task_as_go_tells, task_as_go_told, told, told_of, unix_ns

ALL: Final = {"page": 1, "size": 100_000}
COUNTERS: Final = ("processed", "failed", "processed_total", "failed_total")
PASSING: Final = {"memory_usage", "latency", "timestamp", "latency_ns", "timestamp_ns"}
IN_SERVER: Final = (
    "id",
    "host",
    "pid",
    "concurrency",
    "queues",
    "strict_priority",
    "started",
    "status",
    "active_workers",
)


def agreed_tasks(go: GoPeer, inspector: Inspector, queue: str) -> dict[TaskKey, TaskInfo]:
    """Return all tasks of a queue, of which both inspectors say the same in the same order."""
    found: dict[TaskKey, TaskInfo] = {}
    groups = [group.group for group in inspector.groups(queue)]
    assert sorted(groups) == sorted(group["group"] for group in go.inspect("Groups", queue) or [])
    for state in TaskState:
        for group in groups if state is TaskState.AGGREGATING else (None,):
            names = (queue,) if group is None else (queue, group)
            theirs = go.inspect(f"List{state.title()}Tasks", *names, ALL)
            ours = list(inspector.iter_tasks(queue, state, group=group))
            assert [task_as_go_tells(info) for info in ours] == [task_as_go_told(info) for info in theirs]
            found |= {(queue, info.id): info for info in ours}
    return found


def agreed_counters(go: GoPeer, inspector: Inspector, queue: str) -> QueueInfo:
    """Return what both inspectors say of a queue."""
    theirs = {name: value for name, value in go.inspect("GetQueueInfo", queue).items() if name not in PASSING}
    info = inspector.get_queue_info(queue)
    assert {name: getattr(info, name) for name in theirs} == theirs
    days = [(day["processed"], day["failed"]) for day in go.inspect("History", queue, 2)]
    assert [(day.processed, day.failed) for day in inspector.history(queue, 2)] == days
    return info


def servers_agree(go: GoPeer, inspector: Inspector, count: int) -> bool:
    """Return whether both see so many servers, the same, at rest."""
    ours = sorted((told_of(server, IN_SERVER) for server in inspector.servers()), key=lambda server: str(server["id"]))
    theirs = sorted(map(told, go.inspect("Servers")), key=lambda server: str(server["id"]))
    for server in ours:
        server["active_workers"] = list(server["active_workers"])
    return len(ours) == count and ours == theirs and not any(server["active_workers"] for server in ours)


def entries_agree(go: GoPeer, inspector: Inspector, count: int) -> bool:
    """Return whether both see so many scheduler entries, the same but for times, as a second may lie between."""
    ours = [_still(entry_as_go_tells(entry)) for entry in inspector.scheduler_entries()]
    theirs = [_still({**entry, "task": {**entry["task"], "headers": None}}) for entry in go.inspect("SchedulerEntries")]
    return len(ours) == count and sorted(ours, key=str) == sorted(theirs, key=str)


def _still(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in ("next_ns", "prev_ns")}


def events_agree(go: GoPeer, inspector: Inspector, entry_id: str) -> int:
    """See that both list the same events of an entry, while more may come, and return how many there were."""
    first = [
        (event.task_id, unix_ns(event.enqueue_time))
        for event in inspector.list_scheduler_enqueue_events(entry_id, page_size=1000)
    ]
    theirs = [
        (event["task_id"], event["enqueued_at_ns"] // 1000 * 1000)
        for event in go.inspect("ListSchedulerEnqueueEvents", entry_id, {"page": 1, "size": 1000})
    ]
    assert first == theirs[len(theirs) - len(first) :]
    return len(first)


def hashes(db: Any, queue: str) -> set[TaskKey]:
    """Return the tasks of which a queue has a hash, wherever they are listed."""
    prefix = keys.task(queue, "")
    return {(queue, key.decode().removeprefix(prefix)) for key in db.scan_iter(f"{prefix}*", count=5000)}


def is_settled(db: Redis, queues: Mapping[str, int]) -> bool:
    """Return whether nothing is under way in these queues: no task waits, runs, or is being aggregated."""
    lists = [f"asynq:{{{queue}}}:{name}" for queue in queues for name in ("pending", "active")]
    sets = [
        f"asynq:{{{queue}}}:{name}" for queue in queues for name in ("scheduled", "retry", "lease", "aggregation_sets")
    ]
    with db.pipeline() as asked:
        for key in lists:
            asked.llen(key)
        for key in sets:
            asked.zcard(key)
        if any(asked.execute()):
            return False
    return not any(any(db.scan_iter(f"asynq:{{{queue}}}:g:*", count=5000)) for queue in queues)

"""asynqmon, as published, shows of fastq's data what fastq's Inspector says, and does to it what its buttons say."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from fastq import Client, DailyStats, Inspector, QueueInfo, QueueNotFoundError, TaskInfo, TaskNotFoundError, TaskState
from fastq.wire.messages import WorkerInfo
from tests.cli.commands import Fastq
from tests.e2e.harness import workers_on
from tests.e2e.view import View
from tests.interop.build import build
from tests.interop.monitor import Asynqmon
from tests.interop.scene import BUSY, TICKING, Scene
from tests.interop.showing import shown_bytes
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

BIG = 1000
NEAR_S = 120  # what both count back from now
COUNTS = ("size", "groups", *(state.value for state in TaskState), "processed", "failed", "paused")
LISTED = [state for state in TaskState if state is not TaskState.AGGREGATING]


@pytest.fixture(scope="session")
def asynqmon_binary() -> Path:
    return build("asynqmon")


@pytest.fixture
def monitor(asynqmon_binary: Path, redis_socket: Path, db: redis.Redis) -> Iterator[Asynqmon]:
    """Return one that shows the emptied Redis."""
    with Asynqmon(asynqmon_binary, redis_socket) as monitor:
        yield monitor


@pytest.fixture
def inspector(redis_url: str) -> Iterator[Inspector]:
    with Inspector(redis_url) as inspector:
        yield inspector


@pytest.fixture(scope="module")
def shown(asynqmon_binary: Path, scene: Scene) -> Iterator[Asynqmon]:
    """Return one that shows the scene."""
    with Asynqmon(asynqmon_binary, Path(scene.redis.socket_path)) as monitor:
        yield monitor


# It shows ---------------------------------------------------------------------------------------------------------


def second(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def told_second(text: str) -> str:
    """Return a time that it told, in UTC; Go's zero time is none."""
    return "" if text in ("", "0001-01-01T00:00:00Z") else second(datetime.fromisoformat(text))


def base(info: TaskInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "type": info.type,
        "payload": shown_bytes(info.payload),
        "queue": info.queue,
        "max_retry": info.max_retry,
        "retried": info.retried,
        "error_message": info.last_err,
    }


def in_list(info: TaskInfo, workers: dict[str, WorkerInfo]) -> dict[str, Any]:
    """Return a task as it is to stand in the list of its state; times to the second."""
    match info.state:
        case TaskState.ACTIVE:
            worker = workers.get(info.id)
            of = {
                "start_time": second(worker.start_time) if worker else "-",
                "deadline": second(worker.deadline) if worker else "-",
                "is_orphaned": info.is_orphaned,
            }
        case TaskState.SCHEDULED | TaskState.RETRY:
            of = {"next_process_at": second(info.next_process_at)}
        case TaskState.ARCHIVED:
            of = {"last_failed_at": second(info.last_failed_at)}
        case TaskState.COMPLETED:
            of = {"completed_at": second(info.completed_at), "result": shown_bytes(info.result or b"")}
        case TaskState.AGGREGATING:
            of = {"group": info.group}
        case _:
            of = {}
    return base(info) | of


def read(told: dict[str, Any]) -> dict[str, Any]:
    """Put a task of its lists into the same form; what is counted from now is looked at apart."""
    times = ("start_time", "deadline", "next_process_at", "last_failed_at", "completed_at")
    found = {name: told_second(value) if name in times and value != "-" else value for name, value in told.items()}
    found.pop("ttl_seconds", None)
    return found


def check_snapshot(told: dict[str, Any], info: QueueInfo) -> None:
    assert {name: told[name] for name in COUNTS} == {name: getattr(info, name) for name in COUNTS}
    assert told["queue"] == info.queue
    assert told["succeeded"] == info.processed - info.failed
    assert (told["memory_usage_bytes"] > 0) == bool(info.memory_usage)
    assert abs(told["latency_msec"] / 1000 - info.latency.total_seconds()) < NEAR_S
    assert bool(told["latency_msec"]) == bool(info.latency)
    assert abs(datetime.fromisoformat(told["timestamp"]) - info.timestamp) < timedelta(seconds=NEAR_S)


def day(stats: DailyStats) -> dict[str, Any]:
    return {
        "queue": stats.queue,
        "processed": stats.processed,
        "succeeded": stats.processed - stats.failed,
        "failed": stats.failed,
        "date": stats.date.isoformat(),
    }


def still(scene: Scene) -> list[str]:
    """Return the queues in which nothing moves."""
    return [queue for queue in scene.inspector.queues() if queue != TICKING]


def test_it_shows_queues_and_their_history_as_our_inspector_does(shown: Asynqmon, scene: Scene) -> None:
    told = {snapshot["queue"]: snapshot for snapshot in shown.get("queues")["queues"]}
    assert sorted(told) == scene.inspector.queues()
    for queue in still(scene):
        info = scene.inspector.get_queue_info(queue)
        check_snapshot(told[queue], info)
        one = shown.get("queues", queue)
        check_snapshot(one["current"], info)
        assert one["history"] == [day(stats) for stats in scene.inspector.history(queue, 10)]
    assert told["critical:1"]["paused"]
    stats = shown.get("queue_stats")["stats"]
    assert sorted(stats) == scene.inspector.queues()
    for queue in still(scene):
        assert stats[queue] == [day(stats) for stats in scene.inspector.history(queue, 90)]
    assert stats[BUSY][0]["failed"] == 3


def test_it_lists_tasks_of_every_state_as_our_inspector_does(shown: Asynqmon, scene: Scene) -> None:
    workers = {worker.task_id: worker for server in scene.inspector.servers() for worker in server.active_workers}
    seen = set()
    for queue in still(scene):
        for state in LISTED:
            infos = list(scene.inspector.iter_tasks(queue, state))
            told = shown.get("queues", queue, f"{state}_tasks", size=BIG)
            assert list(map(read, told["tasks"])) == [in_list(info, workers) for info in infos]
            check_snapshot(told["stats"], scene.inspector.get_queue_info(queue))
            if state is TaskState.COMPLETED:
                check_time_left(told["tasks"], infos)
            seen |= {state} if infos else set()
            compare_details(shown, infos)
    assert seen == set(LISTED)
    pages = [shown.get("queues", "default", "pending_tasks", size=3, page=page)["tasks"] for page in (1, 2, 100)]
    ours = [scene.inspector.list_pending_tasks("default", page_size=3, page=page) for page in (1, 2, 100)]
    assert [[task["id"] for task in page] for page in pages] == [[info.id for info in page] for page in ours]


def check_time_left(told: list[dict[str, Any]], infos: list[TaskInfo]) -> None:
    for task, info in zip(told, infos, strict=True):
        assert info.completed_at is not None
        left_s = (info.completed_at + info.retention - datetime.now(UTC)).total_seconds()
        assert abs(task["ttl_seconds"] - left_s) < NEAR_S


def compare_details(shown: Asynqmon, infos: list[TaskInfo]) -> None:
    for info in infos[:20]:
        told = shown.get("queues", info.queue, "tasks", info.id)
        told.pop("ttl_seconds")
        times = ("last_failed_at", "deadline", "completed_at", "next_process_at")
        told |= {name: told_second(told[name]) for name in times}
        if info.state is TaskState.PENDING:
            told["next_process_at"] = second(info.next_process_at)  # now, whenever that is
        assert told == base(info) | {
            "state": info.state.value,
            "last_failed_at": second(info.last_failed_at),
            "timeout_seconds": int(info.timeout.total_seconds()),
            "deadline": second(info.deadline),
            "next_process_at": second(info.next_process_at),
            "completed_at": second(info.completed_at),
            "result": shown_bytes(info.result or b""),
        }


def test_it_shows_groups_and_what_waits_in_them(shown: Asynqmon, scene: Scene) -> None:
    count = 0
    for queue in still(scene):
        groups = {group.group: group.size for group in scene.inspector.groups(queue)}
        told = shown.get("queues", queue, "groups")
        assert {group["group"]: group["size"] for group in told["groups"]} == groups
        for group in groups:
            told = shown.get("queues", queue, "groups", group, "aggregating_tasks", size=BIG)
            infos = list(scene.inspector.iter_tasks(queue, TaskState.AGGREGATING, group=group))
            assert list(map(read, told["tasks"])) == [in_list(info, {}) for info in infos]
            compare_details(shown, infos)
            count += len(infos)
    assert count > 10


def test_it_shows_our_server_and_what_it_runs(shown: Asynqmon, scene: Scene) -> None:
    (told,) = shown.get("servers")["servers"]
    (server,) = scene.inspector.servers()
    (worker,) = server.active_workers
    told["start_time"] = told_second(told["start_time"])
    told["active_workers"][0]["start_time"] = told_second(told["active_workers"][0]["start_time"])
    assert told == {
        "id": server.id,
        "host": server.host,
        "pid": scene.worker_pid,
        "concurrency": server.concurrency,
        "queue_priorities": {BUSY: 3, "idle": 1},
        "strict_priority_enabled": True,
        "start_time": second(server.started),
        "status": "active",
        "active_workers": [
            {
                "task_id": "active",
                "queue": BUSY,
                "task_type": "wait",
                "task_payload": "non-printable bytes",
                "start_time": second(worker.start_time),
            }
        ],
    }


def test_it_shows_our_scheduler_and_what_it_enqueued(shown: Asynqmon, scene: Scene) -> None:
    def told() -> list[dict[str, Any]]:
        entries = shown.get("scheduler_entries")["entries"]
        times = {"next_enqueue_at", "prev_enqueue_at"}
        return sorted(({k: told_second(v) if k in times else v for k, v in e.items()} for e in entries), key=str)

    def ours() -> list[dict[str, Any]]:
        found = []
        for entry in scene.inspector.scheduler_entries():
            previous = {"prev_enqueue_at": second(entry.prev_enqueue_time)} if entry.prev_enqueue_time else {}
            found.append(
                {
                    "id": entry.id,
                    "spec": entry.spec,
                    "task_type": entry.task_type,
                    "task_payload": shown_bytes(entry.task_payload),
                    "options": list(entry.enqueue_options),
                    "next_enqueue_at": second(entry.next_enqueue_time),
                }
                | previous
            )
        return sorted(found, key=str)

    wait_until(lambda: told() == ours() and any("prev_enqueue_at" in entry for entry in ours()))
    assert len(ours()) == len(scene.entries)
    first = scene.inspector.list_scheduler_enqueue_events(scene.entries[0], page_size=BIG)
    events = shown.get("scheduler_entries", scene.entries[0], "enqueue_events", size=BIG)["events"]
    assert [(event["task_id"], told_second(event["enqueued_at"])) for event in events][-len(first) :] == [
        (event.task_id, second(event.enqueue_time)) for event in first
    ]


def test_it_shows_the_same_redis(
    shown: Asynqmon, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    told = shown.get("redis_info")
    ours = Fastq(scene.redis.url).json("stats")["redis"]
    lasting = ("redis_version", "run_id", "process_id", "tcp_port", "maxmemory_policy", "role", "os")
    assert {name: told["info"][name] for name in lasting} == {name: ours[name] for name in lasting}
    assert (told["address"], told["cluster"]) == (scene.redis.socket_path, False)
    assert "<title>" in shown.page()


# It acts ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(redis_url: str) -> Iterator[Inspector]:
    """Give our inspector on a queue with tasks of fastq's that have headers, locks and groups."""
    with Client(redis_url) as client, Inspector(redis_url) as inspector:
        for state, options in (("pending", {}), ("scheduled", {"process_in": 3600}), ("aggregating", {"group": "g"})):
            for n in range(6):
                client.enqueue(
                    "t", f"{state} {n}", queue="q", task_id=f"{state}-{n}", unique=3600, headers={"h": "1"}, **options
                )
        yield inspector


def state_of(inspector: Inspector, task_id: str) -> str:
    try:
        info = inspector.get_task_info("q", task_id)
    except TaskNotFoundError:
        return ""
    assert dict(info.headers) == {"h": "1"}  # of which its asynq knows nothing
    return info.state.value


WHERE = {"pending": "pending_tasks", "scheduled": "scheduled_tasks", "aggregating": "groups/g/aggregating_tasks"}


@pytest.mark.parametrize("state", WHERE)
def test_its_buttons_for_one_task_and_for_some_do_what_they_say(
    monitor: Asynqmon, filled: Inspector, state: str
) -> None:
    where = ("queues", "q", *WHERE[state].split("/"))
    some = (*where[:-1], f"{where[-1]}:")
    monitor.do("DELETE", *where, f"{state}-0")
    monitor.do("POST", *where, f"{state}-1:archive")
    path = (*some[:-1], f"{some[-1]}batch_delete")
    told = monitor.do("POST", *path, body={"task_ids": [f"{state}-2", "nobody"]})
    assert told == {"deleted_ids": [f"{state}-2"], "failed_ids": ["nobody"]}
    told = monitor.do("POST", *some[:-1], f"{some[-1]}batch_archive", body={"task_ids": [f"{state}-3"]})
    assert told == {"archived_ids": [f"{state}-3"], "error_ids": []}
    if state != "pending":
        monitor.do("POST", *where, f"{state}-4:run")
        told = monitor.do("POST", *some[:-1], f"{some[-1]}batch_run", body={"task_ids": [f"{state}-5"]})
        assert told == {"pending_ids": [f"{state}-5"], "error_ids": []}
    states = [state_of(filled, f"{state}-{n}") for n in range(6)]
    assert states == ["", "archived", "", "archived", "pending", "pending"]


def test_its_buttons_for_all_tasks_do_what_they_say(monitor: Asynqmon, filled: Inspector) -> None:
    aggregating = ("queues", "q", "groups", "g")
    assert monitor.do("POST", *aggregating, "aggregating_tasks:run_all") == {"scheduled": 6}
    assert filled.get_queue_info("q").pending == 12
    assert monitor.do("POST", "queues", "q", "pending_tasks:archive_all") == {"archived": 12}
    assert monitor.do("POST", "queues", "q", "scheduled_tasks:archive_all") == {"archived": 6}
    assert filled.get_queue_info("q").archived == 18
    assert monitor.do("POST", "queues", "q", "archived_tasks:run_all") == {"scheduled": 18}
    assert filled.get_queue_info("q").pending == 18
    assert monitor.do("DELETE", "queues", "q", "pending_tasks:delete_all") == {"deleted": 18}
    assert filled.get_queue_info("q").size == 0


def test_it_pauses_resumes_and_deletes_a_queue(monitor: Asynqmon, filled: Inspector) -> None:
    monitor.do("POST", "queues", "q:pause")
    assert filled.get_queue_info("q").paused
    assert monitor.refusal("POST", "queues", "q:pause")[0] == 500
    monitor.do("POST", "queues", "q:resume")
    assert not filled.get_queue_info("q").paused
    assert monitor.refusal("DELETE", "queues", "q")[0] == 400
    for state in ("pending", "scheduled"):
        filled.delete_all_tasks("q", state)
    filled.delete_all_aggregating_tasks("q", "g")
    monitor.do("DELETE", "queues", "q")
    with pytest.raises(QueueNotFoundError):
        filled.get_queue_info("q")
    assert monitor.refusal("GET", "queues", "q", "tasks", "gone")[0] == 404


def test_it_cancels_what_our_worker_runs(
    monitor: Asynqmon, db: redis.Redis, redis_url: str, tmp_path: Path, inspector: Inspector
) -> None:
    with Client(redis_url) as client, workers_on(redis_url, tmp_path) as workers:
        client.enqueue("clean", task_id="it")
        worker = workers.start("--concurrency", "1").is_ready()
        View(db).expect("started", "it")
        monitor.do("POST", "queues", "default", "active_tasks", "it:cancel")
        wait_until(lambda: inspector.get_task_info("default", "it").state is TaskState.RETRY)
        (told,) = monitor.get("queues", "default", "retry_tasks")["tasks"]
        assert told["error_message"].startswith("TaskCanceled: ")
        assert told["error_message"] == inspector.get_task_info("default", "it").last_err
        assert worker.stop() == 0

"""The drill of docs/leaving.md: fastq fills queues of every kind and goes, and a Go server alone drains them."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from fastq import App, AsyncClient, Client, DuplicateTaskError, Handle, Inspector, Scheduler, Task, TaskInfo, TaskState
from fastq.contrib.celery import Celery
from fastq.inspector.doctor.key_kinds import KeyKind, name_key
from fastq.wire import keys
from tests.cli.commands import Fastq
from tests.e2e.apps import EVENTS
from tests.e2e.harness import ROOT, Workers, workers_on
from tests.interop.peer import SECOND_NS, GoPeer
from tests.interop.records import Execution
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.interop
pytest.importorskip("django")

COUNT = 5
HOUR = timedelta(hours=1)
DEADLINE = datetime.now(UTC).replace(microsecond=0) + HOUR
RESULT = {"script": json.dumps({"do": "result", "result": "eyJzdW0iOjd9"})}  # {"sum":7}
PLAIN: dict[str, dict[str, Any]] = {
    "pending": {},
    "scheduled": {"process_in": HOUR},
    "group": {"group": "g"},
    "scheduled group": {"group": "later", "process_in": HOUR},
    "unique": {"unique": HOUR},
    "retention": {"retention": HOUR, "headers": RESULT},
    "timeout": {"timeout": 60},
    "deadline": {"deadline": DEADLINE},
    "headers": {"headers": {"trace": "7", "é": "ü"}},
    "max_retry": {"max_retry": 0},
    "paused": {},
}
"""The kinds that one client enqueues with some options; the queue of each has its name."""
RUN_BEFORE = {"retry": ("fail", "no"), "archived": ("skip", "bad"), "completed": ("echo", {"kept": True})}
"""The kinds that a worker of fastq makes: a type and payload whose run ends so."""
GROUPED = {"group", "scheduled group"}
GO_SERVER: dict[str, Any] = {
    "concurrency": 10,
    "task_check_ns": SECOND_NS // 100,
    "delayed_task_check_ns": SECOND_NS // 10,
    "groups": {"grace_ns": SECOND_NS, "max_delay_ns": HOUR // timedelta(microseconds=1) * 1000, "max_size": COUNT},
}
DJANGO = f"""
import sys
from tests.contrib.django.conftest import BACKEND
from django.test import override_settings
from tests.contrib.django import jobs
backend = {{"BACKEND": BACKEND, "QUEUES": ["Django"], "OPTIONS": {{"redis": sys.argv[1]}}}}
with override_settings(TASKS={{"default": backend}}):
    for number in range({COUNT}):
        jobs.add.using(queue_name="Django").enqueue(number, right=1)
"""
"""A process of its own, since Django keeps its settings for good."""


@dataclass
class Site:
    """A Redis that fastq fills and leaves."""

    url: str
    db: redis.Redis
    workers: Workers
    inspector: Inspector
    handles: list[Handle[Any]] = field(default_factory=list)

    def size(self, queue: str, state: str) -> int:
        return self.inspector.count_tasks(queue, state) if queue in self.inspector.queues() else 0

    def tasks(self, queue: str) -> Iterator[TaskInfo]:
        """Read all tasks of a queue."""
        for state in set(TaskState) - {TaskState.AGGREGATING}:
            yield from self.inspector.iter_tasks(queue, state)
        for each in self.inspector.groups(queue):
            yield from self.inspector.iter_tasks(queue, TaskState.AGGREGATING, group=each.group)


@pytest.fixture
def site(redis_url: str, db: redis.Redis, tmp_path: Path) -> Iterator[Site]:
    with workers_on(redis_url, tmp_path) as workers, Inspector(redis_url) as inspector:
        yield Site(redis_url, db, workers, inspector)


def some(queue: str, type: str = "t", **options: Any) -> list[Task]:
    return [Task(type, {"n": number}, queue=queue, **options) for number in range(COUNT)]


# What fastq leaves ----------------------------------------------------------------------------------------------------


def fill_with_options(site: Site) -> None:
    with Client(site.url) as client:
        for queue, options in PLAIN.items():
            client.enqueue_many(some(queue, **options))
        with pytest.raises(DuplicateTaskError):
            client.enqueue(some("unique", unique=HOUR)[0])
    site.inspector.pause_queue("paused")


def fill_by_every_client(site: Site) -> None:
    with Client(site.url) as client:
        for task in some("enqueue"):
            client.enqueue(task)
        site.handles += client.submit_many(some("submit", headers=RESULT, retention=HOUR)[1:])
        site.handles.append(client.submit(some("submit", headers=RESULT, retention=HOUR)[0]))
    asyncio.run(fill_by_coroutines(site.url))
    fill_by_functions(site.url)
    command = Fastq(site.url)
    for number in range(COUNT):
        command.done("task", "enqueue", "-t", "t", "-q", "command", "-l", f'{{"n": {number}}}')
    site.inspector.import_tasks(list(site.inspector.export_tasks("pending")), queue="import")
    subprocess.run([sys.executable, "-c", DJANGO, site.url], cwd=ROOT, check=True)


async def fill_by_coroutines(url: str) -> None:
    async with AsyncClient(url) as client:
        first, second, *others = some("asyncio")
        await client.enqueue(first)
        await client.submit(second)
        await client.enqueue_many(others)


def fill_by_functions(url: str) -> None:
    app, celery = App(url), Celery("leaving", broker=url)

    @app.task("typed", queue="typed")
    def typed(number: int, at: datetime) -> None: ...

    @celery.task(name="celery.add", queue="Celery")  # type: ignore[untyped-decorator,unused-ignore]  # as Celery's is
    def add(left: int, right: int) -> int:
        return left + right

    typed.enqueue(0, DEADLINE)
    typed.submit(1, DEADLINE)
    typed.enqueue_many([typed.task(number, DEADLINE) for number in range(2, COUNT)])
    for number in range(COUNT):
        add.delay(number, right=1)
    app.close()


def tick(site: Site) -> None:
    """Let a scheduler enqueue a task some times."""
    with Scheduler(site.url) as scheduler:
        scheduler.register("@every 1s", Task("t", {"n": 1}), "named", missed="once", queue="periodic")
        scheduler.register("@every 1s", Task("t", {"n": 2}), queue="periodic")
        wait_until(lambda: site.size("periodic", "pending") >= COUNT)


def work_and_stop(site: Site) -> None:
    """Let a worker run some tasks, and stop in the middle of others."""
    flags = ("--concurrency", "2", "--archive-max", "20000", "--shutdown-timeout", "0.1")
    queues = ",".join([*(f"{queue}=1" for queue in RUN_BEFORE), "given back=1"])
    worker = site.workers.start("--queues", queues, *flags).is_ready()
    with Client(site.url) as client:
        for queue, (type, payload) in RUN_BEFORE.items():
            client.enqueue_many([Task(type, payload, queue=queue, retention=HOUR) for _ in range(COUNT)])
        for queue in RUN_BEFORE:
            wait_until(partial(lambda queue: site.size(queue, queue) == COUNT, queue))
        client.enqueue_many(some("given back", "wait"))
    wait_until(lambda: site.size("given back", "active") > 0)
    assert worker.stop() == 0, worker.text
    site.db.delete(EVENTS)


def work_and_be_killed(site: Site) -> None:
    """Let a worker die with tasks in its hands, and its heartbeat expire."""
    worker = site.workers.start("--queues", "killed=1", "--concurrency", str(COUNT)).is_ready()
    with Client(site.url) as client:
        client.enqueue_many(some("killed", "wait"))
    wait_until(lambda: site.size("killed", "active") == COUNT)
    worker.signal(signal.SIGKILL)
    worker.ended()
    worker.leaves_nothing()
    let_an_hour_pass(site, "", lambda _: keys.all_servers())
    site.db.delete(EVENTS)


# What Go does with it -------------------------------------------------------------------------------------------------


def let_an_hour_pass(site: Site, queue: str, place: Callable[[str], str]) -> None:
    """Let all tasks of a place be due."""
    ids: list[bytes] = site.db.zrange(place(queue), 0, -1)  # type: ignore[assignment]  # not awaitable
    if ids:
        site.db.zadd(place(queue), dict.fromkeys(ids, 1))


def counts(go: GoPeer, queue: str) -> Counter[str]:
    info = go.inspect("GetQueueInfo", queue)
    return Counter({state.value: info[state.value] for state in TaskState})


def expected_runs(before: dict[str, list[TaskInfo]]) -> int:
    return sum(1 if queue in GROUPED else 0 if queue == "completed" else len(tasks) for queue, tasks in before.items())


def check_runs(queue: str, tasks: list[TaskInfo], runs: list[Execution]) -> None:
    """See that each task ran once, and as it was enqueued."""
    assert [run.outcome for run in runs] == ["ok"] * len(runs)
    if queue in GROUPED:
        (run,) = runs
        assert len(json.loads(run.payload or b"")["tasks"]) == len(tasks)
        return
    told = {run.id: (run.type, run.payload, run.headers or {}, run.max_retry) for run in runs}
    kept = [info for info in tasks if info.state is not TaskState.COMPLETED]
    assert told == {info.id: (info.type, info.payload, dict(info.headers), info.max_retry) for info in kept}
    assert len(runs) == len(kept)


def test_a_go_server_alone_drains_all_that_fastq_leaves(site: Site, go: GoPeer) -> None:
    fill_with_options(site)
    fill_by_every_client(site)
    tick(site)
    work_and_stop(site)
    work_and_be_killed(site)
    before = {queue: list(site.tasks(queue)) for queue in site.inspector.queues()}
    assert all(len(tasks) == COUNT for queue, tasks in before.items() if queue != "periodic"), before
    left_by_fastq = site.inspector.own_keys()
    assert left_by_fastq.keys() == {
        *(
            "archive_rule",
            "error",
            "errors",
            "fastq",
            "history",
            "last_tick",
            "scheduled_groups",
            "scheduler_ticks",
            "tick",
        )
    }
    left = Fastq(site.url).json("leave", "--yes")
    assert left["count"] == sum(left_by_fastq.values())

    runs = drain(site, go, before)
    print(f"\n{'kind':<16} {'left by fastq':<16} {'runs':>5} {'kept':>5} {'left':>5}")  # noqa: T201 - the drill's table
    for queue, tasks in sorted(before.items()):
        after = counts(go, queue)
        kept = after.pop("completed", 0)
        states = ", ".join(f"{n} {state}" for state, n in Counter(str(info.state) for info in tasks).items())
        print(f"{queue:<16} {states:<16} {len(runs[queue]):>5} {kept:>5} {after.total():>5}")  # noqa: T201 - as above
        check_runs(queue, tasks, runs[queue])
        assert (after.total(), kept) == (0, sum(info.retention > timedelta() for info in tasks)), queue
    check_what_options_ask_for(runs)
    assert [handle.result(timeout=PATIENCE_S) for handle in site.handles] == [b'{"sum":7}'] * COUNT
    assert go.task_info("completed", before["completed"][0].id).result == b'{"kept":true}'

    forget_what_is_kept(site, go, list(before))
    named = [name_key(key.decode()) for key in site.db.scan_iter(count=1000)]
    assert [each for each in named if each.is_own or each.kind in (KeyKind.UNKNOWN, KeyKind.TASK, KeyKind.LOCK)] == []


def drain(site: Site, go: GoPeer, before: dict[str, list[TaskInfo]]) -> dict[str, list[Execution]]:
    """Let a Go server run all that there is, and return its runs by queue."""
    let_an_hour_pass(site, "killed", keys.lease)
    go.request("tend", rounds=[{"actor": "recoverer", "queue": "killed"}])
    for queue in ("retry", "killed"):
        let_an_hour_pass(site, queue, keys.retry)
    for queue in ("scheduled", "scheduled group"):
        let_an_hour_pass(site, queue, keys.scheduled)
    assert go.inspect("RunAllArchivedTasks", "archived") == COUNT
    go.inspect("UnpauseQueue", "paused")
    groups = {**GO_SERVER["groups"], "type": "grouped"}
    with go.server(queues=dict.fromkeys(before, 1), **{**GO_SERVER, "groups": groups}):
        runs = go.executions(finished=expected_runs(before))
    return {queue: [run for run in runs if run.queue == queue] for queue in before}


def check_what_options_ask_for(runs: dict[str, list[Execution]]) -> None:
    limits = [(run.deadline_ns or 0) - run.start_ns for run in runs["timeout"]]
    assert all(0 < limit <= 60 * SECOND_NS for limit in limits), limits
    assert {run.deadline_ns for run in runs["deadline"]} == {round(DEADLINE.timestamp()) * SECOND_NS}
    assert {run.retried for run in [*runs["retry"], *runs["killed"]]} == {1}
    assert all({"fastq-inbox", "fastq-submit"} <= (run.headers or {}).keys() for run in runs["submit"])


def forget_what_is_kept(site: Site, go: GoPeer, queues: list[str]) -> None:
    """Let the retentions end, and Go's janitor delete these tasks."""
    for queue in queues:
        let_an_hour_pass(site, queue, keys.completed)
    with go.server(queues=dict.fromkeys(queues, 1), janitor_interval_ns=SECOND_NS // 10):
        wait_until(lambda: not any(site.size(queue, "completed") for queue in queues))

"""Go's and fastq's clients, servers, inspectors and schedulers on one Redis at once, and every task accounted for."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pytest
import redis

from fastq import Inspector, Scheduler, Task, TaskInfo
from fastq.wire import keys
from tests.e2e.harness import Worker, Workers, workers_on
from tests.interop.crowd import app
from tests.interop.crowd.books import Run, TaskKey, fastq_runs, go_runs, part_numbers, runs_by_task
from tests.interop.crowd.comparing import (
    agreed_counters,
    agreed_tasks,
    entries_agree,
    events_agree,
    hashes,
    is_settled,
    servers_agree,
)
from tests.interop.crowd.inspecting import Actors, at_it, cancel_waiting, look_around, pause_and_resume
from tests.interop.crowd.plan import QUEUES, SHELF, Job, make_plan
from tests.interop.crowd.producers import Enqueued, enqueue_all
from tests.interop.peer import SECOND_NS, GoPeer
from tests.interop.records import GoTask
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

COUNT = 10_000
SEED = 20261121
PATIENCE_S = 300.0
HOUR_NS = 3600 * SECOND_NS
TICKS = 3
GROUPS = {"grace_ns": SECOND_NS, "max_delay_ns": 2 * SECOND_NS, "max_size": 25, "type": app.AGGREGATED}
GO_SERVER: dict[str, Any] = {
    "queues": QUEUES,
    "concurrency": 3,
    "retry_delay_ns": round(app.RETRY_DELAY_S * SECOND_NS),
    "task_check_ns": SECOND_NS // 50,
    "delayed_task_check_ns": SECOND_NS // 10,
    "groups": GROUPS,
}
FASTQ_SERVER: dict[str, Any] = {
    "queues": QUEUES,
    "concurrency": 3,
    "async_concurrency": 8,
    "delayed_task_check_interval": 0.1,
    "retry_delay": f"{app.__name__}:retry_delay",
    "group_aggregator": f"{app.__name__}:aggregate",
    "group_grace_period": 1,
    "group_max_delay": 2,
    "group_max_size": 25,
}
SERVERS = 4


class Crowd:
    """All who take part: two processes of Go's, one that serves and one that does the rest; two servers of fastq's."""

    def __init__(self, go: GoPeer, serving: GoPeer, workers: Workers, inspector: Inspector) -> None:
        self.go = go
        self.serving = serving
        self.workers = workers
        self.inspector = inspector
        self.enqueued: list[Enqueued] = []
        self.ticked: list[str] = []
        self.running: list[Worker] = []
        self._lock = Lock()

    @property
    def url(self) -> str:
        return self.workers.url

    @property
    def directory(self) -> Path:
        return self.workers.directory

    def hear(self, enqueued: Enqueued) -> None:
        with self._lock:
            self.enqueued.append(enqueued)

    def start_servers(self) -> None:
        timing = {"recoverer_interval_s": 1.0, "heartbeat_interval_s": 1.0, "settle_s": 3.0}
        self.running = [
            self.workers.start_timed(timing, f"{app.__name__}:mux", **FASTQ_SERVER, strict_priority=strict)
            for strict in (False, True)
        ]
        for name, strict in (("a", False), ("b", True)):
            self.serving.request("server_start", name=name, strict=strict, **GO_SERVER)
        for worker in self.running:
            worker.is_ready()

    def stop_servers(self) -> None:
        for name in ("a", "b"):
            self.serving.request("server_shutdown", name=name)
        for worker in self.running:
            assert worker.stop() == 0, worker.text

    def runs(self) -> list[Run]:
        return go_runs(self.serving) + fastq_runs(self.directory)

    @contextmanager
    def schedulers(self) -> Iterator[list[str]]:
        """Run Go's scheduler and two of fastq's that share an entry; give the entries' ids."""
        task = GoTask("tick", b'{"tick": "go"}', None, {"queue": "default", "retention_ns": HOUR_NS})
        entries = [{"spec": "@every 1s", "task": task.params()}]
        ids: list[str] = self.go.request("scheduler_start", name="s", heartbeat_ns=SECOND_NS, entries=entries)
        with ExitStack() as stack:
            for own in ("one", "two"):
                scheduler = stack.enter_context(Scheduler(self.url, heartbeat_interval=1, post_enqueue=self.hear_tick))
                ids.append(scheduler.register("@every 1s", tick(own), queue="critical", retention=3600))
                ids.append(scheduler.register("@every 1s", tick("shared"), "shared", queue="low:1", retention=3600))
            yield ids
            self.go.request("scheduler_shutdown", name="s")

    def hear_tick(self, info: TaskInfo | None, error: BaseException | None) -> None:
        if error is not None:
            self.ticked.append(f"{error!r}")
        elif info is not None:
            self.ticked.append(info.id)


def tick(name: str) -> Task:
    return Task("tick", {"tick": name})


@pytest.fixture
def crowd(go: GoPeer, peer_binary: Path, redis_socket: Path, redis_url: str, tmp_path: Path) -> Iterator[Crowd]:
    with ExitStack() as stack:
        serving = stack.enter_context(GoPeer(peer_binary))
        serving.request("connect", socket=str(redis_socket))
        workers = stack.enter_context(workers_on(redis_url, tmp_path))
        inspector = stack.enter_context(Inspector(redis_url))
        yield Crowd(go, serving, workers, inspector)


@pytest.mark.slow
def test_ten_thousand_tasks_among_all_who_take_part_are_all_accounted_for(crowd: Crowd, db: redis.Redis) -> None:
    jobs = make_plan(COUNT, SEED)
    crowd.start_servers()
    with crowd.schedulers() as entries:
        live_through(crowd, jobs, entries, db)
    wait_until(partial(is_settled, db, QUEUES), PATIENCE_S, interval_s=0.1)
    wait_until(partial(servers_agree, crowd.go, crowd.inspector, SERVERS), PATIENCE_S, interval_s=0.1)
    families = [{str(pid) for pid in worker.family()} for worker in crowd.running]
    crowd.stop_servers()
    for worker in crowd.running:
        sys.stdout.write(worker.text)  # shown with a failure
    assert crowd.go.inspect("Servers") == crowd.inspector.servers() == []
    close_the_books(crowd, jobs, families, db)


def live_through(crowd: Crowd, jobs: Sequence[Job], entries: Sequence[str], db: redis.Redis) -> None:
    """Let all be at it, until no more is to come but ticks."""
    go, inspector = crowd.go, crowd.inspector
    actors = Actors(go, inspector, SEED)
    acting = Thread(target=actors.work)

    def hear(enqueued: Enqueued) -> None:
        crowd.hear(enqueued)
        actors.hear(enqueued)

    canceled: set[TaskKey] = set()
    with at_it(
        lambda _: look_around(go, inspector),
        lambda turn: pause_and_resume(go, inspector, turn),
        lambda _: cancel_waiting(crowd.serving, go, inspector, crowd.directory, canceled),
    ):
        acting.start()
        try:
            enqueue_all(jobs, go, crowd.url, hear)
        finally:
            actors.end()
            acting.join()
        wait_until(partial(entries_agree, go, inspector, len(entries)), PATIENCE_S, interval_s=0.1)
        wait_until(lambda: sum(events_agree(go, inspector, entry) for entry in entries) >= 4 * TICKS, PATIENCE_S)
        waiting = [job for job in jobs if job.type == "job:cancel"]
        wait_until(lambda: len(canceled) == len(waiting), PATIENCE_S)
    assert actors.done == sum(len(job.acts) for job in jobs)


# The books ----------------------------------------------------------------------------------------------------------


def close_the_books(crowd: Crowd, jobs: Sequence[Job], families: Sequence[set[str]], db: redis.Redis) -> None:
    """Compare the recorded runs, and the reports of both inspectors, with the plan."""
    runs = crowd.runs()
    for part in [{"go a"}, {"go b"}, *families]:
        assert any(run.server in part for run in runs), (part, Counter(run.server for run in runs))
    of_task = runs_by_task(runs)
    names = [*QUEUES, SHELF]
    tasks: dict[TaskKey, TaskInfo] = {}
    for queue in names:
        tasks |= agreed_tasks(crowd.go, crowd.inspector, queue)
        assert hashes(db, queue) == {key for key in tasks if key[0] == queue}
    enqueued = check_enqueued(crowd.enqueued, jobs)
    parts = Counter(
        n for runs in of_task.values() if runs[0].type == app.AGGREGATED for n in part_numbers(runs[0].payload)
    )
    assert parts == Counter({job.number: 1 for job in enqueued.values() if job.is_grouped})
    for key, job in enqueued.items():
        check_runs(job, of_task.pop(key, []))
        check_task(job, tasks.pop(key, None), db)
    check_ticks(crowd, of_task, tasks)
    assert {runs[0].type for runs in of_task.values()} == {"tick", app.AGGREGATED}
    assert all([run.outcome for run in runs] == ["ok"] for runs in of_task.values())
    for queue in names:
        extra = sum(key[0] == queue for key in of_task)
        check_counters(crowd, queue, [job for job in enqueued.values() if job.queue == queue], extra)


def check_enqueued(told: Sequence[Enqueued], jobs: Sequence[Job]) -> dict[TaskKey, Job]:
    """Return the jobs that were taken; of twins it is one, and the other was told why not."""
    assert sorted(each.job.number for each in told) == [job.number for job in jobs]
    taken = {each.job.number for each in told if each.task_id}
    for each in told:
        if each.refusal:
            assert each.refusal == ("duplicate" if "unique" in each.job.options else "id_conflict"), each
            assert each.job.twin in taken, each
    assert len(jobs) - len(taken) == sum(job.twin is not None for job in jobs) // 2
    found = {(each.job.queue, each.task_id): each.job for each in told if each.task_id}
    assert len(found) == len(taken)
    return found


def check_runs(job: Job, runs: Sequence[Run]) -> None:
    wanted = job.expected.runs
    assert len(runs) == len(wanted), [(run.server, run.retried, run.start_ns, run.outcome) for run in runs]
    for number, (run, words) in enumerate(zip(runs, wanted, strict=True)):
        assert any(word in run.outcome for word in words), (job, run)
        assert run.retried == number, (job, run)
        payload = job.new_payload() if "update" in job.acts else job.payload
        assert (run.type, run.payload, run.headers) == (job.type, payload, job.headers or {}), (job, run)


def check_task(job: Job, info: TaskInfo | None, db: redis.Redis) -> None:
    expected = job.expected
    state = "" if info is None else info.state.value
    assert state == expected.state, (job, info)
    if "unique" in job.options and "group" not in job.options and info is not None:
        payload = job.payload
        lock = db.get(keys.unique(job.queue, job.type, payload))
        assert lock == (None if state == "completed" else info.id.encode()), (job, info)
    if info is None:
        return
    assert info.retried == expected.retried, (job, info)
    assert any(word in info.last_err for word in expected.error), (job, info)
    assert bool(info.last_err) == (expected.error != ("",)) == bool(info.last_failed_at), (job, info)
    assert (info.result or b"") == expected.result, (job, info)
    assert info.max_retry == job.options.get("max_retry", 25)


def check_ticks(crowd: Crowd, of_task: Mapping[TaskKey, Sequence[Run]], rest: Mapping[TaskKey, TaskInfo]) -> None:
    """See that what is left are the schedulers' tasks, and that each ran."""
    ran = {key: runs[0].payload for key, runs in of_task.items() if runs[0].type == "tick"}
    assert rest.keys() == ran.keys()
    assert all((info.type, info.state) == ("tick", "completed") for info in rest.values())
    ours = [key[1] for key, payload in ran.items() if payload != b'{"tick": "go"}']
    assert sorted(ours) == sorted(crowd.ticked)


def check_counters(crowd: Crowd, queue: str, jobs: Sequence[Job], extra: int) -> None:
    """See that both inspectors count as many runs and failures as there were; ``extra`` are those beside the jobs'."""
    info = agreed_counters(crowd.go, crowd.inspector, queue)
    assert info.processed_total == sum(job.expected.processed for job in jobs) + extra
    assert info.failed_total == sum(job.expected.failed for job in jobs)
    assert not info.paused

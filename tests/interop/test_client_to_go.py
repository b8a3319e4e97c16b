"""What fastq's client enqueues, Go asynq's inspector reads and its server runs, field for field."""

import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from fastq import Client, DuplicateTaskError, Task, TaskIDConflictError, TaskInfo
from tests.interop.peer import GoPeer
from tests.interop.records import Execution, GoTask, GoTaskInfo, PeerError
from tests.interop.samples import COMBINATIONS, QUEUES, SECOND_NS, Sample, samples, unix_ns

pytestmark = pytest.mark.interop

COUNT = 1000
SEED = 20251122
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Sent:
    """A sample, what fastq returned for it, and between which times (unix, ns) it was enqueued."""

    sample: Sample
    info: TaskInfo
    since_ns: int
    until_ns: int


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    with Client(redis_url) as client:
        yield client


def enqueue_one(client: Client, sample: Sample, chance: random.Random) -> TaskInfo:
    """Give each option to the Task or to the call, by chance."""
    options = sample.options() | ({"headers": sample.headers} if sample.headers else {})
    to_task = {name: value for name, value in options.items() if chance.random() < 0.5}
    to_call = {name: value for name, value in options.items() if name not in to_task}
    return client.enqueue(Task(sample.type, sample.payload, **to_task), **to_call)


def enqueue_all(client: Client) -> list[Sent]:
    """Enqueue each combination in turn: once round one by one, the next round with enqueue_many."""
    chance = random.Random(SEED)
    todo = list(samples(COUNT, SEED))
    sent: list[Sent] = []
    rounds = [todo[start : start + len(COMBINATIONS)] for start in range(0, COUNT, len(COMBINATIONS))]
    assert len(rounds) >= 4
    for number, some in enumerate(rounds):
        since_ns = time.time_ns()
        if number % 2:
            tasks = [Task(one.type, one.payload, headers=one.headers, **one.options()) for one in some]
            infos = list(client.enqueue_many(tasks))
        else:
            infos = [enqueue_one(client, one, chance) for one in some]
        until_ns = time.time_ns()
        for one, info in zip(some, infos, strict=True):
            assert isinstance(info, TaskInfo), info
            sent.append(Sent(one, info, since_ns, until_ns))
    return sent


def check_info(sent: Sent, read: GoTaskInfo) -> None:
    """Compare what the inspector reads with the sample."""
    sample = sent.sample
    assert vars(read) == {
        "id": sample.task_id or sent.info.id,
        "queue": sample.queue,
        "type": sample.type,
        "payload": sample.payload or None,
        "headers": sample.headers,
        "state": sample.state,
        "max_retry": 25 if sample.max_retry is None else sample.max_retry,
        "retried": 0,
        "last_err": "",
        "last_failed_at_ns": None,
        "timeout_ns": sample.timeout_s * SECOND_NS,
        "deadline_ns": sample.deadline_s * SECOND_NS or None,
        "group": sample.group or "",
        "next_process_at_ns": read.next_process_at_ns,
        "is_orphaned": False,
        "retention_ns": sample.retention_s * SECOND_NS,
        "completed_at_ns": None,
        "result": None,
    }
    assert sample.task_id or UUID4.fullmatch(read.id)
    check_next_process_at(sent, read.next_process_at_ns)


def check_next_process_at(sent: Sent, found_ns: int | None) -> None:
    sample = sent.sample
    if sample.state == "aggregating":
        assert found_ns is None
    elif sample.state == "pending":  # asynq says now
        assert found_ns is not None
        assert abs(found_ns - time.time_ns()) < 600 * SECOND_NS
    elif sample.process_at is not None:
        assert found_ns == unix_ns(sample.process_at) // SECOND_NS * SECOND_NS
    else:
        assert sample.process_in is not None
        assert found_ns is not None
        delay_ns = sample.process_in // timedelta(microseconds=1) * 1000
        assert sent.since_ns + delay_ns - SECOND_NS < found_ns <= sent.until_ns + delay_ns


def as_go(info: TaskInfo) -> dict[str, Any]:
    """Spell fastq's TaskInfo as the peer does, without next_process_at, which Go reads from another place."""

    def moment(value: datetime | None) -> int | None:
        return None if value is None else unix_ns(value)

    def duration(value: timedelta) -> int:
        return value // timedelta(microseconds=1) * 1000

    return {
        "id": info.id,
        "queue": info.queue,
        "type": info.type,
        "payload": info.payload or None,
        "headers": dict(info.headers) or None,
        "state": info.state,
        "max_retry": info.max_retry,
        "retried": info.retried,
        "last_err": info.last_err,
        "last_failed_at_ns": moment(info.last_failed_at),
        "timeout_ns": duration(info.timeout),
        "deadline_ns": moment(info.deadline),
        "group": info.group,
        "is_orphaned": info.is_orphaned,
        "retention_ns": duration(info.retention),
        "completed_at_ns": moment(info.completed_at),
        "result": info.result,
    }


def check_queues(go: GoPeer, sent: list[Sent]) -> None:
    """Compare what the inspector counts with the samples."""
    counts = Counter((one.sample.queue, one.sample.state) for one in sent)
    assert sorted(go.inspect("Queues")) == sorted(QUEUES)
    for queue in QUEUES:
        facts = go.inspect("GetQueueInfo", queue)
        for state in ("pending", "scheduled", "aggregating"):
            assert facts[state] == counts[queue, state]
        grouped = Counter(
            one.sample.group for one in sent if (one.sample.queue, one.sample.state) == (queue, "aggregating")
        )
        listed = {group["group"]: group["size"] for group in go.inspect("Groups", queue)}
        assert {group: size for group, size in listed.items() if size} == grouped


def check_locks(go: GoPeer, db: redis.Redis, sent: list[Sent]) -> None:
    """Ask Go to enqueue each unique task again: it finds every lock, and the lock is the task's."""
    unique = [one for one in sent if one.sample.unique]
    again = go.enqueue_many(
        GoTask(one.sample.type, one.sample.payload, options={"queue": one.sample.queue, "unique_ns": SECOND_NS})
        for one in unique
    )
    assert [outcome.error_class for outcome in again if isinstance(outcome, PeerError)] == ["duplicate"] * len(unique)
    for one in unique:
        assert db.get(one.sample.lock) == one.info.id.encode()
        assert one.sample.unique is not None
        held_s: Any = db.ttl(one.sample.lock)
        assert -1 < expected_hold_s(one.sample) - held_s < 600


def expected_hold_s(sample: Sample) -> float:
    """Return for how long from now the lock is held: a scheduled task's from its start on."""
    assert sample.unique is not None
    hold = sample.unique + (sample.process_in or timedelta())
    if sample.state == "scheduled" and sample.process_at is not None:
        hold += sample.process_at - datetime.now(sample.process_at.tzinfo)
    return hold.total_seconds()


def make_all_pending(go: GoPeer, sent: list[Sent]) -> None:
    counts = Counter((one.sample.queue, one.sample.state) for one in sent)
    for queue in QUEUES:
        assert go.inspect("RunAllScheduledTasks", queue) == counts[queue, "scheduled"]
        ran = [go.inspect("RunAllAggregatingTasks", queue, group["group"]) for group in go.inspect("Groups", queue)]
        assert sum(ran) == counts[queue, "aggregating"]
        assert go.inspect("GetQueueInfo", queue)["pending"] == sum(
            count for (name, _), count in counts.items() if name == queue
        )


def check_run(sent: Sent, run: Execution, server_start_ns: int) -> None:
    """Compare what the handler was given with the sample."""
    sample = sent.sample
    assert (run.id, run.queue, run.type) == (sent.info.id, sample.queue, sample.type)
    assert (run.payload or b"", run.headers or {}) == (sample.payload or b"", sample.headers or {})
    assert (run.retried, run.max_retry) == (0, 25 if sample.max_retry is None else sample.max_retry)
    assert run.outcome == "ok"
    assert run.deadline_ns is not None
    deadline_ns = sample.deadline_s * SECOND_NS
    if not sample.timeout_s:
        assert run.deadline_ns == deadline_ns
        return
    earliest_ns = server_start_ns + (sample.timeout_s - 1) * SECOND_NS  # Go cuts to whole seconds when both are set
    latest_ns = run.start_ns + sample.timeout_s * SECOND_NS
    if deadline_ns:
        earliest_ns, latest_ns = min(earliest_ns, deadline_ns), min(latest_ns, deadline_ns)
    assert earliest_ns <= run.deadline_ns <= latest_ns


def check_what_is_left(go: GoPeer, db: redis.Redis, sent: list[Sent]) -> None:
    """After the run there are the retained tasks and nothing else: no lock, no lease, no list."""
    kept = Counter(one.sample.queue for one in sent if one.sample.retention)
    for queue in QUEUES:
        facts = go.inspect("GetQueueInfo", queue)
        assert (facts["size"], facts["completed"]) == (kept[queue], kept[queue])
        assert facts["processed_total"] == sum(one.sample.queue == queue for one in sent)
        assert facts["failed_total"] == 0
    for pattern, count in {"asynq:{*}:unique:*": 0, "asynq:{*}:lease": 0, "asynq:{*}:t:*": kept.total()}.items():
        assert sum(1 for _ in db.scan_iter(match=pattern, count=1000)) == count


def test_go_reads_and_runs_a_thousand_tasks_of_fastq(client: Client, go: GoPeer, db: redis.Redis) -> None:
    sent = enqueue_all(client)
    for one in sent:
        read = go.task_info(one.sample.queue, one.info.id)
        check_info(one, read)
        assert as_go(one.info).items() <= vars(read).items()
    check_queues(go, sent)
    check_locks(go, db, sent)
    make_all_pending(go, sent)
    server_start_ns = time.time_ns()
    with go.server(queues=dict.fromkeys(QUEUES, 1), concurrency=20, task_check_ns=SECOND_NS // 100):
        runs: Mapping[tuple[str, str], Execution] = {(run.queue, run.id): run for run in go.executions(finished=COUNT)}
    assert len(runs) == COUNT
    for one in sent:
        check_run(one, runs[one.sample.queue, one.info.id], server_start_ns)
    check_what_is_left(go, db, sent)


def test_tasks_of_go_conflict_with_those_of_fastq(client: Client, go: GoPeer, db: redis.Redis) -> None:
    go.enqueue(GoTask("t", b"p", options={"unique_ns": 3600 * SECOND_NS, "task_id": "of-go"}))
    go.enqueue(GoTask("t", None, options={"unique_ns": 3600 * SECOND_NS, "task_id": "of-go-nil"}))
    keyspace = sorted(db.scan_iter())
    hour = timedelta(hours=1)
    with pytest.raises(DuplicateTaskError):
        client.enqueue(Task("t", b"p", unique=hour))
    with pytest.raises(TaskIDConflictError):
        client.enqueue(Task("other", b"q", task_id="of-go", unique=hour))
    results = client.enqueue_many(
        [
            Task("t", b"p", unique=hour),
            Task("t", None, unique=hour),
            Task("t", b"", unique=hour, task_id="free"),
            Task("t", b"p", task_id="of-go"),
        ]
    )
    assert [type(result) for result in results] == [
        DuplicateTaskError,
        DuplicateTaskError,
        TaskInfo,
        TaskIDConflictError,
    ]
    new = set(db.scan_iter()) - set(keyspace)
    assert new == {b"asynq:{default}:t:free", b"asynq:{default}:unique:t:d41d8cd98f00b204e9800998ecf8427e"}


def test_a_go_server_releases_the_lock_of_a_key_of_ours(client: Client, go: GoPeer, db: redis.Redis) -> None:
    info = client.enqueue(Task("t", b"p", unique=timedelta(hours=1), unique_key="order-42"))
    (lock,) = db.scan_iter(match="asynq:{default}:unique:*")
    assert db.get(lock) == info.id.encode()
    with go.server(task_check_ns=SECOND_NS // 100):
        go.executions(finished=1)
    assert db.exists(lock) == 0


def test_a_go_server_runs_the_tasks_of_a_queue_in_their_order(client: Client, go: GoPeer) -> None:
    ids = [client.enqueue("t").id for _ in range(10)]
    ids += client.enqueue_many([Task("t", unique=timedelta(hours=number % 2) or None) for number in range(2)]).ids()
    ids += client.enqueue_many([Task("t")] * 30).ids()
    ids += [client.enqueue("t").id]
    with go.server(concurrency=1, task_check_ns=SECOND_NS // 100):
        runs = go.executions(finished=len(ids))
    assert [run.id for run in runs] == ids


@pytest.mark.parametrize("delay_s", [0, 2])
def test_a_go_server_groups_the_tasks_of_fastq(client: Client, go: GoPeer, delay_s: int) -> None:
    """Go's own client loses the group of a scheduled task; fastq's field for it works with Go's forwarder."""
    groups = {"grace_ns": SECOND_NS, "max_size": 2, "type": "bundle"}
    quick: dict[str, Any] = {"task_check_ns": SECOND_NS // 100, "delayed_task_check_ns": SECOND_NS // 10}
    with go.server(groups=groups, **quick):
        start = datetime.now(UTC) + timedelta(seconds=delay_s)  # the same for both: they are forwarded together
        client.enqueue_many([Task("t", payload, group="g", process_at=start) for payload in (b"a", b"b")])
        (run,) = go.executions(finished=1)
    assert run.type == "bundle"
    (called,) = go.request("aggregations", count=1)
    assert (called["group"], sorted(task["payload"] for task in called["tasks"])) == ("g", ["YQ==", "Yg=="])

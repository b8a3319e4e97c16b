"""What goes with the ends of tasks that were enqueued by key, or hold a lock that ends before or with them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.finish import Archived, Completed, Disposition, Done, Guard, Requeued, Retried
from fastq.broker.operations.lease import LeasedTask
from fastq.errors import BrokerError
from fastq.server.actors.lost_tasks import LostTasks
from fastq.server.inflight._processor import SubmissionMaker
from fastq.server.inflight.marked import without_locked
from fastq.server.inflight.questions import Questions
from fastq.server.inflight.stats import RepairKind
from fastq.server.inflight.tally import Tally
from fastq.server.inflight.tasks import InFlightTask, live
from fastq.wire import keys
from tests.broker.harness import NOW_S, OURS, QUEUE, message, queue_bench, run
from tests.server.harness import RULES, Bench, recoverer

KEYED: dict[str, Any] = {"headers": {"fastq-key": "mark"}, "payload": b"old"}
NEWER = message("k", payload=b"newer", headers={"fastq-key": "mark-2"})
LOCK = keys.unique(QUEUE, "t", b"")


@contextmanager
def made(db: Redis, url: str) -> Iterator[Bench]:
    with queue_bench(db, url) as queue:
        yield Bench(queue, url)


def take(bench: Bench, task_id: str, **fields: Any) -> InFlightTask:
    """Let a task be active, and taken as the processor takes it."""
    bench.queue.activate(task_id, **fields)
    (task,), _ = SubmissionMaker(bench.tasks, lambda queue, kind: (1, Tally(queue, kind), None, None)).take(
        QUEUE, [task_id.encode()], [message(task_id, **fields)], 0.0
    )
    return task


def ask_again(bench: Bench, at: str = ":") -> None:
    bench.db.hset(keys.again(QUEUE), "k", f"{at}:".encode() + NEWER)


DONE, LATER = Done("k"), NOW_S + 50


@pytest.mark.parametrize(
    ("end", "place"),
    [
        (Done("k"), "pending"),
        (Completed("k", message("k"), LATER), "pending"),
        (Archived("k", message("k")), "pending"),
        (Retried("k", message("k"), LATER), "retry"),
        (Requeued("k"), "pending"),
    ],
)
def test_every_end_of_a_run_is_followed_by_one_with_the_newest(
    db: Redis, url: str, end: Disposition, place: str
) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            task = take(bench, "k", **KEYED)
            ask_again(bench)
            task.disposition = end
            await bench.writer.write([task], checks_done=False)
            assert bench.queue.places() == {place: ["k"]}
            assert bench.queue.message("k").payload == b"newer"
            assert db.exists(keys.again(QUEUE)) == 0
            assert live([task]) == []

    run(test)


def test_a_task_without_marks_sends_nothing_more(db: Redis, url: str) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            task = take(bench, "k")
            ask_again(bench)
            task.disposition = Done("k")
            await bench.writer.write([task], checks_done=False)
            assert (bench.queue.places(), db.exists(keys.again(QUEUE))) == ({}, 1)
            assert not bench.tasks.marked_queues

    run(test)


def test_the_recoverer_puts_what_a_go_server_has_left(db: Redis, url: str) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            ask_again(bench)
            many: Any = {f"m{n}": b"::" + message(f"m{n}", payload=bytes(200_000)) for n in range(5)}
            db.hset(keys.again(QUEUE), mapping=many)  # more than a call puts
            await recoverer(bench).tick()  # this server has run no task by key
            assert sorted(bench.queue.places()["pending"]) == ["k", *sorted(many)]
            assert bench.queue.message("k").payload == b"newer"

    run(test)


@pytest.mark.parametrize(("max_retry", "place"), [(25, "pending"), (0, "pending")])
def test_a_task_that_was_lost_with_its_server_runs_again_with_the_newest(
    db: Redis, url: str, max_retry: int, place: str
) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            lost: Any = {**KEYED, "retry": max_retry}
            bench.queue.activate("k", **lost)
            ask_again(bench)
            tasks = LostTasks(bench.commands, RULES, bench.clock, bench.stats)
            found = [(LeasedTask("k", message("k", **lost)), 0)]
            await tasks.put(QUEUE, found, Guard(OURS, expired_at=NOW_S + 99), "it died", lambda: None)
            assert bench.queue.places() == {place: ["k"]}
            assert bench.queue.message("k").payload == b"newer"

    run(test)


def test_what_redis_refuses_behind_an_end_is_told(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            task = take(bench, "k", **KEYED)
            db.set(keys.again(QUEUE), "of another type")
            task.disposition = Done("k")
            await bench.writer.write([task], checks_done=False)
            assert bench.queue.places() == {}
            assert [one.getMessage()[:22] for one in caplog.records] == ["another run of a key, "]

    run(test)


def test_a_loss_is_counted_though_redis_refuses_what_is_behind_it(db: Redis, url: str) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            bench.queue.activate("k", **KEYED)
            db.set(keys.again(QUEUE), "of another type")
            tasks = LostTasks(bench.commands, RULES, bench.clock, bench.stats)
            found = [(LeasedTask("k", message("k", **KEYED)), 0)]
            with pytest.raises(BrokerError):
                await tasks.put(QUEUE, found, Guard(OURS, expired_at=NOW_S + 99), "it died", lambda: None)
            assert bench.queue.places() == {"pending": ["k"]}
            assert bench.stats.repairs[RepairKind.RECOVERED] == 1

    run(test)


LOCKED = [("end", "k", 0), ("start", "k", 0), ("end", "x", 1), ("done", "k", 1)]


@pytest.mark.parametrize(("until", "holder", "is_held"), LOCKED)
def test_the_archive_releases_a_lock_until_the_end_that_is_the_tasks(
    db: Redis, url: str, until: str, holder: str, is_held: int
) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            headers = {"fastq-until": until} if until != "done" else {}
            task = take(bench, "k", unique_key=LOCK, headers=headers)
            db.set(LOCK, holder)
            task.disposition = Archived("k", message("k"))
            await bench.writer.write([task], checks_done=False)
            assert db.exists(LOCK) == is_held

    run(test)


@pytest.mark.parametrize(("until", "holder", "is_held"), LOCKED)
def test_the_archive_of_a_lost_task_releases_it_too(db: Redis, url: str, until: str, holder: str, is_held: int) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            headers = {"fastq-until": until} if until != "done" else {}
            lost: Any = {"unique_key": LOCK, "headers": headers, "retry": 0}
            bench.queue.activate("k", **lost)
            db.set(LOCK, holder)
            tasks = LostTasks(bench.commands, RULES, bench.clock, bench.stats)
            found = [(LeasedTask("k", message("k", **lost)), 0)]
            await tasks.put(QUEUE, found, Guard(OURS, expired_at=NOW_S + 99), "it died", lambda: None)
            assert bench.queue.places() == {"archived": ["k"]}
            assert db.exists(LOCK) == is_held

    run(test)


def test_a_retry_keeps_a_lock_until_the_end(db: Redis, url: str) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            task = take(bench, "k", unique_key=LOCK, headers={"fastq-until": "end"})
            db.set(LOCK, "k")
            task.disposition = Retried("k", message("k"), LATER)
            await bench.writer.write([task], checks_done=False)
            assert db.exists(LOCK) == 1

    run(test)


@pytest.mark.parametrize(("holder", "is_held"), [("k", 0), ("x", 1)])
def test_a_task_whose_lock_ends_at_the_start_begins_without_it(db: Redis, url: str, holder: str, is_held: int) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            db.set(LOCK, holder)
            plain = take(bench, "p", unique_key=LOCK)
            task = take(bench, "k", unique_key=LOCK, headers={"fastq-until": "start"})
            questions, began = Questions(), asyncio.get_running_loop().create_future()

            def begin(one: InFlightTask) -> None:
                began.set_result((one, db.exists(LOCK)))

            assert without_locked(bench.commands, questions, [plain, task], begin) == [plain]
            assert questions.tasks() == {task}
            assert await began == (task, is_held)

    run(test)


def test_a_task_that_waits_for_its_lock_begins_when_the_wait_is_canceled(db: Redis, url: str) -> None:
    async def test() -> None:
        with made(db, url) as bench:
            task = take(bench, "k", unique_key=LOCK, headers={"fastq-until": "start"})
            questions, begun = Questions(), list[InFlightTask]()
            without_locked(bench.commands, questions, [task], begun.append)
            await asyncio.sleep(0)
            await questions.settle(0.0)
            assert begun == [task]
            assert not questions.tasks()

    run(test)

"""Clients are told of the ends of tasks that they wait for: one message an inbox and call, after the write."""

from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.finish import Archived, Completed, Disposition, Done, Requeued, Retried
from fastq.pool.main.protocol import Sort
from fastq.server.inflight._processor import SubmissionMaker
from fastq.server.inflight.inboxes import TOLD_AT_ONCE
from fastq.server.inflight.tally import Tally
from fastq.server.inflight.tasks import InFlightTask, InFlightTasks, awaited
from fastq.wire import keys
from fastq.wire.inbox import Awaiter, EndKind, TaskEnd, read_ends_message
from tests.broker.harness import NOW_S, QUEUE, message
from tests.server.harness import Bench, logged, on_bench
from tests.waiting import PATIENCE_S

LAST = b"asynq:inbox:last"


def ended(bench: Bench, task_id: str, inbox: str | None, disposition: Disposition) -> InFlightTask:
    (task,) = bench.hold(task_id)
    task.awaiter = None if inbox is None else Awaiter(inbox, f"s{task_id}")
    task.disposition = disposition
    return task


def completed(task_id: str, result: bytes | None = None) -> Completed:
    return Completed(task_id, message(task_id), NOW_S + 60, result=result)


def heard(bench: Bench, pubsub: Any) -> list[tuple[str, list[tuple[str, str, TaskEnd]]]]:
    """Return inbox and contents of each message so far; all name the submit of their task."""
    bench.db.publish(LAST, "")
    messages = []
    while (found := pubsub.get_message(timeout=PATIENCE_S))["channel"] != LAST:
        if found["type"] == "pmessage":
            ends = []
            for (queue, task_id, submit), end in read_ends_message(found["data"]):
                assert submit == f"s{task_id}"
                ends.append((queue, task_id, end))
            messages.append((found["channel"].decode(), ends))
    return messages


def test_one_message_an_inbox_and_call_tells_how_tasks_have_ended(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        with bench.db.pubsub() as pubsub:
            pubsub.psubscribe("asynq:inbox:*")
            tasks = [
                ended(bench, "a", "one", completed("a")),
                ended(bench, "b", "two", completed("b", b"r")),
                ended(bench, "c", "one", completed("c", b"r")),
                ended(bench, "d", None, completed("d", b"r")),
                ended(bench, "e", "one", Archived("e", message("e", error_msg="ValueError: x" * 100))),
                ended(bench, "f", "one", Done("f")),
                ended(bench, "g", "one", Retried("g", message("g"), NOW_S + 60)),
                ended(bench, "h", "one", Requeued("h")),
                ended(bench, "i", "two", completed("i", b"\xff")),
                ended(bench, "j", "two", completed("j", b"x" * 501)),
            ]
            await bench.writer.write(tasks, checks_done=False)
            await bench.writer.inboxes.settle()
            one, two = keys.inbox_channel("one"), keys.inbox_channel("two")
            done, kept = TaskEnd(EndKind.DONE, is_whole=True), TaskEnd(EndKind.RESULT)
            result = TaskEnd(EndKind.RESULT, result=b"r", is_whole=True)
            gone = TaskEnd(EndKind.GONE, is_whole=True)
            failed = TaskEnd(EndKind.FAILED, ("ValueError: x" * 100)[:300])
            assert sorted(heard(bench, pubsub), key=str) == sorted(
                [
                    (one, [(QUEUE, "a", done), (QUEUE, "c", result)]),
                    (two, [(QUEUE, "b", result), (QUEUE, "i", kept), (QUEUE, "j", kept)]),
                    (one, [(QUEUE, "e", failed)]),
                    (one, [(QUEUE, "f", gone)]),
                ],
                key=str,
            )

    on_bench(db, url, test)


def test_an_end_that_was_not_written_is_not_told(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        with bench.db.pubsub() as pubsub:
            pubsub.psubscribe("asynq:inbox:*")
            ours, theirs = (ended(bench, name, "one", Archived(name, message(name))) for name in "ab")
            done, lost, also_lost = (ended(bench, name, "one", completed(name)) for name in "cde")
            also_lost.awaiter = Awaiter("two")
            for name in "bde":
                bench.take_away(name)
            await bench.writer.write([ours, theirs, done, lost, also_lost], checks_done=True)
            await bench.writer.inboxes.settle()
            assert [ends for _, ends in heard(bench, pubsub)] == [
                [(QUEUE, "c", TaskEnd(EndKind.DONE, is_whole=True))],
                [(QUEUE, "a", TaskEnd(EndKind.FAILED))],
            ]

    on_bench(db, url, test)


def test_of_many_completed_tasks_one_message_tells_after_the_write(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        with bench.db.pubsub() as pubsub:
            pubsub.psubscribe("asynq:inbox:*")
            names = [f"{number}" for number in range(TOLD_AT_ONCE + 1)]
            tasks = [ended(bench, name, "one", completed(name, b"r")) for name in names]
            bench.take_away("7")
            await bench.writer.write(tasks, checks_done=True)
            await bench.writer.inboxes.settle()
            result = TaskEnd(EndKind.RESULT, result=b"r", is_whole=True)
            told = [(QUEUE, name, result) for name in names if name != "7"]
            assert heard(bench, pubsub) == [(keys.inbox_channel("one"), told)]

    on_bench(db, url, test)


def test_a_client_that_cannot_be_told_costs_one_line(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        bench.db.execute_command("ACL", "SETUSER", "default", "-publish")
        try:
            for name in "ab":
                await bench.writer.write([ended(bench, name, "one", completed(name))], checks_done=False)
                await bench.writer.inboxes.settle()
        finally:
            bench.db.execute_command("ACL", "SETUSER", "default", "+@all")
        (line,) = logged(caplog)
        assert line.startswith("cannot tell a client that its tasks have ended: publish_completed: the Redis user may")
        assert bench.in_flight_ids() == []

    on_bench(db, url, test)


@pytest.mark.parametrize(
    ("headers", "awaiter"),
    [
        ({}, None),
        ({"a": "b"}, None),
        ({"fastq-other": "x"}, None),
        ({"fastq-inbox": "aB3_-"}, Awaiter("aB3_-")),
        ({"fastq-inbox": "aB3_-", "fastq-submit": "nonce"}, Awaiter("aB3_-", "nonce")),
        ({"fastq-inbox": "aB3_-", "fastq-submit": "a b"}, Awaiter("aB3_-")),
        ({"fastq-submit": "nonce"}, None),
        ({"fastq-inbox": "a b"}, None),
        ({"fastq-inbox": "x" * 65}, None),
    ],
)
def test_a_submission_is_awaited_if_its_task_names_an_inbox(headers: dict[str, str], awaiter: Awaiter | None) -> None:
    maker = SubmissionMaker(InFlightTasks(), lambda queue, task_type: (Sort.PLAIN, Tally(queue, task_type), None, None))
    (task,), _ = maker.take("q", [b"a"], [message("a", queue="q", headers=headers)], 1.0)
    assert task.awaiter == awaiter
    assert task.submission is not None
    assert task.submission.is_awaited is (awaiter is not None)
    assert awaited([task]) == ([task] if awaiter else [])

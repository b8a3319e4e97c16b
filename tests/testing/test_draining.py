"""drain: the queues are worked empty, and Redis is as a server would have left it."""

from typing import Any

import pytest
from redis import Redis

from fastq import Client, Inspector, RevokeTask, ServeMux, SkipRetry
from fastq.hooks import Hooks
from fastq.running import RunningTask
from fastq.testing import RunOutcome, drain
from tests.broker.harness import QueueBench


@pytest.fixture
def mux(url: str) -> ServeMux:
    mux: ServeMux = ServeMux()

    @mux.handler("echo")
    def echo(task: RunningTask) -> Any:
        return task.json()

    @mux.handler("async")
    async def coroutine(task: RunningTask) -> Any:
        return task.json()

    @mux.handler("fail")
    def fail(task: RunningTask) -> None:
        raise ValueError(task.retried)

    @mux.handler("skip")
    def skip(task: RunningTask) -> None:
        raise SkipRetry

    @mux.handler("revoke")
    def revoke(task: RunningTask) -> None:
        raise RevokeTask

    @mux.handler("chain")
    def chain(task: RunningTask) -> None:
        if task.json():
            with Client(url) as client:
                client.enqueue("chain", task.json() - 1, queue=f"q{task.json()}")

    return mux


def enqueue(url: str, type: str, payload: Any = None, **options: Any) -> str:
    with Client(url) as client:
        return client.enqueue(type, payload, **options).id


def test_all_queues_are_worked_empty_in_turn_and_in_order(mux: ServeMux, url: str, db: Redis) -> None:
    for number in range(3):
        for queue in ("a", "b"):
            enqueue(url, "async" if number == 1 else "echo", f"{queue}{number}", queue=queue)
    runs = drain(mux, url)
    assert [run.json() for run in runs] == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert {run.outcome for run in runs} == {RunOutcome.DONE}
    for queue in ("a", "b"):
        bench = QueueBench(db, queue=queue)
        assert (bench.places(), bench.states()) == ({}, {})
        assert bench.counters()["processed"] == 3
    assert drain(mux, url) == []


def test_redis_is_as_a_server_would_leave_it(mux: ServeMux, url: str, db: Redis) -> None:
    enqueue(url, "echo", [1], task_id="kept", retention=60)
    enqueue(url, "fail", task_id="failed", unique=60)
    enqueue(url, "skip", task_id="skipped")
    enqueue(url, "revoke", task_id="revoked", retention=60)
    enqueue(url, "unknown", task_id="unknown", max_retry=0)
    runs = {run.id: run for run in drain(mux, url, hooks=Hooks(retry_delay=lambda retried, error, task: 3600))}
    bench = QueueBench(db)
    assert bench.states() == {
        "kept": "completed",
        "failed": "retry",
        "skipped": "archived",
        "unknown": "archived",
    }
    assert bench.task("kept")["result"] == b"[1]"
    failed = bench.message("failed")
    assert (failed.retried, failed.error_msg) == (1, runs["failed"].error_text)
    assert (runs["failed"].retry_in, runs["revoked"].outcome) == (3600, RunOutcome.REVOKE)
    assert (bench.counters()["processed"], bench.counters()["failed"]) == (5, 3)


def test_what_handlers_enqueue_is_worked_on_too_in_new_queues_as_well(mux: ServeMux, url: str) -> None:
    enqueue(url, "chain", 4)
    assert [(run.queue, run.json() if run.result else None) for run in drain(mux, url)] == [
        ("default", None),
        ("q4", None),
        ("q3", None),
        ("q2", None),
        ("q1", None),
    ]


def test_a_time_that_is_to_come_is_waited_for_unless_asked_otherwise(mux: ServeMux, url: str, db: Redis) -> None:
    enqueue(url, "echo", "later", task_id="l", process_in=3600)
    enqueue(url, "echo", "due", task_id="d", process_in=3600)
    QueueBench(db).db.zadd("asynq:{default}:scheduled", {"d": 1})
    assert [run.json() for run in drain(mux, url)] == ["due"]
    assert [run.json() for run in drain(mux, url, scheduled=True)] == ["later"]


def test_failed_tasks_are_tried_until_they_are_through_if_asked(mux: ServeMux, url: str, db: Redis) -> None:
    enqueue(url, "fail", max_retry=3, task_id="f")
    assert [run.retried for run in drain(mux, url)] == [0]
    assert [(run.retried, run.outcome.value) for run in drain(mux, url, retries=True)] == [
        (1, "retry"),
        (2, "retry"),
        (3, "archive"),
    ]
    assert QueueBench(db).states() == {"f": "archived"}


def test_queues_that_are_not_named_or_are_paused_are_left_alone(mux: ServeMux, url: str, db: Redis) -> None:
    for queue in ("a", "b", "c"):
        enqueue(url, "echo", queue, queue=queue)
    db.set("asynq:{b}:paused", 1)
    assert [run.json() for run in drain(mux, url, queues=["b", "c"])] == ["c"]
    assert [run.json() for run in drain(mux, db)] == ["a"]
    assert db.ping()  # it was given, and is not closed
    assert QueueBench(db, queue="b").places()["pending"]


def test_a_message_that_cannot_be_read_is_archived(mux: ServeMux, url: str, db: Redis) -> None:
    bench = QueueBench(db)
    bench.pend("bad")
    db.hset("asynq:{default}:t:bad", "msg", b"\xff\xff")
    enqueue(url, "echo", 1)
    runs = drain(mux, url)
    assert [run.outcome for run in runs] == [RunOutcome.ARCHIVE, RunOutcome.DONE]
    assert bench.message("bad").type == "fastq:undecodable"


def test_ctrl_c_in_a_handler_gives_its_task_back(url: str, db: Redis) -> None:
    mux: ServeMux = ServeMux()

    @mux.handler("t")
    def interrupted(task: RunningTask) -> None:
        raise KeyboardInterrupt

    enqueue(url, "t", task_id="a")
    with pytest.raises(KeyboardInterrupt):
        drain(mux, url)
    assert QueueBench(db).places() == {"pending": ["a"]}


def test_tasks_that_enqueue_themselves_for_ever_are_an_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.testing.draining.MAX_RUNS", 20)
    mux: ServeMux = ServeMux()

    @mux.handler("again")
    def again(task: RunningTask) -> None:
        enqueue(url, "again")

    enqueue(url, "again")
    with pytest.raises(RuntimeError, match="drain: no end after 20 runs, the last one of 'again'"):
        drain(mux, url)


def test_a_queue_that_there_is_not_yet_is_no_error(mux: ServeMux, url: str, db: Redis) -> None:
    assert drain(mux, url, queues=["nothing"], scheduled=True, retries=True) == []
    assert db.keys("*") == []


def test_tasks_of_lanes_are_run_by_turns_whatever_their_rates(mux: ServeMux, url: str, db: Redis) -> None:
    with Client(url) as client:
        client.set_limit("default", "*", concurrency=1, rate="1/d")
        client.set_limit("default", "pool:*", rate="1/d")
        for lane in ("x", "x", "y", "pool:a", "pool:b"):
            client.enqueue("echo", lane, lane=lane)
        client.enqueue("echo", "")
        client.enqueue("fail", lane="x", max_retry=1)
        client.enqueue("echo", "later", lane="y", process_in=3600)
        with Inspector(url) as inspector:
            inspector.pause_lane("default", "still")
        client.enqueue("echo", "still", lane="still")
    runs = drain(mux, url, scheduled=True, retries=True)
    said = [run.json() for run in runs if run.outcome is RunOutcome.DONE]
    assert sorted(said) == ["", "later", "pool:a", "pool:b", "x", "x", "y"]
    assert said.index("y") < max(at for at, lane in enumerate(said) if lane == "x")
    assert [run.outcome for run in runs if run.type == "fail"] == [RunOutcome.RETRY, RunOutcome.ARCHIVE]
    assert QueueBench(db).places().keys() == {"archived"}
    assert db.keys("asynq:{default}:h:*") == [], "all places are free"
    assert db.zcard("asynq:{default}:g:still") == 1, "a paused lane is left alone"


def test_a_sequence_waits_for_its_task_that_is_to_be_tried_again(mux: ServeMux, url: str, db: Redis) -> None:
    with Client(url) as client:
        client.set_limit("default", "x", concurrency=1, order="strict")
        client.enqueue("fail", lane="x", max_retry=1)
        client.enqueue("echo", 2, lane="x")
        client.enqueue("echo", 3, lane="x")
    assert [run.outcome for run in drain(mux, url)] == [RunOutcome.RETRY]
    runs = drain(mux, url, retries=True)
    assert [run.outcome for run in runs] == [RunOutcome.ARCHIVE, RunOutcome.DONE, RunOutcome.DONE]
    assert [run.json() for run in runs[1:]] == [2, 3]


def test_a_first_task_of_a_lane_that_a_handler_enqueues_is_run(url: str) -> None:
    mux: ServeMux = ServeMux()

    @mux.handler("more")
    def more(task: RunningTask) -> None:
        with Client(url) as client:
            client.enqueue("last", lane="x")

    @mux.handler("last")
    def last(task: RunningTask) -> None: ...

    enqueue(url, "more")
    assert [run.type for run in drain(mux, url)] == ["more", "last"]

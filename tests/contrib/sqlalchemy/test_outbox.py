"""The outbox on SQLite and a real Redis: what a transaction writes is enqueued once, and only if it is committed."""

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("sqlalchemy")

from sqlalchemy import Engine, create_engine, func, select
from sqlalchemy.orm import Session

from fastq import App, BrokerConnectionError, BrokerError, Client, Inspector, Task, TaskState
from fastq.contrib.sqlalchemy import OutboxTask, Relayed, add_to_outbox, metadata, relay
from fastq.contrib.sqlalchemy.outbox import Relay
from fastq.errors import FastqError
from fastq.testing import assert_enqueued
from tests.cli.commands import NOWHERE, Fastq
from tests.waiting import wait_until


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = create_engine(database)
    metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


def rows(engine: Engine) -> int:
    with Session(engine) as session:
        return session.scalar(select(func.count()).select_from(OutboxTask)) or 0


def test_a_task_arrives_as_it_was_given_once_the_transaction_is_committed(
    engine: Engine, client: Client, url: str
) -> None:
    at, deadline = (datetime.now(UTC).replace(microsecond=0) + timedelta(hours=hours) for hours in (1, 2))
    with Session(engine) as session, session.begin():
        full = Task("mail:send", {"to": "ada"}, queue="mail", max_retry=3, headers={"a": "b"})
        ids = [
            add_to_outbox(session, full, timeout=60, retention=120, deadline=deadline, unique=90.5, unique_key="ada"),
            add_to_outbox(session, Task("later"), process_at=at, task_id="own"),
            add_to_outbox(session, Task("soon"), process_in=3600),
        ]
        assert relay(engine, client) == Relayed(0, 0)
    assert relay(engine, client) == Relayed(3, 0)
    assert (relay(engine, client), rows(engine)) == (Relayed(0, 0), 0)
    with Inspector(url) as inspector:
        mail, later, soon = (
            inspector.get_task_info(queue, task_id)
            for queue, task_id in zip(("mail", "default", "default"), ids, strict=True)
        )
    assert (mail.type, mail.payload, mail.headers, mail.max_retry) == ("mail:send", b'{"to":"ada"}', {"a": "b"}, 3)
    assert (mail.timeout, mail.retention, mail.deadline) == (timedelta(seconds=60), timedelta(seconds=120), deadline)
    assert (later.id, later.state, later.next_process_at) == ("own", TaskState.SCHEDULED, at)
    assert (soon.state, later.retention) == (TaskState.SCHEDULED, timedelta(hours=1))
    assert soon.next_process_at is not None
    assert abs(soon.next_process_at - at) < timedelta(minutes=10)


def test_a_task_of_a_transaction_that_is_rolled_back_is_never_sent(engine: Engine, client: Client) -> None:
    with Session(engine) as session:
        add_to_outbox(session, Task("mail:send"))
        session.flush()
        session.rollback()
    assert relay(engine, client) == Relayed(0, 0)


def test_a_repeated_relay_is_a_conflict_and_counts_as_sent(engine: Engine, client: Client, url: str) -> None:
    with Session(engine) as session, session.begin():
        for number in range(3):
            add_to_outbox(session, Task("mail:send", number))
        add_to_outbox(session, Task("alone", unique=60))
        add_to_outbox(session, Task("alone", unique=60))

    class DiedError(Exception):
        pass

    class Dying(Client):
        def enqueue_many(self, *args: Any, **options: Any) -> Any:
            super().enqueue_many(*args, **options)
            raise DiedError

    with Dying(url) as dying, pytest.raises(DiedError):
        relay(engine, dying)
    assert rows(engine) == 5
    assert (relay(engine, client), rows(engine)) == (Relayed(5, 0), 0)
    assert_enqueued(client, "mail:send", count=3)
    assert_enqueued(client, "alone", count=1)


def test_rows_stay_while_redis_fails(engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        add_to_outbox(session, Task("mail:send"))
    with Client(NOWHERE) as nowhere, pytest.raises(BrokerConnectionError):
        relay(engine, nowhere)
    assert rows(engine) == 1


def test_a_row_that_cannot_be_a_task_keeps_the_reason(
    engine: Engine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    bad: list[Any] = [{"max_retry": "many"}, {"priority": 1}, {"prio": 1}, {"process_at": "soon"}, ["queue"]]
    with Session(engine) as session, session.begin():
        for options in [*bad, {"process_at": "2026-11-22T17:00:00Z"}]:
            session.add(OutboxTask(type="mail:send", options=options))
    with caplog.at_level(logging.ERROR, "fastq.outbox"):
        assert relay(engine, client) == Relayed(1, 5)
    assert relay(engine, client) == Relayed(0, 0)
    with Session(engine) as session:
        errors = [row.error or "" for row in session.scalars(select(OutboxTask).order_by(OutboxTask.id))]
    for error, word in zip(errors, ("many", "needs lane", "prio", "soon", "queue"), strict=True):
        assert word in error
    assert len(caplog.records) == 5


def test_bad_tasks_are_refused_when_they_are_added(engine: Engine) -> None:
    with Session(engine) as session:
        with pytest.raises(TypeError, match=r"takes a fastq\.Task"):
            add_to_outbox(session, "mail:send")  # type: ignore[arg-type]  # no Task
        with pytest.raises(ValueError, match="retention"):
            add_to_outbox(session, Task("mail:send"), retention=-1)
        assert not session.new


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unique_key": "ada"}, "unique_key='ada' needs unique"),
        ({"until": "start"}, "until='start' needs unique"),
        ({"if_there": "replace"}, "if_there='replace' needs key"),
        ({"latest": 5}, "needs key"),
        ({"priority": 1}, "priority=1 needs lane"),
        ({"lane": "a", "group": "b"}, "lane='a' and group='b' exclude each other"),
        ({"key": "k1", "task_id": "t1"}, "key='k1' does not go with task_id"),
        ({"key": "k1", "if_there": "postpone"}, "postpone"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together_are_refused_when_they_are_added(
    engine: Engine, options: dict[str, Any], words: str
) -> None:
    with Session(engine) as session:
        with pytest.raises(ValueError, match=re.escape(words)):
            add_to_outbox(session, Task("mail:send"), **options)
        assert not session.new


def test_a_task_with_a_key_is_enqueued_by_its_key(engine: Engine, client: Client, url: str) -> None:
    app = App()

    @app.task("crm.sync", key="crm:{user}", if_there="replace")
    def sync(user: int, version: int) -> None: ...

    with Session(engine) as session, session.begin():
        ids = [add_to_outbox(session, sync.task(42, version=version)) for version in (1, 2)]
        ids.append(add_to_outbox(session, Task("mail:send"), key="k1"))
        late = {"key": "k2", "if_there": "postpone", "process_in": 7200, "latest": 3600}
        ids.append(add_to_outbox(session, Task("mail:send"), **late))  # type: ignore[arg-type]  # of several types
    assert ids == ["crm:42", "crm:42", "k1", "k2"]
    assert relay(engine, client) == Relayed(4, 0)
    with Inspector(url) as inspector:
        synced, kept, postponed = (inspector.get_task_info("default", task_id) for task_id in ("crm:42", "k1", "k2"))
    assert (synced.type, synced.payload) == ("crm.sync", sync.task(42, version=2).payload)
    assert (kept.state, kept.retention) == (TaskState.PENDING, timedelta(0))
    assert postponed.next_process_at is not None
    assert postponed.next_process_at < datetime.now(UTC) + timedelta(hours=1.5)


def test_a_key_that_cannot_be_had_is_told_of_in_the_row(engine: Engine, client: Client) -> None:
    client.enqueue("mail:send", task_id="k1", group="mails")
    with Session(engine) as session, session.begin():
        add_to_outbox(session, Task("mail:send"), key="k1", if_there="replace")
    assert relay(engine, client) == Relayed(0, 1)
    with Session(engine) as session:
        assert "task_id='k1'" in (session.scalars(select(OutboxTask)).one().error or "")


def fill(engine: Engine, *queues: str) -> None:
    with Session(engine) as session, session.begin():
        for number, queue in enumerate(queues):
            add_to_outbox(session, Task("mail:send", number), queue=queue)


def test_rows_of_a_full_queue_wait_in_order_and_those_behind_them_are_relayed(
    engine: Engine, client: Client, url: str
) -> None:
    fill(engine, "a", "full", "full", "full", "b", "full", "c")
    with Inspector(url) as inspector:
        inspector.set_max_pending("full", 1)
        assert relay(engine, client, at_once=4) == Relayed(4, 0, ("full",))
        assert rows(engine) == 3
        assert relay(engine, client, at_once=2) == Relayed(0, 0, ("full",))
        fill(engine, "c")
        assert relay(engine, client, at_once=2) == Relayed(1, 0, ("full",))
        inspector.set_max_pending("full", None)
        assert relay(engine, client) == Relayed(3, 0)
        tasks = inspector.list_tasks("full", TaskState.PENDING)
    assert sorted(task.payload for task in tasks) == [b"1", b"2", b"3", b"5"]
    assert_enqueued(client, "mail:send", queue="c", count=2)


def test_a_task_that_was_enqueued_beside_a_full_queue_is_never_enqueued_again(
    engine: Engine, client: Client, url: str
) -> None:
    fill(engine, "full", "full", "free")
    with Inspector(url) as inspector:
        inspector.set_max_pending("full", 1)
        assert relay(engine, client) == Relayed(2, 0, ("full",))
        inspector.delete_all_tasks("free", TaskState.PENDING)
        assert relay(engine, client) == Relayed(0, 0, ("full",))
    assert_enqueued(client, "mail:send", queue="free", count=0)


def test_a_full_queue_of_the_clients_own_limit_does_not_hold_others(engine: Engine, url: str) -> None:
    fill(engine, *["full"] * 3, "free")
    with Client(url, max_pending=1, full_timeout=0) as client:
        client.enqueue("mail:send", queue="full")
        assert relay(engine, client) == Relayed(1, 0, ("full",))
    assert rows(engine) == 3


def test_what_was_enqueued_before_redis_failed_is_deleted(engine: Engine, client: Client, url: str) -> None:
    fill(engine, "a", "b", "b")
    with redis.Redis.from_url(url) as raw:
        raw.set("asynq:{b}:pending", "no list")  # its script fails, and that of the other queue does not
        with pytest.raises(BrokerError, match="WRONGTYPE"):
            relay(engine, client)
        assert rows(engine) == 2
        raw.delete("asynq:{b}:pending")
    assert relay(engine, client) == Relayed(2, 0)
    assert_enqueued(client, "mail:send", queue="b", count=2)


def test_the_command_says_which_queues_are_full(engine: Engine, database: str, url: str) -> None:
    fill(engine, "full", "full", "free")
    with Inspector(url) as inspector:
        inspector.set_max_pending("full", 1)
        text = "tasks wait for room in queue 'full'"
        assert text in Fastq(url).failure("outbox", database, "--burst")
        assert rows(engine) == 1
        command = [sys.executable, "-m", "fastq", "--redis", url, "outbox", database, "--interval", "0.01"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert text in process.stderr.readline()
            inspector.set_max_pending("full", None)
            assert "no queue is full" in process.stderr.readline()
            process.terminate()
            _, said = process.communicate(timeout=90)
    assert (process.returncode, said, rows(engine)) == (0, "", 0)


def test_the_command_empties_the_outbox(engine: Engine, database: str, client: Client, url: str) -> None:
    with Session(engine) as session, session.begin():
        for number in range(501):
            add_to_outbox(session, Task("mail:send", number))
    assert Fastq(url).done("outbox", database, "--burst") == "501 tasks enqueued\n"
    assert_enqueued(client, "mail:send", count=501)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_outbox_is_empty_is_no_success(
    signum: signal.Signals, engine: Engine, database: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: Relay) -> Relayed:
        os.kill(os.getpid(), signum)
        return Relayed(1, 0)

    monkeypatch.setattr(Relay, "run", run)
    assert Fastq(url).run("outbox", database, "--burst").exit_code == 128 + signum


def test_the_command_says_what_is_wrong(url: str, database: str) -> None:
    assert "no such table: fastq_outbox" in Fastq(url).failure("outbox", database, "--burst")
    assert "cannot be opened" in Fastq(url).failure("outbox", "shop.db")
    engine = create_engine(database)
    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        add_to_outbox(session, Task("mail:send"))
    engine.dispose()
    assert "cannot reach Redis" in Fastq(NOWHERE).failure("outbox", database, "--burst")
    with pytest.raises(FastqError, match="cannot be opened"), Client(url) as client:
        Relay("nothing://", client)


def test_the_command_goes_on_until_a_signal(engine: Engine, database: str, client: Client, url: str) -> None:
    command = [sys.executable, "-m", "fastq", "--redis", url, "outbox", database, "--interval", "0.01"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(2):
            with Session(engine) as session, session.begin():
                add_to_outbox(session, Task("mail:send"))
            wait_until(lambda: rows(engine) == 0)
        process.terminate()
        _, said = process.communicate(timeout=90)
    assert (process.returncode, said) == (0, "")
    assert_enqueued(client, "mail:send", count=2)

"""The rules of each role are enough: real work under them, and no command that Redis refused."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import fastq.broker.inspect
import fastq.broker.operations
from fastq import AsyncClient, BrokerAuthError, BrokerNotConfirmedError, Client, Inspector, Scheduler, Semaphore, Task
from fastq.broker.scripts import SCRIPTS
from fastq.inspector.acl import ROLES, acl_rules
from fastq.server.base.config import ServerConfig
from fastq.server.wiring.process import ProcessOptions, ServerProcess
from fastq.wire import keys
from tests.broker.harness import until
from tests.cli.commands import Fastq, fill
from tests.inspector.doctor.harness import DEFECTS, sound
from tests.pool.harness import run
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import PATIENCE_S, wait_until
from tests.worker.harness import FakeContext, running

UNASKED = {"client|setinfo"}
"""Refusals that are passed over: redis-py's own words about itself."""
UNSEEN = UNASKED | {"config|get", "slowlog|get", "zremrangebyscore"}
"""What a user who only reads is refused: the doctor's looks at settings, and to clear away dead servers."""
MISUSED = 2
OF_SCHEDULERS = {"enqueue_tick", "write_scheduler_entries"}
OF_ADMINS = {"delete_task"}
"""Scripts among those of servers and clients that only they run."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@contextmanager
def as_role(server: RedisServer, *roles: str, queues: Sequence[str] = ("emails",)) -> Iterator[tuple[str, Redis]]:
    """Make a user with these roles, and give its URL, and a client of one that may do all."""
    with server.client() as db:
        db.flushall()
        db.script_flush()
        rules = acl_rules(roles, queues).split()
        db.execute_command("ACL", "SETUSER", "fastq", "reset", "on", ">word", *rules)
        db.acl_log_reset()
        yield f"unix://fastq:word@{server.socket_path}", db


def refused(db: Redis) -> set[str]:
    """Return the commands, keys and channels that Redis has refused, as it names them."""
    entries: Any = db.acl_log()
    return {entry["object"] for entry in entries}


def test_a_producer_enqueues_and_waits_and_does_nothing_else(server: RedisServer) -> None:
    with as_role(server, "producer") as (url, db):
        with Client(url) as client:
            client.ping()
            client.enqueue("ok", queue="emails", unique=60)
            client.enqueue("ok", queue="emails", process_in=60)
            client.enqueue_many([Task("ok", n, queue="emails", group="g") for n in range(3)])
            handle = client.submit("ok", queue="emails")
            handle.state()
            wait_until(lambda: db.pubsub_channels("asynq:inbox:*"))
        with Client(url, wait_replicas=1, wait_timeout=0.001) as client, pytest.raises(BrokerNotConfirmedError):
            client.enqueue("ok", queue="emails")
        assert refused(db) <= UNASKED
        with Client(url) as client, pytest.raises(BrokerAuthError, match="extend its ACL rules"):
            client.enqueue("ok", queue="other")
        with Inspector(url) as inspector, pytest.raises(BrokerAuthError, match="extend its ACL rules"):
            inspector.delete_task("emails", handle.id)


def test_a_worker_runs_all_kinds_of_tasks(server: RedisServer) -> None:
    async def work(url: str, db: Redis) -> None:
        app = "tests.inspector.acl_app"
        config = ServerConfig(
            concurrency=1,
            queues={"emails": 1},
            group_max_size=2,
            group_aggregator=f"{app}:aggregate",
            archive_max=100,
        )
        process = ServerProcess(ProcessOptions(f"{app}:mux", url, config))

        def is_through() -> bool:
            return int(db.get(keys.processed_total("emails")) or 0) == 6 and process.subscriber.is_subscribed

        async def produce() -> None:
            async with AsyncClient(url) as client:
                await client.enqueue("ok", queue="emails", unique=60)
                await client.enqueue("fail", queue="emails", max_retry=0)
                await client.enqueue("fail", queue="emails")
                await client.enqueue("ok", queue="emails", process_in=1)
                await client.enqueue_many([Task("ok", n, queue="emails", group="g") for n in range(2)])
                handle = await client.submit("kept", queue="emails")
                assert await handle.result() == b"7"
            await until(is_through)
            process.begin_shutdown()

        producing: list[asyncio.Task[None]] = []
        await process.run(lambda: producing.append(asyncio.create_task(produce())))
        await producing[0]

    with as_role(server, "worker") as (url, db):
        run(work(url, db))
        assert db.zcard(keys.archived("emails")) == db.zcard(keys.retry("emails")) == 1
        assert refused(db) <= UNASKED


def test_a_worker_holds_tokens_of_semaphores(server: RedisServer) -> None:
    with as_role(server, "worker") as (url, db):
        semaphore = Semaphore("api", 1, url)
        task = running(FakeContext(deadline_ns=time.monotonic_ns() + 60_000_000_000))
        assert (semaphore.acquire(task), semaphore.acquire(task)) == (True, False)
        assert (semaphore.held(), semaphore.release(task)) == (1, True)
        semaphore.close()
        assert refused(db) <= UNASKED


def test_a_scheduler_enqueues_what_is_due(server: RedisServer) -> None:
    with as_role(server, "scheduler") as (url, db):
        enqueued = threading.Event()
        with Scheduler(url, post_enqueue=lambda info, error: enqueued.set()) as scheduler:
            entry_id = scheduler.register("@every 1s", Task("tick"), queue="emails")
            assert enqueued.wait(PATIENCE_S)
            wait_until(lambda: db.exists(keys.scheduler_history(entry_id)))
        assert db.exists(keys.pending("emails"))
        assert refused(db) <= UNASKED


READING = (
    "stats",
    "queue ls",
    "queue inspect default",
    "queue history default",
    "task ls -q default -s pending",
    "task ls -q default -s retry",
    "task ls -q default -s aggregating --group mails",
    "task inspect -q default -i p1",
    "task export -q default",
    "group ls -q default",
    "lane ls x -q default",
    "lane ls -q default",
    "lane drain x -q default",
    "server ls",
    "cron ls",
    "cron history x",
)
LEAVING_NOTHING = "task delete-all -q default -s aggregating --group mails --yes"
"""No task waits in a lane after it."""
ACTING = (
    "queue pause default",
    "queue resume default",
    "lane limit x 2 -q default",
    "lane limit * 2,5/s -q default",
    "lane pause x -q default",
    "lane resume x -q default",
    "task enqueue -t t -l x",
    "task run -q default -i s1",
    "task archive -q default -i p1",
    "task retry -q default --all --yes",
    "task run-all -q default -s scheduled --yes",
    "task archive-all -q default -s pending --yes",
    "task delete -q default -i c1 --yes",
    "task delete-all -q default -s archived --yes",
    "task cancel a1",
    "server stop --all --yes",
    "queue move critical other --yes",
    "queue rm other --force --yes",
)


def test_an_inspector_reads_all_and_changes_nothing(server: RedisServer) -> None:
    with as_role(server, "inspector", queues=("*",)) as (url, db):
        fill(db, server.url)
        before = db.dbsize()
        command = Fastq(url)
        for words in (*READING, "doctor --full"):
            assert command.run(*words.split()).exit_code != MISUSED, words
            assert refused(db) <= UNSEEN, words
        for words in ACTING:
            assert command.run(*words.split()).exit_code != MISUSED, words
        assert "extend its ACL rules" in command.failure("queue", "pause", "default")
        assert db.dbsize() == before


@pytest.mark.parametrize("role", ["inspector", "admin"])
def test_the_doctor_of_a_role_looks_at_tasks(server: RedisServer, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.inspector.doctor.examination.SECOND_LOOK_S", 0.0)
    with as_role(server, role, queues=("*",)) as (url, db):
        DEFECTS["dangling in retry"].make(sound(db))
        seen = levels(url)
    assert ("ids without task", "problem") in seen
    assert ("tasks", "unseen") not in seen


@pytest.mark.parametrize("role", ["inspector", "admin"])
def test_the_doctor_of_a_role_sees_follow_ups(server: RedisServer, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.inspector.doctor.examination.SECOND_LOOK_S", 0.0)
    with as_role(server, role, queues=("*",)) as (url, db):
        queue = sound(db)
        DEFECTS["follow-ups"].make(queue)
        DEFECTS["dangling in pending"].make(queue)
        assert levels(url) >= {("follow-ups without a run", "warning"), ("ids without task", "problem")}
        db.acl_setuser("fastq", enabled=True, commands=["-hscan"])
        seen = levels(url)
    assert seen >= {("follow-ups without a run", "unseen"), ("ids without task", "problem")}
    assert not seen & {("follow-ups without a run", "ok"), ("tasks", "unseen")}


def levels(url: str) -> set[tuple[str, str]]:
    """Return what the doctor finds, as a user with this URL."""
    with Inspector(url) as inspector:
        return {(finding.check, finding.level.value) for finding in inspector.examine().findings}


def test_an_admin_reads_and_acts(server: RedisServer) -> None:
    with as_role(server, "admin", queues=("*",)) as (url, db):
        fill(db, server.url)
        command = Fastq(url)
        db.set(keys.scheduler_ticks(), 1)
        for words in (*READING, *ACTING, "doctor --full --repair --yes", LEAVING_NOTHING, "leave --yes"):
            assert command.run(*words.split()).exit_code != MISUSED, words
            assert refused(db) <= UNASKED | {"config|get"}, words
        assert db.exists(keys.scheduler_ticks()) == 0


def scripts_of(package: Any) -> set[str]:
    """Return the names of the scripts that a package's modules name."""
    text = "".join(path.read_text("utf-8") for path in Path(package.__path__[0]).glob("*.py"))
    return {name for name in SCRIPTS if f'"{name}"' in text}


def commands_of(script: str) -> set[str]:
    return {word.lower() for word in re.findall(r'redis\.p?call\(\s*"(\w+)"', SCRIPTS[script].text)}


def test_roles_cover_the_commands_of_their_scripts() -> None:
    of_servers, of_inspectors = scripts_of(fastq.broker.operations), scripts_of(fastq.broker.inspect)
    assert of_servers >= OF_SCHEDULERS | OF_ADMINS
    for role, scripts in (
        ("worker", of_servers - OF_SCHEDULERS - OF_ADMINS),
        ("scheduler", OF_SCHEDULERS),
        ("admin", of_inspectors | OF_ADMINS),
    ):
        rights = {word.partition("|")[0] for word in ROLES[role].commands.split()}
        assert {script: missing for script in scripts if (missing := commands_of(script) - rights)} == {}


def test_roles_add_up() -> None:
    words = acl_rules(["producer", "inspector"], ["a", "b-*"]).split()
    assert words[:3] == ["resetkeys", "resetchannels", "-@all"]
    assert len(words) == len(set(words))
    assert {"~asynq:{a}:*", "~asynq:{b-*}:*", "&asynq:{b-*}:due", "&asynq:inbox:*", "+lpush", "+hkeys"} <= {*words}
    assert "+lpush" not in acl_rules(["inspector"])
    assert "&" not in acl_rules(["inspector"])


@pytest.mark.parametrize("queue", ["", "a b", "a}b", "a'b"])
def test_a_queue_that_no_pattern_can_name_is_refused(queue: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{queue!r} is no pattern of queues")):
        acl_rules(["worker"], [queue])

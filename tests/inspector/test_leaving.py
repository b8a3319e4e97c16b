"""fastq's own keys: counted and deleted by themselves, but not while a process of fastq would write them again."""

import re
import time
from datetime import UTC, date, datetime
from typing import Any

import pytest
from redis import Redis

from fastq import FastqError, QueueNotEmptyError, Scheduler, Task
from fastq.wire import keys
from fastq.wire.notice import ServerNotice
from tests.docs.blocks import ROOT
from tests.inspector.harness import Ask, Seeded
from tests.inspector.test_processes import publish
from tests.waiting import wait_until

DAY, HOUR = date(2026, 1, 2), datetime(2026, 1, 2, 3, tzinfo=UTC)
OWN = {
    "app_limits": [keys.app_limits("q")],
    "archive_rule": [keys.archive_rule("q")],
    "bell": [keys.bell("q")],
    "error": [keys.error("q", "ab" * 8)],
    "errors": [keys.errors("q")],
    "fastq": [keys.server_notice(keys.server_info("h", 1, "i"))],
    "full": [keys.full("q")],
    "h": [keys.held("q", "l:é"), keys.held("q", "p:*")],
    "history": [keys.history_hours("q", DAY), keys.history_minutes("q", HOUR)],
    "last_tick": [keys.last_tick("q", "n:é")],
    "limits": [keys.limits("q")],
    "lost": [keys.lost("q", DAY)],
    "moved": [keys.moved("q")],
    "pool": [keys.pool_waiting("q", "p")],
    "quota": [keys.quota("q")],
    "rates": [keys.rates("q")],
    "scheduled_groups": [keys.scheduled_groups("q")],
    "scheduler_ticks": [keys.scheduler_ticks()],
    "tick": [keys.tick("q", "n:x", second) for second in range(1500)],
    "turns": [keys.turns("q")],
}
FAR_S = 4_000_000_000


@pytest.fixture
def own(db: Redis) -> None:
    fill_own(db)


def fill_own(db: Redis) -> None:
    limits = keys.limits("q")
    db.mset({key: 1 for names in OWN.values() for key in names if key != limits})
    db.hset(limits, "*", "1:0:1:1")


@pytest.fixture
def theirs(db: Redis) -> dict[bytes, bytes | None]:
    """Leave tasks of every state, and one key of each kind of asynq's."""
    queue = Seeded(db)
    queue.pend("p")
    queue.activate("a")
    for state in ("scheduled", "retry", "archived", "completed"):
        queue.add(state, {state: FAR_S})
    queue.group("g", {"in-group": 1})
    names = (
        *(make("default") for make in (keys.paused, keys.processed_total, keys.failed_total)),
        *(make("default", DAY) for make in (keys.processed, keys.failed)),
        keys.unique("default", "t", b"p"),
        keys.scheduler_history("e"),
        keys.semaphore("s"),
        "asynq:of-another-program",
        "mine:history",
    )
    db.mset(dict.fromkeys(names, "1"))
    return everything(db)


def everything(db: Any) -> dict[bytes, bytes | None]:
    return {key: db.dump(key) for key in db.scan_iter(count=1000)}


def test_the_own_keys_are_those_of_the_second_table_of_the_protocol() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text()
    table = page.partition("Only fastq has these keys")[2].partition("Channels")[0]
    cells = "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    assert {*re.findall(r"`asynq:(?:\{Q\}:)?(\w+)", cells)} == {*OWN, "again", "moving", "never"}


def test_own_keys_are_counted_by_kind(ask: Ask, db: Redis, own: None, theirs: dict[bytes, bytes | None]) -> None:
    before = everything(db)
    assert ask("own_keys") == {kind: len(names) for kind, names in OWN.items()}
    assert everything(db) == before


def test_own_keys_are_deleted_and_nothing_else(ask: Ask, db: Redis, theirs: dict[bytes, bytes | None]) -> None:
    fill_own(db)
    assert ask("delete_own_keys") == sum(map(len, OWN.values()))
    assert everything(db) == theirs
    assert (ask("own_keys"), ask("delete_own_keys")) == ({}, 0)


def test_own_keys_stay_while_a_server_of_fastq_runs(ask: Ask, db: Redis, own: None) -> None:
    publish(db, "go", host="theirs")
    publish(db, "ours", host="web")
    db.set(keys.server_notice(keys.server_info("web", 7, "ours")), ServerNotice("1", ("low",), ()).encode())
    with pytest.raises(FastqError, match=r"these run: server web:7; stop them first"):
        ask("delete_own_keys")
    assert db.exists(*OWN["history"]) == 2


def test_own_keys_stay_while_a_scheduler_of_fastq_runs(ask: Ask, db: Redis, url: str, own: None) -> None:
    db.zadd(keys.all_schedulers(), {keys.scheduler_entries("go:1:1b671a64-40d5-491e-99b0-da01ff1f3341"): FAR_S})
    with Scheduler(url) as scheduler:
        scheduler.register("@every 1h", Task("t"), "named")
        wait_until(lambda: db.zcard(keys.all_schedulers()) == 2)
        with pytest.raises(FastqError, match=r"these run: scheduler [^;,]*:\d+; stop them first"):
            ask("delete_own_keys")
    assert db.exists(*OWN["history"]) == 2
    assert ask("delete_own_keys") > 0


def test_dead_servers_and_schedulers_keep_nothing(ask: Ask, db: Redis, own: None) -> None:
    publish(db, "ours", expires_s=-60)
    db.set(keys.server_notice(keys.server_info("h", 7, "ours")), ServerNotice("1", (), ()).encode())
    db.zadd(keys.all_schedulers(), {keys.scheduler_entries("h:1:fastq-x"): int(time.time()) - 60})
    assert ask("delete_own_keys") == sum(map(len, OWN.values())) + 1


def test_own_keys_stay_while_tasks_are_between_two_queues(ask: Ask, db: Redis, own: None) -> None:
    db.zadd(keys.moving("q"), {"id": 1})
    with pytest.raises(QueueNotEmptyError, match="1 moving"):
        ask("delete_own_keys")
    assert db.exists(keys.moved("q"))


def test_own_keys_stay_while_tasks_wait_behind_runs(ask: Ask, db: Redis, own: None) -> None:
    db.hset(keys.again("q"), "sync:1", b"::message")
    assert ask("own_keys") == {kind: len(names) for kind, names in OWN.items()}
    with pytest.raises(QueueNotEmptyError, match="1 behind a run"):
        ask("delete_own_keys")
    assert db.hlen(keys.again("q")) == 1
    assert db.exists(keys.moved("q"))

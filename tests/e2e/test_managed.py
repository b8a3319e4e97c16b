"""Redis as providers offer it: what they refuse is refused to a user of ours, and all works or says what is unseen."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from fastq import Client, Inspector, Task
from fastq.inspector.doctor.finding import Level
from tests.cli.commands import Fastq
from tests.e2e.harness import workers_on
from tests.e2e.view import View
from tests.redis_servers import RedisServer
from tests.waiting import PATIENCE_S

ADMIN: Final = {
    "acl",
    "bgrewriteaof",
    "bgsave",
    "config",
    "debug",
    "migrate",
    "module",
    "psync",
    "replicaof",
    "save",
    "shutdown",
    "slaveof",
    "sync",
}
PROFILES: Final = {
    "ElastiCache": ADMIN | {"memory"},
    "ElastiCache Serverless": ADMIN
    | {
        "client",
        "keys",
        "latency",
        "memory",
        "monitor",
        "move",
        "object",
        "psubscribe",
        "select",
        "slowlog",
        "swapdb",
        "wait",
    },
    "MemoryDB": ADMIN | {"cluster", "failover"},
    "Memorystore": ADMIN | {"cluster", "failover", "latency", "replconf"},
    "Azure": ADMIN | {"client", "cluster", "memory", "replconf"},
    "Upstash": ADMIN
    | {"client", "cluster", "latency", "memory", "monitor", "move", "object", "role", "slowlog", "swapdb"},
}
"""Commands that providers refuse, whole, where they refuse only some of their subcommands or in scripts."""
ASKED_FOR: Final = {"client", "config", "memory", "slowlog"}
"""The commands that fastq tries although it can do without."""


@contextmanager
def refusing(server: RedisServer, db: Any, commands: set[str]) -> Iterator[str]:
    """Give the URL of a user who may not call these commands."""
    refused = [f"-{command}" for command in commands & db.command().keys()]
    db.execute_command("ACL", "SETUSER", "managed", "on", ">pw", "~*", "&*", "+@all", *refused)
    db.execute_command("ACL", "LOG", "RESET")
    try:
        yield f"unix://managed:pw@{server.socket_path}"
    finally:
        db.execute_command("ACL", "DELUSER", "managed")


def refused_so_far(db: Any) -> set[str]:
    return {entry["object"].partition("|")[0] for entry in db.acl_log()}


@pytest.mark.parametrize("provider", PROFILES)
def test_clients_and_inspectors_do_without_what_a_provider_refuses(
    provider: str, shared_server: RedisServer, db: Redis
) -> None:
    denied = PROFILES[provider]
    with refusing(shared_server, db, denied) as url, Client(url) as client, Inspector(url) as inspector:
        client.ping()
        client.enqueue("t", b"1", unique=60)
        client.enqueue("t", b"2", process_in=3600)
        client.enqueue("t", b"3", group="g")
        assert not list(client.enqueue_many([Task("t", b"4", retention=60)] * 3).errors())
        info = inspector.get_queue_info("default")
        assert (info.pending, info.scheduled, info.aggregating) == (4, 1, 1)
        assert (info.memory_usage is None) == ("memory" in denied)
        assert len(inspector.list_pending_tasks("default")) == 4
        assert len(inspector.history("default", 7)) == 7
        inspector.pause_queue("default")
        inspector.unpause_queue("default")
        inspector.cancel_processing("nosuch")
        assert (inspector.servers(), inspector.scheduler_entries()) == ([], [])
        assert "Redis" in Fastq(url).done("stats")
        unseen = {finding.check for finding in inspector.examine().of_level(Level.UNSEEN)}
        assert unseen == {"replicas"} | ({"slow commands"} if "slowlog" in denied else set())
        inspector.delete_queue("default", force=True)
        assert refused_so_far(db) <= ASKED_FOR & denied


def test_a_server_works_where_everything_is_refused_that_any_provider_refuses(
    shared_server: RedisServer, db: Redis, view: View, tmp_path: Path
) -> None:
    denied = set().union(*PROFILES.values())
    flags = ("--concurrency", "1", "--retry-delay", "tests.e2e.apps:quick_retry", "--delayed-task-check-interval", "1")
    with refusing(shared_server, db, denied) as url, workers_on(url, tmp_path) as workers, Client(url) as client:
        worker = workers.start(*flags).is_ready()
        assert client.submit("echo", {"a": 1}).result(timeout=PATIENCE_S) == b'{"a":1}'
        again = client.enqueue("fail-times", headers={"times": "1"}, retention=3600)
        later = client.enqueue("ok", process_in=1, retention=3600, unique=3600)
        for task in (again, later):
            view.until("completed", task.id)
        worker.wait_for("queue default, and maybe others, is polled, because Redis refused")
        assert worker.stop() == 0, worker.text
        assert "Traceback" not in worker.text
        assert refused_so_far(db) <= ASKED_FOR

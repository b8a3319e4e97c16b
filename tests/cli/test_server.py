"""``fastq server``."""

import json
from typing import Any

from redis import Redis

from fastq.wire import keys
from tests.cli.commands import Fastq
from tests.inspector.test_processes import publish
from tests.waiting import PATIENCE_S


def test_servers_are_listed(fastq: Fastq, db: Redis) -> None:
    publish(db, "x", 3, host="b")
    publish(db, "y", host="a\x1b")
    for word in ("ls", "list"):
        head, first, second = fastq.lines("server", word)
        assert head == "ID HOST PID STATE ACTIVE QUEUES STARTED"
        assert first.startswith("y a\\x1b 7 active 0/4 high:5 low:1 (strict) ")
        assert second.startswith("x b 7 active 3/4 high:5 low:1 (strict) ")


def test_servers_and_what_they_run_are_listed_as_json(fastq: Fastq, db: Redis) -> None:
    publish(db, "x", 2)
    (found,) = fastq.json("server", "ls")
    assert (found["id"], found["queues"], found["strict_priority"]) == ("x", {"low": 1, "high": 5}, True)
    assert found["started"] == "2026-11-21T01:02:03.456000Z"
    assert [worker["task_id"] for worker in found["active_workers"]] == ["x-0", "x-1"]
    assert found["active_workers"][0]["task_payload"] == "p"


def test_without_servers_that_is_said(fastq: Fastq) -> None:
    assert fastq.done("server", "ls") == "There are no servers running.\n"
    assert fastq.json("server", "ls") == []


def test_ids_are_as_long_as_tells_them_apart(fastq: Fastq, db: Redis) -> None:
    publish(db, "12345678-aa", host="a")
    assert fastq.lines("server", "ls")[1].startswith("12345678 a 7 ")
    publish(db, "12345678-ab", host="b")
    assert [line.split()[0] for line in fastq.lines("server", "ls")[1:]] == ["12345678-aa", "12345678-ab"]


def test_a_name_that_means_no_server_or_several_says_which_there_are(fastq: Fastq, db: Redis) -> None:
    assert fastq.failure("server", "stop", "x", "-y") == "fastq: no server 'x': there are no servers running"
    publish(db, "aa-1", host="h1")
    publish(db, "aa-2", host="h2")
    publish(db, "aa", host="h3")
    said = fastq.failure("server", "quiet", "a", "-y")
    assert "'a' may be any of aa-1 (h1:7), aa-2 (h2:7), aa (h3:7); write more of its id" in said
    assert "no server 'b': there are aa-1 (h1:7), aa-2 (h2:7), aa (h3:7)" in fastq.failure("server", "stop", "b", "-y")
    for name, server in (("aa", "h3:7 (aa)"), ("aa-2", "h2:7 (aa-2)"), ("h1:7", "h1:7 (aa-1)")):
        assert f"fastq: {server} takes no orders" in fastq.failure("server", "stop", name, "-y")


def test_a_server_that_does_not_listen_is_refused_with_what_to_do_instead(fastq: Fastq, db: Any) -> None:
    publish(db, "go", host="h\x1b")
    said = fastq.failure("server", "stop", "go", "-y")
    assert said == (
        "fastq: h\\x1b:7 (go) takes no orders (an asynq server, or denied by ACL); send SIGTERM to 7 on h\\x1b"
    )
    assert "send SIGTSTP to 7" in fastq.failure("server", "quiet", "--all", "-y")
    result = fastq.run("server", "stop", "--all", "-y", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["failed"][0]["id"] == "go"


def test_servers_are_not_stopped_unasked(fastq: Fastq, db: Any) -> None:
    publish(db, "x", 2)
    with db.pubsub() as pubsub:
        pubsub.subscribe(keys.control_channel("x"))
        assert pubsub.get_message(timeout=PATIENCE_S)["type"] == "subscribe"
        result = fastq.run("server", "stop", "x", input="n\n")
        assert result.exit_code == 1
        assert "h:7 (x): will shut down; 2 tasks run there now. Go on? [y/N]" in result.stderr
        assert "nothing was done" in fastq.run("server", "quiet", "--all").stderr
        assert fastq.done("server", "quiet", "x", "--yes", "--no-wait") == "Told h:7 (x).\n"
        assert json.loads(pubsub.get_message(timeout=PATIENCE_S)["data"]) == {"do": "quiet"}


def test_servers_are_named_or_all_of_them_meant(fastq: Fastq) -> None:
    for words in (("stop",), ("quiet",), ("stop", "x", "--all")):
        assert "name servers, or use --all" in fastq.failure("server", *words, code=2)
    assert fastq.failure("server", "stop", "--all", "-y") == "fastq: there are no servers running"

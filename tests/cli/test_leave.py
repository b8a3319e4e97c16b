"""``fastq leave`` counts fastq's own keys, and deletes them only with --yes and when nobody writes them any more."""

from redis import Redis

from fastq import Client
from fastq.wire import keys
from fastq.wire.notice import ServerNotice
from tests.cli.commands import Fastq
from tests.inspector.test_processes import publish


def own(db: Redis) -> None:
    db.set(keys.archive_rule("gone"), 1)
    for hour in ("01", "02"):
        db.set(f"asynq:{{gone}}:history:2026-01-02T{hour}", 1)


def test_own_keys_are_shown_and_stay(filled: Fastq, db: Redis) -> None:
    own(db)
    before = sorted(db.keys())
    assert filled.lines("leave") == [
        "KIND KEYS",
        "archive_rule 1",
        "history 2",
        "fastq leave --yes deletes 3 keys of fastq's own. Queues and tasks stay.",
    ]
    assert filled.json("leave") == {"count": 3, "deleted": False, "kinds": {"archive_rule": 1, "history": 2}}
    assert sorted(db.keys()) == before


def test_own_keys_are_deleted_with_yes(filled: Fastq, db: Redis) -> None:
    before = sorted(db.keys())
    own(db)
    assert filled.json("leave", "--yes") == {"count": 3, "deleted": True, "kinds": {"archive_rule": 1, "history": 2}}
    assert sorted(db.keys()) == before
    db.set(keys.archive_rule("gone"), 1)
    assert filled.lines("leave")[-1] == "fastq leave --yes deletes 1 key of fastq's own. Queues and tasks stay."
    filled.done("leave", "--yes")
    assert filled.lines("leave", "-y") == ["Deleted 0 keys of fastq's own. Queues and tasks are as they were."]
    assert filled.lines("leave") == ["There are no keys of fastq's own."]


def test_it_names_the_servers_that_run(fastq: Fastq, db: Redis) -> None:
    own(db)
    publish(db, "ours", host="web")
    db.set(keys.server_notice(keys.server_info("web", 7, "ours")), ServerNotice("1", ("low",), ()).encode())
    said = fastq.failure("leave", "--yes")
    assert said == "fastq: these run: server web:7; stop them first, since they write such keys"
    assert fastq.json("leave")["count"] == 4


def test_lanes_with_tasks_are_named_and_what_to_do_with_them(fastq: Fastq, db: Redis, url: str) -> None:
    with Client(url) as client:
        client.enqueue("t", lane="acme", queue="mail")
    before = sorted(db.keys())
    result = fastq.run("leave", "--yes")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "fastq: 1 tasks of queue 'mail' wait in lanes, which are groups that nobody serves to"
    )
    assert "fastq task run-all --queue mail --state aggregating --group LANE" in result.stderr
    assert sorted(db.keys()) == before
    fastq.done("task", "run-all", "--queue", "mail", "--state", "aggregating", "--group", "acme", "--yes")
    fastq.done("leave", "--yes")
    assert db.lrange(keys.pending("mail"), 0, -1) != []

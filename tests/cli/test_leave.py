"""``fastq leave`` counts fastq's own keys, and deletes them only with --yes and when nobody writes them any more."""

from redis import Redis

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

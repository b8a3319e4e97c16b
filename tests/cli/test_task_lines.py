"""``fastq task export`` and ``import``: every byte comes back, and nothing that is not as it was gets in."""

import base64
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fastq import Client, Task
from fastq.cli.main import main
from fastq.wire import keys
from tests.cli.commands import FAR_S, Fastq, completed, validator
from tests.cli.keyspaces import GO_CASES, everything, locks, queues_of, seed
from tests.cli.test_task_bulk import environment
from tests.inspector.harness import Seeded

UNKNOWN = b"\xaa\x06\x03new"  # field 101, which no asynq of today knows
ODD = bytes(range(256))
MANY = 1_000
VALID = validator("exported_task")


def exported(fastq: Fastq, queue: str, *words: str) -> bytes:
    result = CliRunner().invoke(main, ["--redis", fastq.url, "task", "export", "-q", queue, *words])
    assert result.exit_code == 0, result.stderr
    for line in result.stdout_bytes.splitlines()[:20]:
        VALID.validate(json.loads(line))
    return result.stdout_bytes


def imported(fastq: Fastq, lines: bytes, *words: str, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["--redis", fastq.url, "task", "import", "--json", *words], input=lines)
    assert result.exit_code == code, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    validator("task import").validate(found)
    return found


@pytest.fixture
def stored(fastq: Fastq, db: Any) -> Fastq:
    """Return the command on a queue with tasks of every state, locks, odd bytes, and fields that nobody knows."""
    with Client(fastq.url) as client:
        client.enqueue("plain", {"to": "ann"}, task_id="p1", unique=3600)
        client.enqueue("bytes", ODD, task_id="p2", headers={"trace": "é"})
        client.enqueue("later", task_id="s1", process_in=timedelta(hours=2), unique=7200, group="g")
        client.enqueue_many(Task("digest", b"%d" % n, group="g", task_id=f"g{n}", unique=600) for n in (1, 2))
        client.enqueue("digest", group="h", task_id="h1")
    queue = Seeded(db)
    queue.activate("a1", payload=b"running")
    queue.add("retry", {"r1": FAR_S + 0.5}, retried=3, error_msg="no such\nuser", last_failed_at=1_700_000_000)
    queue.add("archived", {"d1": 1_700_000_000}, retried=25, error_msg="x")
    queue.add("completed", {"c1": FAR_S}, completed_at=1_700_000_000, retention=600)
    db.hset(keys.task("default", "c1"), "result", ODD)
    db.hset(
        keys.task("default", "p2"), mapping={"msg": queue.task("p2")["msg"] + UNKNOWN, "new": b"\xff", b"\xfe": "x"}
    )
    return fastq


def without_active(found: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in found.items()
        if not key.endswith((":active", ":lease")) and not key.endswith("t:a1")
    }


def test_all_comes_back_as_it_was(stored: Fastq, db: Any) -> None:
    before, held = everything(db), locks(db)
    lines = exported(stored, "default")
    db.flushall()
    found = imported(stored, lines)
    assert (found["lines"], found["count"], found["skipped"]["active"]) == (10, 9, 1)
    assert everything(db) == without_active(before)
    assert locks(db).keys() == held.keys()
    assert len(held) == 4
    for key, left_ms in locks(db).items():
        assert held[key] - 60_000 < left_ms <= held[key]
    assert unlocked(exported(stored, "default")) == [line for line in unlocked(lines) if line["id"] != "a1"]


def unlocked(lines: bytes) -> list[dict[str, Any]]:
    """Read lines; what is left of a lock's time is read to the millisecond."""
    return [{**json.loads(line), "unique_until": None} for line in lines.splitlines()]


@pytest.mark.parametrize("case", GO_CASES)
def test_what_go_wrote_comes_back_as_it_was(fastq: Fastq, db: Any, case: str) -> None:
    seed(db, GO_CASES[case])
    queues = queues_of(db)
    lines = b"".join(exported(fastq, queue) for queue in queues)
    before = everything(db)
    found = list(map(json.loads, lines.splitlines()))
    placed = [line for line in found if line["state"] != "active"]
    db.flushall()
    report = imported(fastq, lines)
    assert (report["count"], report["skipped"]["active"]) == (len(placed), len(found) - len(placed))
    named = {name for line in placed for name in keys_of(line)}
    assert everything(db) == {key: value for key, value in before.items() if key in named}


def keys_of(line: dict[str, Any]) -> set[str]:
    """Return the keys that a task needs: what else Go left is nobody's, an aggregation set's, or an active task's."""
    queue = line["queue"]
    named = {keys.all_queues(), keys.task(queue, line["id"])}
    if line["state"] == "aggregating":
        named |= {keys.groups(queue), keys.group(queue, line["group"])}
    else:
        named.add(f"{keys.queue_prefix(queue)}{line['state']}")
    return named | ({line["unique_key"]} if line["unique_until"] else set())


def test_active_tasks_are_put_into_pending_if_that_is_wished(stored: Fastq, db: Any) -> None:
    lines = exported(stored, "default", "-s", "active")
    message = db.hget(keys.task("default", "a1"), "msg")
    db.flushall()
    assert imported(stored, lines)["skipped"]["active"] == 1
    assert everything(db) == {}
    assert imported(stored, lines, "--active-as-pending")["count"] == 1
    assert db.lrange(keys.pending("default"), 0, -1) == [b"a1"]
    fields = db.hgetall(keys.task("default", "a1"))
    assert (fields[b"msg"], fields[b"state"]) == (message, b"pending")
    assert len(fields[b"pending_since"]) == 19


def test_tasks_are_put_into_another_queue_with_their_locks(stored: Fastq, db: Any) -> None:
    lines = exported(stored, "default", "-s", "pending", "-s", "aggregating")
    db.flushall()
    assert imported(stored, lines, "--queue", "other")["count"] == 5
    assert queues_of(db) == ["other"]
    assert all(key.startswith("asynq:{other}:") for key in everything(db) if key != "asynq:queues")
    queue = Seeded(db, "other")
    p1 = queue.message("p1")
    assert (p1.queue, p1.unique_key) == ("other", keys.unique("other", "plain", b'{"to":"ann"}'))
    assert (db.get(p1.unique_key), queue.task("p1")["unique_key"]) == (b"p1", p1.unique_key.encode())
    assert db.hget(keys.task("other", "p2"), "msg").endswith(UNKNOWN)
    assert queue.message("g1").unique_key.startswith("asynq:{other}:unique:")


def test_the_lines_can_be_read_by_others(stored: Fastq) -> None:
    found = {line["id"]: line for line in map(json.loads, exported(stored, "default").splitlines())}
    assert list(found) == ["s1", "g1", "g2", "h1", "p1", "p2", "a1", "r1", "c1", "d1"]
    assert (found["p1"]["payload"], found["p1"]["unique_key"]) == (
        '{"to":"ann"}',
        keys.unique("default", "plain", b'{"to":"ann"}'),
    )
    assert found["p2"]["fields"]["new"] == {"base64": "/w=="}
    assert (found["r1"]["score"], found["c1"]["score"], found["p1"]["score"]) == (FAR_S + 0.5, FAR_S, None)
    assert found["c1"]["result_encoding"] == "base64"
    assert base64.b64decode(found["p2"]["message"]).endswith(UNKNOWN)
    assert (found["p2"]["unique_until"], found["p1"]["unique_until"][:2]) == (None, "20")


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("-s pending --type pl*", ["p1"]),
        ("-s retry -s archived --error no.such", ["r1"]),
        ("-g h", ["h1"]),
        ("-s aggregating", ["g1", "g2", "h1"]),
        ("-g nix", []),
    ],
)
def test_some_tasks_are_exported(stored: Fastq, words: str, ids: list[str]) -> None:
    assert [json.loads(line)["id"] for line in exported(stored, "default", *words.split()).splitlines()] == ids


def test_into_a_file_that_is_not_there_yet(stored: Fastq, tmp_path: Path) -> None:
    file = str(tmp_path / "tasks")
    words = ("task", "export", "-q", "default", "-s", "pending", "-o", file)
    assert stored.done(*words) == f"Exported 2 tasks of default to {file}.\n"
    assert "--yes overwrites it" in stored.failure(*words, code=2)
    assert stored.json(*words, "--yes") == {"count": 2, "file": file}
    assert "cannot write" in stored.failure(*words[:-1], str(tmp_path / "no" / "file"), code=2)
    assert "name the file with --output" in stored.failure("task", "export", "-q", "default", "--json", code=2)
    assert "--group goes with" in stored.failure("task", "export", "-q", "default", "-g", "g", "-s", "retry", code=2)
    assert "did you mean 'default'?" in stored.failure("task", "export", "-q", "defalt")
    assert stored.done("task", "import", file, "-q", "b") == "Imported 2 of 2 tasks.\n"
    assert "cannot read" in stored.failure("task", "import", str(tmp_path / "nix"), code=2)
    assert "cannot read" in stored.failure("task", "import", str(tmp_path), code=2)


def test_tasks_that_are_there_are_left_out_and_named(stored: Fastq, db: Any) -> None:
    lines = exported(stored, "default", "-s", "pending")
    before = everything(db)
    found = imported(stored, lines)
    assert (found["count"], found["skipped"]["exists"]) == (0, 2)
    assert found["conflicts"][0] == {"line": 1, "queue": "default", "id": "p1"}
    assert everything(db) == before
    result = CliRunner().invoke(main, ["-u", stored.url, "task", "import"], input=lines)
    assert "line 1 left out: task ID conflicts with another task (queue='default', task_id='p1')" in result.stderr
    assert result.stdout == "Imported 0 of 2 tasks; 2 left out because their ids exist already.\n"


def test_of_a_lock_that_is_anothers_or_has_expired_is_told(stored: Fastq, db: Any) -> None:
    lines = exported(stored, "default", "-s", "pending", "--type", "plain")
    db.flushall()
    lock = keys.unique("default", "plain", b'{"to":"ann"}')
    db.set(lock, "another")
    assert imported(stored, lines, "--dry-run")["without_lock"] == {"held": 1, "expired": 0}
    assert imported(stored, lines)["without_lock"] == {"held": 1, "expired": 0}
    assert (db.get(lock), db.llen(keys.pending("default"))) == (b"another", 1)
    db.flushall()
    (line,) = map(json.loads, lines.splitlines())
    late = json.dumps({**line, "unique_until": "2020-01-01T00:00:00Z"}).encode()
    assert imported(stored, late)["without_lock"] == {"held": 0, "expired": 1}
    assert locks(db) == {}
    db.flushall()
    ever = json.dumps({**line, "unique_until": "9999-12-31T23:59:59.999999Z"}).encode()
    assert imported(stored, ever)["count"] == 1
    assert locks(db) == {lock: -1}
    assert json.loads(exported(stored, "default")) == json.loads(ever)


def test_a_completed_task_whose_retention_is_over_is_left_out(stored: Fastq, db: Any) -> None:
    db.zadd(keys.completed("default"), {"c1": 1_700_000_000})
    lines = exported(stored, "default", "-s", "completed")
    db.flushall()
    assert imported(stored, lines)["skipped"]["expired"] == 1
    assert everything(db) == {}


def test_a_trial_changes_nothing_and_tells_the_same(stored: Fastq, db: Any) -> None:
    lines = exported(stored, "default")
    before = everything(db)
    found = imported(stored, lines, "--dry-run")
    assert (found["count"], found["skipped"]["exists"], found["dry_run"]) == (0, 9, True)
    assert everything(db) == before
    db.flushall()
    assert imported(stored, lines, "--dry-run")["count"] == 9
    assert everything(db) == {}


def test_a_task_with_thousands_of_fields_is_put_with_the_others(stored: Fastq, db: Any) -> None:
    db.hset(keys.task("default", "p2"), mapping={f"f{n}": n for n in range(5_000)})
    lines = exported(stored, "default", "-s", "pending")
    before = everything(db)
    db.flushall()
    assert imported(stored, lines)["count"] == 2
    assert before.items() >= everything(db).items()


@pytest.mark.parametrize("name", ["pending", "t:l1"])
def test_what_is_called_a_lock_and_is_another_key_is_not_written(fastq: Fastq, db: Any, name: str) -> None:
    Seeded(db).add("archived", {"l1": 1_700_000_000}, unique_key=f"asynq:{{default}}:{name}")
    line = json.loads(exported(fastq, "default"))
    db.flushall()
    assert imported(fastq, changed(line, unique_until="2999-01-01T00:00:00Z"))["count"] == 1
    assert db.type(keys.pending("default")) == b"none"
    assert db.type(keys.task("default", "l1")) == b"hash"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_task_whose_score_is_infinite_is_shown_and_comes_back(fastq: Fastq, db: Any, sign: int) -> None:
    Seeded(db).add("retry", {"r1": sign * float("inf"), "r2": FAR_S})
    assert fastq.json("task", "inspect", "-q", "default", "--id", "r1")[0]["id"] == "r1"
    lines = exported(fastq, "default")
    db.flushall()
    assert imported(fastq, lines)["count"] == 2
    ids = [b"r2", b"r1"][::sign]
    assert db.zrange(keys.retry("default"), 0, -1) == ids


def test_a_refused_command_leaves_no_task_outside_of_the_lists(stored: Fastq, db: Any) -> None:
    lines = exported(stored, "default", "-s", "pending").splitlines(keepends=True)
    before = everything(db)
    db.flushall()
    db.execute_command("ACL", "SETUSER", "default", "-set")
    try:
        assert imported(stored, b"".join(lines[::-1]), code=1)["count"] == 0
    finally:
        db.execute_command("ACL", "SETUSER", "default", "+@all")
    # Redis 6.2 cannot tell beforehand, and has put the one without a lock.
    put = db.lrange(keys.pending("default"), 0, -1)
    assert put in ([], [b"p2"])
    found = imported(stored, b"".join(lines))
    assert (found["count"], found["skipped"]["exists"]) == (2 - len(put), len(put))
    assert sorted(db.lrange(keys.pending("default"), 0, -1)) == sorted(before["asynq:{default}:pending"])


def test_a_full_disk_is_said_in_one_line(stored: Fastq) -> None:
    line = stored.failure("task", "export", "-q", "default", "-o", "/dev/full", "-y")
    assert line == "fastq: cannot write /dev/full: No space left on device; it is incomplete"


@pytest.mark.parametrize("words", ["queue move default low", "task import"])
def test_a_closed_stdin_is_misuse(stored: Fastq, tmp_path: Path, words: str) -> None:
    program = ["/bin/sh", "-c", f'exec "{sys.executable}" -m fastq {words} <&-']
    done = subprocess.run(program, env=environment(stored.url, tmp_path), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


# Bad lines ----------------------------------------------------------------------------------------------------------


def changed(line: dict[str, Any], **values: Any) -> bytes:
    return json.dumps({**line, **values}).encode() + b"\n"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"message": "AAAA"}, "message is not a message of asynq: "),
    ({"message": "A"}, "message is not base64"),
    ({"message": None}, "message must be a text, not null"),
    ({"state": "moving"}, "state must be one of active, pending"),
    ({"state": "retry"}, "score of retry must be a number, not null"),
    ({"state": "retry", "score": "1"}, 'score of retry must be a number, not "1"'),
    ({"state": "retry", "score": True}, "score of retry must be a number, not true"),
    ({"state": "retry", "score": float("nan")}, "score of retry must be a number, not NaN"),
    ({"state": "retry", "score": 10**400}, "score of retry must be a number"),
    ({"state": "aggregating", "score": 1}, "an aggregating task needs a group"),
    ({"id": " "}, "task_id must contain"),
    ({"id": "other"}, 'id is "other", but the message has "p1"'),
    ({"queue": "other"}, 'queue is "other", but the message has "default"'),
    ({"queue": 7}, "queue must be a text, not 7"),
    ({"payload": '{"to":"bob"}'}, "payload is "),
    ({"type": "x"}, 'type is "x", but the message has "plain"'),
    ({"max_retry": 3}, "max_retry is 3, but the message has 25"),
    ({"headers": {"a": "b"}}, "headers is"),
    ({"unique_until": "soon"}, "unique_until: 'soon' is not a time"),
    ({"unique_until": 7}, "unique_until must be a text, not 7"),
    ({"fields": []}, "fields must be an object"),
    ({"fields": {"a": 1}}, "fields: a must be a text or an object with base64, not 1"),
    ({"fields": {"a": {"base64": "!"}}}, "fields: a is not base64"),
    ({"fields": {"msg": "x"}}, "fields: 'msg' cannot be among them"),
    ({"fields": {"": "x"}}, "fields: '' cannot be among them"),
    ({"fields": {"a": "\ud800"}}, "fields: a cannot be written as UTF-8"),
    ({"fields": {"pending_since": "9" * 5_000}}, "fields: pending_since must be nanoseconds since 1970"),
    ({"fields": {"pending_since": "soon"}}, 'fields: pending_since must be nanoseconds since 1970, not "soon"'),
]


@pytest.mark.parametrize(("values", "text"), BAD, ids=[text for _, text in BAD])
def test_a_line_that_is_not_as_it_was_is_refused_with_its_reason(
    stored: Fastq, db: Any, values: dict[str, Any], text: str
) -> None:
    lines = exported(stored, "default", "-s", "pending")
    line = json.loads(lines.splitlines()[0])
    db.flushall()
    found = imported(stored, lines.splitlines(keepends=True)[1] + changed(line, **values), code=1)
    assert found["error"].startswith(f"line 2: {text}")
    assert (found["count"], found["lines"], everything(db)) == (0, 0, {})


@pytest.mark.parametrize("name", ["id", "queue", "state", "message", "score", "fields", "unique_until"])
def test_a_line_that_lacks_something_is_refused(stored: Fastq, name: str) -> None:
    line = json.loads(exported(stored, "default", "-s", "pending").splitlines()[0])
    del line[name]
    assert imported(stored, changed(line), code=1)["error"] == f"line 1: {name} is missing"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\n", "not JSON: Expecting value at column 1"),
        (b"[]\n", "not a JSON object but []"),
        (b'{"id": "a', "not JSON: Unterminated string starting at column 8; it is the last line and may be cut off"),
        (b'{"id": "\xff"}\n', "not UTF-8 at byte 8"),
        (b"9" * 5000 + b"\n", "not JSON: Exceeds the limit"),
        (b"[" * 100_000 + b"\n", "not JSON: "),
    ],
)
def test_what_is_no_line_is_refused(fastq: Fastq, db: Any, text: bytes, reason: str) -> None:
    assert imported(fastq, text, code=1)["error"].startswith(f"line 1: {reason}")
    assert everything(db) == {}


def test_of_a_pipe_that_is_cut_off_whole_pieces_are_imported(fastq: Fastq, db: Any, tmp_path: Path) -> None:
    with Client(fastq.url) as client:
        client.enqueue_many(Task("t", b"%d" % n) for n in range(MANY))
    lines = exported(fastq, "default")
    db.flushall()
    cut = b"".join(lines.splitlines(keepends=True)[:450]) + b'{"id"'
    program = [sys.executable, "-m", "fastq", "task", "import"]
    result = subprocess.run(program, env=environment(fastq.url, tmp_path), input=cut, capture_output=True)
    assert result.returncode == 1
    done: int = db.llen(keys.pending("default"))
    assert 0 < done < 450
    said = result.stderr.decode()
    assert said.startswith("fastq: line 451: not JSON: Expecting ':' delimiter at column 6; it is the last line")
    assert said.endswith(f"lines 1 to {done} are done, and none after them\n")
    assert result.stdout.decode().startswith(f"Imported {done} of {done} tasks")
    assert imported(fastq, lines)["count"] == MANY - done


# Interruption -------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal
from fastq.broker.transport.blocking import BlockingBroker
run = BlockingBroker._run
def run_and_interrupt(self, operation, limit):
    result = run(self, operation, limit)
    if operation.name in ("put_tasks", "read_page"):
        os.kill(os.getpid(), signal.SIGINT)
    return result
BlockingBroker._run = run_and_interrupt
from fastq.cli.main import main
main()
"""
"""The command, which somebody interrupts in the middle of its first piece."""


def test_an_import_that_is_interrupted_ends_between_two_pieces_and_can_be_run_again(
    fastq: Fastq, db: Any, tmp_path: Path
) -> None:
    with Client(fastq.url) as client:
        client.enqueue_many(Task("t", b"%d" % n, unique=3600, task_id=f"{n:04}") for n in range(MANY))
    file = tmp_path / "tasks"
    fastq.done("task", "export", "-q", "default", "-o", str(file))
    before = everything(db)
    db.flushall()
    done = completed(["task", "import", str(file)], environment(fastq.url, tmp_path), tmp_path, code=INTERRUPTED)
    assert done.returncode == 130, done.stderr
    count = db.llen(keys.pending("default"))
    assert 0 < count < MANY
    assert done.stderr == f"fastq: interrupted; lines 1 to {count} are done, and none after them\n"
    assert len(db.keys("asynq:{default}:t:*")) == len(locks(db)) == count
    again = imported(fastq, file.read_bytes())
    assert (again["count"], again["skipped"]["exists"]) == (MANY - count, count)
    assert everything(db) == before


def test_an_export_that_is_interrupted_has_written_whole_lines(fastq: Fastq, tmp_path: Path) -> None:
    with Client(fastq.url) as client:
        client.enqueue_many(Task("t", b"%d" % n) for n in range(MANY))
    file = tmp_path / "tasks"
    words = ["task", "export", "-q", "default", "-o", str(file)]
    done = completed(words, environment(fastq.url, tmp_path), tmp_path, code=INTERRUPTED)
    assert done.returncode == 130, done.stderr
    assert "interrupted: exported 0 of 1,000 tasks; only whole lines were written" in done.stderr
    assert file.read_bytes() == b""

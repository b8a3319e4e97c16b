"""``fastq doctor``: what it says, what it asks before it repairs, and its exit codes."""

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from redis import Redis

from fastq import Client, Task
from fastq.wire import keys
from fastq.wire.notice import ServerNotice
from tests.cli.commands import SCHEMA, Fastq, begin, completed, read_terminal
from tests.cli.test_task_bulk import environment
from tests.inspector.doctor.harness import DEFECTS, sound
from tests.inspector.harness import Seeded
from tests.inspector.test_processes import publish
from tests.waiting import PATIENCE_S

SCHEMA_OF_DOCTOR = {**SCHEMA, "$ref": "#/$defs/doctor"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.inspector.doctor.examination.SECOND_LOOK_S", 0.0)


@pytest.fixture
def served(fastq: Fastq, db: Redis) -> Fastq:
    """Return the command on a Redis whose queue low is sound, and served."""
    sound(db, "low")
    publish(db, "x")
    db.set(keys.server_notice(keys.server_info("h", 7, "x")), ServerNotice("1", ("low",), ("t",)).encode())
    return fastq


def break_low(db: Redis, *names: str) -> None:
    for name in names:
        DEFECTS[name].make(Seeded(db, "low"))


def test_a_healthy_redis_ends_with_0(served: Fastq) -> None:
    lines = served.lines("doctor")
    assert lines[0] == "LEVEL CHECK SEEN"
    assert "ok ids without task none" in lines
    assert "warning persistence neither append-only file nor snapshots" in lines
    assert "why a restart of Redis loses all tasks" in lines
    assert "; examined 11 of " in lines[-1]
    assert not any(line.startswith("problem") for line in lines)


def test_a_healthy_redis_is_told_of_as_json(served: Fastq) -> None:
    found = served.json("doctor")
    assert (found["healthy"], found["repairable"], found["repaired"], found["is_partial"]) == (True, [], [], False)
    levels = {check["check"]: check["level"] for check in found["checks"]}
    assert levels["expired leases"] == "ok"
    assert set(levels.values()) <= {"ok", "warning"}


def test_problems_are_said_with_examples_and_end_with_1(served: Fastq, db: Redis) -> None:
    break_low(db, "dangling in pending", "leftover")
    result = served.run("doctor")
    assert (result.exit_code, result.stderr) == (1, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "problem ids without task (low) 2 in pending" in lines
    problem, warning = (
        lines.index("problem: ids without task (low): 2 in pending"),
        lines.index("such as rest (state none)"),
    )
    assert lines[problem + 1] == "such as dangling2, dangling"
    assert problem < warning, "what is worse comes first"
    assert lines[-1].startswith("fastq doctor --repair repairs what can be repaired")
    found = json.loads(served.run("doctor", "--json").stdout)
    jsonschema.validate(found, SCHEMA_OF_DOCTOR)
    assert found["healthy"] is False
    assert [(one["queue"], one["count"]) for one in found["repairable"]] == [("low", 2), ("low", 1)]


def test_warnings_alone_end_with_0(served: Fastq, db: Redis) -> None:
    break_low(db, "leftover", "unknown", "lock")
    assert served.run("doctor").exit_code == 0


def test_it_repairs_after_asking(served: Fastq, db: Redis) -> None:
    break_low(db, "dangling in pending", "lost, retry", "stale server")
    refused = served.run("doctor", "--repair", input="n\n")
    assert refused.exit_code == 1
    assert (
        "This will be repaired: entries of servers removed: 2; ids without task dropped in low: 2; "
        "tasks archived in low: 1. Go on? [y/N]"
    ) in refused.stderr
    assert "nothing was done" in refused.stderr
    assert db.lrange(keys.pending("low"), 0, -1)[0] == b"dangling2"
    done = served.run("doctor", "--repair", input="y\n")
    assert done.exit_code == 0
    assert "Repaired: ids without task dropped in low: 2." in done.stdout
    assert "Repaired: tasks archived in low: 1." in done.stdout
    assert served.run("doctor").exit_code == 0


INTERRUPTED = """
import importlib, os, signal
from fastq.cli import main as frame
doctor = importlib.import_module("fastq.cli.doctor")
carry_out = doctor._carry_out
def interrupt_and_carry_out(*args):
    os.kill(os.getpid(), signal.SIGINT)
    return carry_out(*args)
doctor._carry_out = interrupt_and_carry_out
frame.main()
"""
"""The command, which somebody interrupts when it begins to repair."""


def test_an_interrupted_repair_says_how_far_it_came(served: Fastq, db: Redis, tmp_path: Path) -> None:
    break_low(db, "dangling in retry")
    words = ["doctor", "--repair", "--yes", "--json"]
    done = completed(words, environment(served.url, tmp_path), tmp_path, code=INTERRUPTED)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == (
        "fastq: interrupted during: ids without task dropped in low: 2; repaired before: nothing; "
        "run it again for the rest\n"
    )
    assert served.json("doctor", "--repair", "--yes")["repaired"][0]["count"] == 2


def test_nobody_to_answer_repairs_nothing(served: Fastq, db: Redis) -> None:
    break_low(db, "dangling in retry")
    result = served.run("doctor", "--repair")
    assert result.exit_code == 2
    assert "there was no answer, so nothing was done" in result.stderr
    assert served.run("doctor").exit_code == 1


def test_what_was_repaired_is_told_of_as_json(served: Fastq, db: Redis) -> None:
    break_low(db, "dangling in retry", "expired")
    result = served.run("doctor", "--repair", "--yes", "--json")
    assert result.exit_code == 1, "the lease is a server's to take over"
    found = json.loads(result.stdout)
    jsonschema.validate(found, SCHEMA_OF_DOCTOR)
    assert found["repairable"] == []
    assert found["repaired"] == [
        {"check": "ids without task", "queue": "low", "what": "ids without task dropped", "count": 2}
    ]
    assert [check["check"] for check in found["checks"] if check["level"] == "problem"] == ["expired leases"]


def test_a_queue_that_there_is_not_is_misspelt(served: Fastq) -> None:
    assert "queue not found (queue='lwo'); did you mean 'low'?" in served.failure("doctor", "-q", "lwo")


def test_a_limit_is_said(served: Fastq, db: Redis) -> None:
    with Client(served.url) as client:
        client.enqueue_many([Task("t", queue="low") for _ in range(1500)])
    assert "; --limit or --full examines more" in served.lines("doctor", "--limit", "500")[-1]
    for flags in (("--full",), ("--limit", "0"), ()):
        assert "looks at more" not in served.lines("doctor", *flags)[-1]
    assert "is not in the range" in served.failure("doctor", "--limit", "-1", code=2)


def test_what_a_terminal_would_act_on_is_escaped(served: Fastq, db: Any) -> None:
    db.set("asynq:{low}:\x1b[31m", "x")
    assert "\\x1b[31m" in served.done("doctor")
    assert "\x1b" not in served.done("doctor")


def test_on_a_terminal_it_shows_how_far_it_is(served: Fastq, db: Redis, tmp_path: Path) -> None:
    with Client(served.url) as client:
        client.enqueue_many([Task("t", queue="low") for _ in range(1500)])
    leader, follower = pty.openpty()
    program = begin(["doctor"], environment(served.url, tmp_path), tmp_path, subprocess.DEVNULL, follower)
    os.close(follower)
    shown = read_terminal(leader)
    os.close(leader)
    assert program.wait(PATIENCE_S) == 0
    assert " of 1,5" in shown
    assert " tasks …" in shown

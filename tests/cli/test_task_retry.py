"""``fastq task retry``: failed tasks run again, those that are named or that match; filters show how far they are."""

import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fastq.wire import keys
from tests.cli.commands import FAR_S, Fastq, begin, completed, now_s, read_terminal
from tests.cli.test_task_bulk import INTERRUPTED, environment
from tests.cli.test_task_lines import INTERRUPTED as INTERRUPTED_READING
from tests.inspector.harness import Seeded
from tests.waiting import PATIENCE_S

MANY = 1_000


@pytest.fixture
def failing(fastq: Fastq, db: Redis) -> Fastq:
    """Return the command on a queue of failed tasks of two types and two errors, now and long ago."""
    queue = Seeded(db)
    for at, state in enumerate(("retry", "archived")):
        when = {"last_failed_at": now_s() - 60, "retried": 2}
        old = {"last_failed_at": now_s() - 7200, "retried": 2}
        queue.add(state, {f"t{at}": FAR_S}, type="mail", error_msg="TimeoutError: slow", **when)
        queue.add(state, {f"v{at}": FAR_S + 1}, type="mail", error_msg="ValueError: bad", **when)
        queue.add(state, {f"o{at}": FAR_S + 2}, type="report", error_msg="TimeoutError: slow", **old)
    return fastq


def pending(db: Any) -> list[str]:
    return [task_id.decode() for task_id in db.lrange(keys.pending("default"), 0, -1)][::-1]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("", ["t0", "v0", "o0", "t1", "v1", "o1"]),
        ("-s retry", ["t0", "v0", "o0"]),
        ("-s archived", ["t1", "v1", "o1"]),
        ("--error ^Timeout", ["t0", "o0", "t1", "o1"]),
        ("--error Timeout --type mail", ["t0", "t1"]),
        ("--type r* -s archived", ["o1"]),
        ("--since 1h", ["t0", "v0", "t1", "v1"]),
        ("--error nothing", []),
    ],
)
def test_those_that_match_are_pending_in_their_order(failing: Fastq, db: Any, words: str, ids: list[str]) -> None:
    found = failing.json("task", "retry", "-q", "default", "--all", *words.split(), "--yes")
    assert found == {"count": len(ids), "failed": []}
    assert pending(db) == ids
    left = db.zcard(keys.retry("default")) + db.zcard(keys.archived("default"))
    assert left == 6 - len(ids)
    for task_id in ids:
        state, since = db.hmget(keys.task("default", task_id), "state", "pending_since")
        assert (state, len(since)) == (b"pending", 19)


def test_before_it_is_done_is_said_how_many_match(failing: Fastq, db: Any) -> None:
    command = ("task", "retry", "-q", "default", "--all", "--error", "Timeout", "--type", "mail")
    refused = failing.run(*command, input="n\n")
    assert refused.exit_code == 1
    what = "2 retry and archived tasks of default of type mail whose error matches Timeout"
    assert f"{what} will be pending, and run as soon as servers get to them. Go on? [y/N]" in refused.stderr
    assert pending(db) == []
    assert failing.done(*command, "-y") == f"{what} made pending.\n"
    assert failing.done(*command) == f"There are no {what.removeprefix('2 ').replace('tasks', 'tasks', 1)}.\n"


def test_a_task_that_failed_again_since_it_was_seen_is_left_alone(
    failing: Fastq, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(what: str, *, yes: bool) -> None:
        Seeded(db).put("t0", "retry", type="mail", error_msg="another")
        db.delete(keys.task("default", "t1"))

    monkeypatch.setattr("fastq.cli.destructive.confirm", change)
    assert failing.json("task", "retry", "-q", "default", "--all", "--error", "Timeout")["count"] == 2
    assert pending(db) == ["o0", "o1"]
    assert db.zscore(keys.retry("default"), "t0") == FAR_S


def test_named_tasks_are_pending_and_those_that_did_not_fail_are_refused(failing: Fastq, db: Any) -> None:
    Seeded(db).add("scheduled", {"s": FAR_S})
    assert failing.done("task", "retry", "-q", "default", "-i", "v1", "-i", "t0") == "v1 is pending.\nt0 is pending.\n"
    assert pending(db) == ["v1", "t0"]
    result = failing.run("task", "retry", "-q", "default", "-i", "s", "-i", "nix", "-i", "t1")
    assert (result.exit_code, result.stdout) == (1, "t1 is pending.\n")
    assert "cannot retry a task in state 'scheduled' (queue='default', task_id='s')" in result.stderr
    assert "task not found (queue='default', task_id='nix')" in result.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "name tasks with --id, or use --all"),
        ("--all -i x", "name tasks with --id, or use --all"),
        ("-i x --error y", "go with --all, not with --id"),
        ("-i x -s retry", "go with --all, not with --id"),
        ("--all -s pending", "'pending' is not one of"),
        ("--all --error (", "'(' is not a regular expression"),
        ("--all --since soon", "neither a duration"),
    ],
)
def test_wrong_words_are_misuse(failing: Fastq, words: str, text: str) -> None:
    assert text in failing.failure("task", "retry", "-q", "default", *words.split(), code=2)


def test_a_queue_that_there_is_not_is_said(failing: Fastq) -> None:
    for words in (("--all",), ("--all", "--error", "x"), ("-i", "x")):
        assert "did you mean 'default'?" in failing.failure("task", "retry", "-q", "defalt", *words)


@pytest.fixture
def crowded(fastq: Fastq, db: Redis) -> Fastq:
    """Return the command on a queue with some pages' worth of failed tasks, of which every other has an error."""
    queue = Seeded(db)
    for name, error in (("a", "odd"), ("b", "")):
        queue.add("retry", {f"{name}{n:04}": FAR_S + n for n in range(MANY // 2)}, error_msg=error)
    return fastq


def test_work_is_interrupted_between_two_pieces_and_goes_on_when_it_is_asked_again(
    crowded: Fastq, db: Any, tmp_path: Path
) -> None:
    words = ["task", "retry", "-q", "default", "--all", "--error", "odd", "-y"]
    done = completed(words, environment(crowded.url, tmp_path), tmp_path, code=INTERRUPTED)
    assert done.returncode == 130
    assert done.stderr == "fastq: interrupted: made pending 200 of 500 tasks; the rest is unchanged\n"
    assert db.zcard(keys.retry("default")) == MANY - 200
    assert crowded.json(*words)["count"] == 300
    assert pending(db) == [f"a{n:04}" for n in range(MANY // 2)]


def test_when_it_is_interrupted_before_anything_was_done_that_is_said(crowded: Fastq, db: Any, tmp_path: Path) -> None:
    words = ["task", "retry", "-q", "default", "--all", "--error", "odd", "-y"]
    done = completed(words, environment(crowded.url, tmp_path), tmp_path, code=INTERRUPTED_READING)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fastq: interrupted: nothing was done\n")
    assert db.zcard(keys.retry("default")) == MANY


@pytest.mark.parametrize(
    "words",
    [
        ("task", "ls", "-q", "default", "-s", "retry", "--error", "nothing"),
        ("task", "retry", "-q", "default", "--all", "--error", "odd", "-y"),
    ],
    ids=" ".join,
)
def test_on_a_terminal_a_filter_shows_how_far_it_is(crowded: Fastq, tmp_path: Path, words: tuple[str, ...]) -> None:
    leader, follower = pty.openpty()
    process = begin(words, environment(crowded.url, tmp_path), tmp_path, subprocess.DEVNULL, follower)
    os.close(follower)
    text = read_terminal(leader)
    assert process.wait(PATIENCE_S) == 0
    os.close(leader)
    assert re.search(r"read [\d,]+ of 1,000 tasks …", text)

"""``fastq task run-all``, ``archive-all``, ``delete-all``; ``fastq queue rm``: asking, progress, interruption."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client, Task
from fastq.wire import keys
from tests.cli.commands import Fastq, begin, completed, read_terminal, validator
from tests.e2e.harness import ROOT
from tests.redis_servers import redis_server
from tests.waiting import PATIENCE_S

MANY = 1_000


@pytest.mark.parametrize(
    ("words", "asked", "said", "into"),
    [
        (
            "run-all -s scheduled",
            "2 scheduled tasks of default will be pending",
            "2 scheduled tasks of default made pending.",
            ("pending", 5),
        ),
        ("runall -s retry", "1 retry task of", "1 retry task of default made pending.", ("pending", 4)),
        ("run-all -s archived", "1 archived task of", "1 archived task of default made pending.", ("pending", 4)),
        ("run-all -s completed", "1 completed task of", "1 completed task of default made pending.", ("pending", 4)),
        (
            "run-all -s aggregating -g mails",
            "2 aggregating tasks of default in group mails",
            "2 aggregating tasks of default in group mails made pending.",
            ("pending", 5),
        ),
        (
            "archive-all -s pending",
            "the archive keeps the last 10,000",
            "3 pending tasks of default archived.",
            ("archived", 4),
        ),
        (
            "archiveall -s aggregating -g mails",
            "2 aggregating",
            "2 aggregating tasks of default in group mails archived.",
            ("archived", 3),
        ),
        ("delete-all -s pending", "will be deleted for good", "3 pending tasks of default deleted.", ("pending", 0)),
        ("deleteall -s completed", "1 completed", "1 completed task of default deleted.", ("completed", 0)),
        (
            "delete-all -s aggregating -g mails",
            "2 aggregating",
            "2 aggregating tasks of default in group mails deleted.",
            ("aggregating", 0),
        ),
    ],
)
def test_all_tasks_of_a_state_are_changed_once_the_answer_is_yes(
    filled: Fastq, words: str, asked: str, said: str, into: tuple[str, int]
) -> None:
    command = ("task", *words.split(), "-q", "default")
    before = filled.json("queue", "inspect", "default")[0]
    refused = filled.run(*command, input="n\n")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.endswith("Go on? [y/N] fastq: nothing was done\n")
    assert asked in refused.stderr
    assert filled.json("queue", "inspect", "default")[0]["size"] == before["size"]
    assert said in filled.done(*command, "--yes")
    state, count = into
    assert filled.json("queue", "inspect", "default")[0][state] == count


@pytest.mark.parametrize("verb", ["run-all", "archive-all", "delete-all"])
def test_of_no_tasks_none_are_changed_and_nothing_is_asked(filled: Fastq, verb: str) -> None:
    words = ("task", verb, "-q", "low", "-s", "retry")
    assert filled.done(*words) == "There are no retry tasks of low.\n"
    in_group = ("task", verb, "-q", "default", "-s", "aggregating", "-g", "nix")
    assert filled.done(*in_group) == "There are no aggregating tasks of default in group nix.\n"
    assert "did you mean 'default'?" in filled.failure("task", verb, "-q", "defaul", "-s", "retry")


@pytest.mark.parametrize("verb", ["run-all", "archive-all", "delete-all"])
def test_tasks_of_a_group_that_is_not_listed_are_changed_too(filled: Fastq, db: Redis, verb: str) -> None:
    db.srem(keys.groups("default"), "mails")
    said = filled.done("task", verb, "-q", "default", "-s", "aggregating", "-g", "mails", "--yes")
    assert said.startswith("2 aggregating tasks of default in group mails ")
    assert not db.exists(keys.group("default", "mails"))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("run-all -s pending", "'pending' is not one of"),
        ("archive-all -s archived", "'archived' is not one of"),
        ("delete-all -s active", "'active' is not one of"),
        ("delete-all -s aggregating", "name one with --group"),
        ("delete-all -s retry -g g", "--group goes with --state aggregating only"),
    ],
)
def test_a_wrong_state_is_misuse(filled: Fastq, words: str, text: str) -> None:
    assert text in filled.failure("task", *words.split(), "-q", "default", "--yes", code=2)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("task run-all -q default -s scheduled", 2),
        ("task archive-all -q default -s pending", 3),
        ("task delete-all -q default -s retry", 1),
        ("task delete-all -q low -s retry", 0),
        ("task delete -q default -i p1 -i p1 -i p2", 2),
        ("task cancel a1 a2 --outcome delete", 2),
        ("queue rm critical --force", 1),
    ],
)
def test_what_was_done_is_told_as_json(filled: Fastq, words: str, count: int) -> None:
    assert filled.json(*words.split(), "--yes") == {"count": count, "failed": []}


@pytest.mark.parametrize(
    ("words", "count", "error"),
    [
        ("task run -q default -i s1 -i nix", 1, "task not found (queue='default', task_id='nix')"),
        ("task archive -q default -i nix -i s1", 1, "task not found (queue='default', task_id='nix')"),
        ("task delete -q default -i nix --yes", 0, "task not found (queue='default', task_id='nix')"),
        ("queue pause nix default", 1, "queue not found (queue='nix')"),
        ("queue resume low nix", 1, "queue is not paused (queue='nix')"),
        ("queue rm low nix --yes", 1, "queue not found (queue='nix')"),
    ],
)
def test_what_failed_is_told_as_json_with_its_error(filled: Fastq, words: str, count: int, error: str) -> None:
    result = filled.run(*words.split(), "--json")
    found = json.loads(result.stdout)
    validator(" ".join(words.split()[:2])).validate(found)
    assert (result.exit_code, found) == (1, {"count": count, "failed": [{"id": "nix", "error": error}]})
    assert error in result.stderr


# Queues -------------------------------------------------------------------------------------------------------------


def test_a_queue_without_tasks_is_removed(filled: Fastq, db: Redis) -> None:
    refused = filled.run("queue", "rm", "low", input="no\n")
    assert refused.exit_code == 1
    assert "This deletes for good: low with 0 tasks. Go on? [y/N]" in refused.stderr
    assert filled.done("queue", "delete", "low", "-y") == "Deleted low.\n"
    assert db.keys("asynq:{low}*") == []
    assert "queue not found" in filled.failure("queue", "remove", "low", "-y")


def test_a_queue_with_tasks_is_removed_by_force_only(filled: Fastq, db: Redis) -> None:
    line = filled.failure("queue", "rm", "critical", "--yes")
    assert line == "fastq: queue is not empty: it has 1 pending (queue='critical'); --force also deletes them"
    assert filled.done("queue", "rm", "critical", "--force", "--yes") == "Deleted critical.\n"
    assert db.keys("asynq:{critical}*") == []


def test_tasks_of_groups_that_are_not_listed_are_counted_before_a_queue_is_removed(filled: Fastq, db: Redis) -> None:
    with Client(filled.url) as client:
        client.enqueue("t", group="g", queue="low", task_id="it")
    db.srem(keys.groups("low"), "g")
    line = filled.failure("queue", "rm", "low", "--yes")
    assert line == "fastq: queue is not empty: it has 1 aggregating (queue='low'); --force also deletes them"
    assert db.exists(keys.task("low", "it"))
    asked = filled.run("queue", "rm", "low", "--force", input="n\n")
    assert "This deletes for good: low with 1 tasks. Go on?" in asked.stderr
    assert filled.done("queue", "rm", "low", "--force", "--yes") == "Deleted low.\n"
    assert db.keys("asynq:{low}*") == []


def test_a_queue_that_is_not_listed_any_more_is_removed(filled: Fastq, db: Redis) -> None:
    db.srem(keys.all_queues(), "critical")
    db.set(keys.paused("critical"), 1)
    line = filled.failure("queue", "rm", "critical", "--yes")
    assert line == "fastq: queue is not empty: it has 1 pending (queue='critical'); --force also deletes them"
    assert filled.done("queue", "rm", "critical", "--force", "--yes") == "Deleted critical.\n"
    assert db.keys("asynq:{critical}*") == []
    assert "queue not found" in filled.failure("queue", "rm", "critical", "--force", "--yes")


def test_active_tasks_are_in_the_way_and_keep_no_other_queue_from_it(filled: Fastq, db: Redis) -> None:
    result = filled.run("queue", "rm", "default", "critical", "--force", "--yes")
    assert (result.exit_code, result.stdout) == (1, "Deleted critical.\n")
    assert "2 active" in result.stderr
    assert "wait until the active tasks are done, or cancel them" in result.stderr
    assert not db.exists(keys.paused("default"))


# Interruption -------------------------------------------------------------------------------------------------------


INTERRUPTED = """
import os, signal
from fastq.inspector import Progress
add = Progress._add
def add_and_interrupt(self, result):
    add(self, result)
    if self.done:
        os.kill(os.getpid(), signal.SIGINT)
Progress._add = add_and_interrupt
from fastq.cli.main import main
main()
"""
"""The command, which somebody interrupts when the first piece of its work is done."""

DELETIONS = [("task", "delete-all", "-q", "default", "-s", "pending", "-y"), ("queue", "rm", "default", "-fy")]


def environment(url: str, home: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "FASTQ_REDIS_URL": url, "HOME": str(home), "TERM": "xterm"}


@pytest.fixture
def crowded(fastq: Fastq) -> Fastq:
    """Return the command on a queue with some pieces' worth of tasks that hold unique locks."""
    with Client(fastq.url) as client:
        client.enqueue_many(Task("t", b"%d" % n, unique=3600) for n in range(MANY))
    return fastq


@pytest.mark.parametrize("words", DELETIONS, ids=" ".join)
def test_an_interrupted_deletion_leaves_whole_tasks_and_says_how_far_it_came(
    crowded: Fastq, db: Redis, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = completed(words, environment(crowded.url, tmp_path), tmp_path, code=INTERRUPTED)
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    left = db.llen(keys.pending("default"))
    assert isinstance(left, int)
    assert 0 < left < MANY
    assert done.stderr == f"fastq: interrupted: deleted {MANY - left} of 1,000 tasks; the rest is unchanged\n"
    assert len(db.keys("asynq:{default}:t:*")) == left
    assert len(db.keys("asynq:{default}:unique:*")) == left
    assert not db.exists(keys.paused("default"))
    assert crowded.done(*words)  # the same again does the rest
    assert db.keys("asynq:{default}:t:*") == []


@pytest.mark.parametrize(("verb", "done"), [("archive-all", "archived"), ("delete-all", "deleted")])
def test_other_work_is_interrupted_between_two_pieces_too(
    crowded: Fastq, db: Redis, tmp_path: Path, verb: str, done: str
) -> None:
    with Client(crowded.url) as client:
        client.enqueue_many(Task("t", process_in=3600) for n in range(MANY))
    for words, name in (("run-all", "made pending"), (verb, done)):
        command = ["task", words, "-q", "default", "-s", "scheduled", "-y"]
        ended = completed(command, environment(crowded.url, tmp_path), tmp_path, code=INTERRUPTED)
        assert ended.returncode == 130, ended.stderr
        assert f"fastq: interrupted: {name} 200 of " in ended.stderr
    assert db.zcard(keys.scheduled("default")) == MANY - 400


@pytest.mark.parametrize("words", DELETIONS, ids=" ".join)
def test_on_a_terminal_progress_is_shown(crowded: Fastq, tmp_path: Path, words: tuple[str, ...]) -> None:
    leader, follower = pty.openpty()
    process = begin(words, environment(crowded.url, tmp_path), tmp_path, subprocess.DEVNULL, follower)
    os.close(follower)
    text = read_terminal(leader)
    assert process.wait(PATIENCE_S) == 0
    os.close(leader)
    assert re.search(r"deleted [\d,]+ of 1,000 tasks …", text)


@pytest.mark.parametrize("words", DELETIONS, ids=" ".join)
def test_redis_that_goes_away_is_said_with_how_far_it_came(tmp_path: Path, words: tuple[str, ...]) -> None:
    with redis_server() as server:
        with Client(server.url) as client:
            client.enqueue_many(Task("t", b"%d" % n) for n in range(MANY))
        program = INTERRUPTED.replace("signal.SIGINT)", f"0) or os.kill({server.process.pid}, signal.SIGKILL)")
        done = completed(words, environment(server.url, tmp_path), tmp_path, code=program)
    assert done.returncode == 1
    first, *more = done.stderr.splitlines()
    assert re.match(r"fastq: deleted [\d,]+ of 1,000 tasks, then: .*Redis at ", (more or [first])[-1])


def test_a_question_on_a_terminal_can_be_interrupted(filled: Fastq, tmp_path: Path) -> None:
    env = environment(filled.url, tmp_path)
    program = [sys.executable, "-m", "fastq", "queue", "rm", "low"]
    with subprocess.Popen(program, env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        asked = b""
        while b"[y/N]" not in asked:
            asked += process.stderr.read(1)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert b"Traceback" not in process.stderr.read()
    assert "low" in filled.done("queue", "ls")

"""``fastq queue move``: asks, moves what was named, says what stayed, and can be interrupted."""

from pathlib import Path
from typing import Any

import pytest

from fastq import Client, Task
from fastq.wire import keys
from tests.cli.commands import Fastq, completed
from tests.cli.keyspaces import everything
from tests.cli.test_task_bulk import INTERRUPTED, environment

MANY = 1_000


def sizes(fastq: Fastq, queue: str) -> dict[str, int]:
    (found,) = fastq.json("queue", "inspect", queue)
    states = ("active", "pending", "aggregating", "scheduled", "retry", "archived", "completed")
    return {state: found[state] for state in states if found[state]}


@pytest.mark.parametrize(
    ("words", "moved", "left"),
    [
        (
            "",
            {"pending": 3, "aggregating": 2, "scheduled": 2, "retry": 1, "archived": 1, "completed": 1},
            {"active": 2},
        ),
        ("-s pending -s retry", {"pending": 3, "retry": 1}, None),
        ("--type mail:*", {"pending": 2, "retry": 1, "archived": 1}, None),
        ("--type nothing", {}, None),
        ("-s completed --type sum", {"completed": 1}, None),
    ],
)
def test_tasks_are_moved(filled: Fastq, words: str, moved: dict[str, int], left: dict[str, int] | None) -> None:
    before = sizes(filled, "default")
    count = sum(moved.values())
    found = filled.json("queue", "move", "default", "new", *words.split(), "--yes")
    assert found == {"count": count, "stayed": {"exists": 0, "lock_held": 0}, "failed": []}
    assert sizes(filled, "new") == moved
    rest = {state: size - moved.get(state, 0) for state, size in before.items() if size != moved.get(state, 0)}
    assert sizes(filled, "default") == (rest if left is None else left)


def test_it_asks_and_says_what_it_did(filled: Fastq, db: Any) -> None:
    before = everything(db)
    words = ("queue", "move", "default", "low", "-s", "pending", "--type", "mail:send")
    refused = filled.run(*words, input="n\n")
    asked = "Those of type mail:send among the 3 tasks of default that are pending will be moved to low."
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"{asked} Go on? [y/N]")
    assert everything(db) == before
    assert filled.done(*words, "-y") == "Moved 2 tasks of default to low.\n"
    assert filled.done("queue", "move", "critical", "low", "-y") == "Moved 1 task of critical to low.\n"
    assert filled.done("queue", "move", "critical", "low") == "Moved 0 tasks of critical to low.\n"


def test_what_has_to_stay_is_named(filled: Fastq) -> None:
    with Client(filled.url) as client:
        client.enqueue("x", queue="low", task_id="p1")
    result = filled.run("queue", "move", "default", "low", "-s", "pending", "--yes")
    assert result.exit_code == 1
    assert result.stderr == "fastq: p1 stays in default: its id exists there already\n"
    assert result.stdout == "Moved 2 tasks of default to low; 1 stayed.\n"


def test_a_move_out_of_a_queue_that_is_not_listed_any_more_is_ended(filled: Fastq, db: Any) -> None:
    filled.done("queue", "move", "critical", "low", "-y")
    db.lrem(keys.pending("low"), 1, "o1")
    parked = {"state": "moving", "move_state": "pending", "move_from": "critical", "move_token": "t", "move_copy": "c"}
    db.hset(keys.task("low", "o1"), mapping={**parked, "move_score": "", "move_group": ""})
    db.zadd(keys.moving("low"), {"o1": 1})
    db.hset(keys.moved("critical"), "t:o1", "c:low")
    db.srem(keys.all_queues(), "critical")  # as a tool of Go removes an empty queue
    assert filled.done("queue", "move", "critical", "low", "-y") == "Moved 1 task of critical to low.\n"
    assert db.lrange(keys.pending("low"), 0, -1) == [b"o1"]


def test_it_warns_of_an_archive_that_will_be_too_full(filled: Fastq, db: Any) -> None:
    words = ("queue", "move", "default", "low", "-s", "archived")
    db.zadd(keys.archived("low"), {f"x{n}": n for n in range(1, 10_000)})
    assert "note" not in filled.run(*words, input="n\n").stderr
    db.zadd(keys.archived("low"), {"x0": 0})
    said = filled.run(*words, input="n\n").stderr
    assert said.startswith("fastq: note: up to 10,001 archived tasks will be in low; the next task archived there")
    for rule, said_of_it in (
        ({"max": 9_000, "full": "trim"}, "deletes all but the newest 9,000\n"),
        ({"full": "pause"}, "the next task archived there pauses the queue, because its archive keeps 9,000\n"),
        ({"full": "spill"}, "its servers write all but the newest 9,000 to files\n"),
    ):
        db.hset(keys.archive_rule("low"), mapping=rule)
        assert said_of_it in filled.run(*words, input="n\n").stderr
    db.hset(keys.archive_rule("low"), "max", 20_000)
    assert "note" not in filled.run(*words, input="n\n").stderr


def test_what_an_error_may_have_left_between_the_queues_is_said(filled: Fastq, db: Any) -> None:
    db.set(keys.pending("low"), "x")
    said = filled.failure("queue", "move", "default", "low", "-s", "pending", "-y")
    assert said.endswith("; some tasks may be parked between the queues; run the same move again to finish it")
    db.delete(keys.pending("low"))
    assert filled.done("queue", "move", "default", "low", "-s", "pending", "-y") == "Moved 3 tasks of default to low.\n"


def test_wrong_words_are_misuse(filled: Fastq) -> None:
    assert "FROM and TO are both 'a'" in filled.failure("queue", "move", "a", "a", code=2)
    assert "'active' is not one of" in filled.failure("queue", "move", "a", "b", "-s", "active", code=2)
    assert "did you mean 'default'?" in filled.failure("queue", "move", "defalt", "b", "-y")


def test_a_move_that_is_interrupted_ends_between_two_pieces_and_goes_on_when_it_is_asked_again(
    fastq: Fastq, db: Any, tmp_path: Path
) -> None:
    with Client(fastq.url) as client:
        client.enqueue_many(Task("t", b"%d" % n, task_id=f"{n:04}", queue="a", unique=3600) for n in range(MANY))
    words = ["queue", "move", "a", "b", "-y"]
    done = completed(words, environment(fastq.url, tmp_path), tmp_path, code=INTERRUPTED)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "fastq: interrupted: moved 200 of 1,000 tasks; the rest is unchanged\n"
    assert (db.llen(keys.pending("a")), db.llen(keys.pending("b"))) == (MANY - 200, 200)
    assert not db.exists(keys.moving("a"), keys.moving("b"), keys.moved("a"))
    assert fastq.json(*words)["count"] == MANY - 200
    ids = [task_id.decode() for task_id in db.lrange(keys.pending("b"), 0, -1)]
    assert ids[::-1] == [f"{n:04}" for n in range(MANY)]
    assert (len(db.keys("asynq:{b}:unique:*")), len(db.keys("asynq:{a}:*"))) == (MANY, 0)

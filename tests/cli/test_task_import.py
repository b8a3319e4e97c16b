"""``fastq task import``: bad lines are told before anything is written, or left out; the archive keeps its limit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastq import Client, Task
from fastq.inspector.importing import NAMED
from fastq.wire import keys
from tests.cli.commands import Fastq, completed, validator
from tests.cli.keyspaces import everything
from tests.cli.test_task_bulk import environment
from tests.inspector.harness import Seeded

MANY = 450
FULL = 10_000


@pytest.fixture
def file(fastq: Fastq, db: Any, tmp_path: Path) -> Path:
    """Export some pieces' worth of tasks, and forget them."""
    with Client(fastq.url) as client:
        client.enqueue_many(Task("t", b"%d" % n, task_id=f"{n:04}") for n in range(MANY))
    file = tmp_path / "tasks"
    fastq.done("task", "export", "-q", "default", "-o", str(file))
    db.flushall()
    return file


def spoil(file: Path, *numbers: int) -> None:
    """Cut lines off in their middles."""
    lines = file.read_bytes().splitlines(keepends=True)
    for number in numbers:
        lines[number - 1] = lines[number - 1][:20] + b"\n"
    file.write_bytes(b"".join(lines))


def record(fastq: Fastq, *words: str, code: int) -> dict[str, Any]:
    result = fastq.run("task", "import", "--json", *words)
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    validator("task import").validate(found)
    return found


def test_all_bad_lines_of_a_file_are_named_before_anything_is_written(fastq: Fastq, db: Any, file: Path) -> None:
    spoil(file, 3, 401, 450)
    result = fastq.run("task", "import", str(file))
    first, second, third, last = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (1, "Imported 0 of 0 tasks.\n")
    assert first.startswith("fastq: line 3: not JSON: ")
    assert second.startswith("fastq: line 401: not JSON: ")
    assert third.startswith("fastq: line 450: not JSON: ")
    assert last == "fastq: 3 of 450 lines are bad; nothing was done"
    assert everything(db) == {}
    found = record(fastq, str(file), code=1)
    assert [bad["line"] for bad in found["bad_lines"]] == [3, 401, 450]
    assert (found["count"], found["lines"], found["skipped"]["bad"]) == (0, 0, 3)


def test_a_file_on_stdin_is_checked_as_one_that_is_named(fastq: Fastq, db: Any, file: Path, tmp_path: Path) -> None:
    spoil(file, 449)
    with file.open("rb") as stdin:
        done = completed(["task", "import"], environment(fastq.url, tmp_path), tmp_path, stdin=stdin)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("fastq: line 449: not JSON: ")
    assert line.endswith("; nothing was done")
    assert everything(db) == {}


def test_bad_lines_are_left_out_if_that_is_wished_and_named(fastq: Fastq, db: Any, file: Path) -> None:
    spoil(file, *range(1, 26))
    result = fastq.run("task", "import", str(file), "--skip-bad")
    assert result.exit_code == 1
    assert result.stdout == "Imported 425 of 450 tasks; 25 left out because they are bad.\n"
    lines = result.stderr.splitlines()
    assert len(lines) == NAMED
    assert lines[0].startswith("fastq: line 1 left out: not JSON: ")
    assert [id.decode() for id in db.lrange(keys.pending("default"), 0, -1)] == [f"{n:04}" for n in range(449, 24, -1)]


def test_bad_lines_out_of_a_pipe_are_left_out_too(fastq: Fastq, db: Any, file: Path, tmp_path: Path) -> None:
    spoil(file, 200, 450)
    program = [sys.executable, "-m", "fastq", "task", "import", "--skip-bad", "--json"]
    env = environment(fastq.url, tmp_path)
    done = subprocess.run(program, env=env, input=file.read_bytes(), capture_output=True)
    found = json.loads(done.stdout)
    assert (done.returncode, found["count"], found["lines"], found["error"]) == (1, 448, 450, None)
    assert [bad["line"] for bad in found["bad_lines"]] == [200, 450]
    assert db.llen(keys.pending("default")) == 448


def test_a_trial_tells_of_bad_lines_and_what_would_be_without_them(fastq: Fastq, db: Any, file: Path) -> None:
    spoil(file, 7)
    assert record(fastq, str(file), "--dry-run", code=1)["bad_lines"][0]["line"] == 7
    found = record(fastq, str(file), "--dry-run", "--skip-bad", code=1)
    assert (found["count"], found["skipped"]["bad"]) == (449, 1)
    assert everything(db) == {}


# The archive --------------------------------------------------------------------------------------------------------


@pytest.fixture
def archived(fastq: Fastq, db: Any, tmp_path: Path) -> Path:
    """Export three archived tasks; the archive then is full but for two."""
    queue = Seeded(db)
    queue.add("archived", dict.fromkeys(("a1", "a2", "a3"), 4_000_000_000))
    file = tmp_path / "archived"
    fastq.done("task", "export", "-q", "default", "-o", str(file))
    db.flushall()
    db.sadd(keys.all_queues(), "default")
    db.zadd(keys.archived("default"), {f"x{n}": 4_000_000_000 for n in range(FULL - 2)})
    return file


def test_an_archive_takes_no_more_than_it_keeps_and_that_is_said_before(fastq: Fastq, db: Any, archived: Path) -> None:
    for words in (["--dry-run"], []):
        result = fastq.run("task", "import", str(archived), *words)
        assert result.exit_code == 0
        assert result.stderr == (
            "fastq: note: the archive of default has 9,998 tasks, and its limit is 10,000, so 1 of 3 archived tasks "
            "will be left out\n"
        )
        assert result.stdout.endswith("2 of 3 tasks; 1 left out because the archive is full.\n")
    assert db.zcard(keys.archived("default")) == FULL
    assert sorted(db.keys("asynq:{default}:t:*")) == [b"asynq:{default}:t:a1", b"asynq:{default}:t:a2"]


def test_an_archive_takes_as_many_as_its_own_rule_says(fastq: Fastq, db: Any, archived: Path) -> None:
    db.hset(keys.archive_rule("default"), mapping={"max": FULL - 1, "ttl": 60, "full": "spill"})
    result = fastq.run("task", "import", str(archived))
    assert result.stderr.endswith("and its limit is 9,999, so 2 of 3 archived tasks will be left out\n")
    assert db.zcard(keys.archived("default")) == FULL - 1
    db.hset(keys.archive_rule("default"), "max", 3 * FULL)
    result = fastq.run("task", "import", str(archived))
    assert (result.stderr.count("note"), db.zcard(keys.archived("default"))) == (0, FULL + 1)


def test_archived_tasks_come_back_to_their_places_among_the_others(fastq: Fastq, db: Any, tmp_path: Path) -> None:
    Seeded(db).add("archived", {"old": 4_000_000_001, "middle": 4_000_000_003, "new": 4_000_000_005})
    file = tmp_path / "archived"
    fastq.done("task", "export", "-q", "default", "-o", str(file))
    db.flushall()
    db.zadd(keys.archived("default"), {"x2": 4_000_000_002, "x4": 4_000_000_004})
    fastq.done("task", "import", str(file))
    assert db.zrange(keys.archived("default"), 0, -1) == [b"old", b"x2", b"middle", b"x4", b"new"]


def test_a_task_for_a_full_archive_takes_no_lock(fastq: Fastq, db: Any, tmp_path: Path) -> None:
    lock = keys.unique("default", "t", b"")
    Seeded(db).add("archived", {"a1": 4_000_000_000}, unique_key=lock)
    db.set(lock, "a1")
    file = tmp_path / "archived"
    fastq.done("task", "export", "-q", "default", "-o", str(file))
    db.flushall()
    db.zadd(keys.archived("default"), {f"x{n}": 4_000_000_000 for n in range(FULL)})
    assert record(fastq, str(file), code=0)["skipped"]["archive_full"] == 1
    assert not db.exists(lock)


def test_a_trial_counts_over_all_pieces_what_an_archive_takes(fastq: Fastq, db: Any, tmp_path: Path) -> None:
    Seeded(db).add("archived", {f"a{n:03}": 4_000_000_000 for n in range(MANY)})
    file = tmp_path / "archived"
    fastq.done("task", "export", "-q", "default", "-o", str(file))
    db.flushall()
    db.zadd(keys.archived("default"), {f"x{n}": 4_000_000_000 for n in range(FULL - 300)})
    found = record(fastq, str(file), "--dry-run", code=0)
    assert (found["count"], found["skipped"]["archive_full"]) == (300, 150)
    assert found == {**record(fastq, str(file), code=0), "dry_run": True}
    assert db.zcard(keys.archived("default")) == FULL

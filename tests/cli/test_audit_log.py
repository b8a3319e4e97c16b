"""The file of ``$FASTQ_AUDIT_LOG``."""

import json
from pathlib import Path

from redis import Redis

from fastq.wire import keys
from tests.cli.commands import Fastq


def test_what_was_changed_is_appended_to_the_file(fastq: Fastq, db: Redis, tmp_path: Path) -> None:
    file = tmp_path / "audit"
    env = {"FASTQ_AUDIT_LOG": str(file)}
    for words in (
        ("task", "enqueue", "-t", "mail:send", "-l", '{"password": 1}'),
        ("queue", "ls"),
        ("queue", "pause", "default"),
    ):
        assert fastq.run(*words, env=env).exit_code == 0
    assert fastq.run("queue", "resume", "default", env={}).exit_code == 0, "without the variable"
    first, second = [json.loads(line) for line in file.read_text().splitlines()]
    assert (first["action"], first["queue"], first["type"]) == ("enqueue", "default", "mail:send")
    assert (second["action"], second["queue"], second["outcome"]) == ("pause_queue", "default", "done")
    assert "password" not in file.read_text()


def test_nothing_is_changed_if_the_file_cannot_be_written(fastq: Fastq, db: Redis, tmp_path: Path) -> None:
    fastq.done("task", "enqueue", "-t", "t", "-l", "")
    result = fastq.run("queue", "pause", "default", env={"FASTQ_AUDIT_LOG": str(tmp_path)})
    assert result.exit_code == 1
    assert result.stderr == f"fastq: $FASTQ_AUDIT_LOG='{tmp_path}' cannot be written: Is a directory\n"
    assert not db.exists(keys.paused("default"))

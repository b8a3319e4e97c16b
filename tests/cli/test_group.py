"""``fastq group``."""

from tests.cli.commands import Fastq


def test_groups_are_listed(filled: Fastq) -> None:
    assert filled.lines("group", "ls", "-q", "default") == ["GROUP SIZE", "mails 2"]
    assert filled.lines("group", "list", "--queue", "default") == ["GROUP SIZE", "mails 2"]
    assert filled.json("group", "ls", "-q", "default") == [{"group": "mails", "size": 2}]


def test_without_groups_that_is_said(filled: Fastq) -> None:
    assert filled.done("group", "ls", "-q", "low") == "There are no groups in low.\n"
    assert filled.json("group", "ls", "-q", "low") == []


def test_an_unknown_queue_is_said(filled: Fastq) -> None:
    line = filled.failure("group", "ls", "-q", "defaul")
    assert line == "fastq: queue not found (queue='defaul'); did you mean 'default'?"
    assert "Missing option '--queue'" in filled.failure("group", "ls", code=2)

"""The log's two forms: what stands on a line, what below it, and that nothing in it is what it seems not to be."""

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fastq.log.setup import log_apps_lines, log_text, set_up_logging
from tests.manual_clock import ManualClock

HOSTILE = "t\nfastq: pid=1 2026/01/01 00:00:00.000000 ERROR: forged\x1b]0;x\x07\x9b1m\u202e\u2028\ud800é"
SHOWN = "t\\nfastq: pid=1 2026/01/01 00:00:00.000000 ERROR: forged\\x1b]0;x\\x07\\x9b1m\\u202e\\u2028\\ud800é"


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    """Give the logger back as it was."""
    logger = logging.getLogger("fastq")
    before = (logger.handlers, logger.propagate, logger.level)
    yield logger
    logger.handlers, logger.propagate = before[:2]
    logger.setLevel(before[2])


def test_a_line_of_text_has_asynqs_form(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "text")
    logging.getLogger("fastq.pool").warning("so %d", 1)
    logging.getLogger("fastq").info("started")
    logging.getLogger("fastq").debug("not said")
    first, second = capsys.readouterr().err.splitlines()
    prefix = rf"fastq: pid={os.getpid()} \d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{{6}} "
    assert re.fullmatch(prefix + "WARN: pool: so 1", first)
    assert re.fullmatch(prefix + "INFO: started", second)


def test_a_line_of_json_has_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "json")
    logging.getLogger("fastq.pool").warning("so %s", HOSTILE, extra={"about": {"task_id": HOSTILE, "attempt": 3}})
    line = json.loads(capsys.readouterr().err)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.pop("time"))
    assert line == {
        "level": "warning",
        "logger": "fastq.pool",
        "pid": os.getpid(),
        "message": f"so {SHOWN}",
        "task_id": SHOWN,
        "attempt": 3,
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_producers_wrote_is_one_line_without_control_characters(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("info", form)
    logging.getLogger("fastq.pool").warning("task %s", HOSTILE)
    written = capsys.readouterr().err
    assert written.endswith("\n")
    assert written[:-1].isprintable()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_cannot_be_taken_for_lines_of_the_log(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", form)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("fastq.worker").exception("it failed")
    written = capsys.readouterr().err
    if form == "json":
        line: dict[str, Any] = json.loads(written)
        lines = [line["message"], *("    " + below for below in line["traceback"].split("\n"))]
    else:
        lines = written.removesuffix("\n").split("\n")
    assert lines[0].endswith("it failed")
    assert lines[1] == "    Traceback (most recent call last):"
    assert all(below.startswith("    ") and below.isprintable() for below in lines[1:])
    assert "    fastq: pid=1" in lines[-1]


def test_a_text_of_several_lines_is_a_message_and_what_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "text")
    log_text(logging.getLogger("fastq"), logging.ERROR, "no app:\nTraceback\n  File %s\n")
    lines = capsys.readouterr().err.split("\n")
    assert lines[0].endswith("ERROR: no app:")
    assert lines[1:] == ["    Traceback", "      File %s", ""]


def test_without_a_stderr_nothing_is_said_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up_logging("info", "text")
    monkeypatch.setattr(sys, "stderr", None)
    logging.getLogger("fastq").warning("unheard")


def test_the_apps_own_lines_are_json_too_and_tell_of_the_task(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    set_up_logging("info", "json", lambda: {"task_id": "id-1", "attempt": 1})
    log_apps_lines()
    logging.getLogger("shop").warning("sold %d", 3)
    logging.getLogger("fastq.pool").warning("so", extra={"about": {"task_id": "id-2"}})
    own, ours = map(json.loads, capsys.readouterr().err.splitlines())
    assert (own["logger"], own["message"], own["task_id"], own["attempt"]) == ("shop", "sold 3", "id-1", 1)
    assert (ours["logger"], ours["task_id"]) == ("fastq.pool", "id-2")


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_app_that_has_set_up_its_log_keeps_it(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    handlers = [logging.NullHandler()] if form == "json" else []
    monkeypatch.setattr(root, "handlers", list(handlers))
    set_up_logging("info", form)
    log_apps_lines()
    assert root.handlers == handlers


def test_a_flood_of_one_kind_of_warning_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    set_up_logging("info", "json", clock=clock)
    log = logging.getLogger("fastq.server.heartbeater")

    def told() -> list[dict[str, Any]]:
        return [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    for number in range(25):
        log.warning("lost the lease of task %s of queue %s", number, "q")
        log.info("so %d", number)
        log.warning("its author %s", "limits it", extra={"is_limited": True})
    log.error("another kind")
    lines = told()
    assert [line["message"] for line in lines if "lost" in line["message"]] == [
        f"lost the lease of task {number} of queue q" for number in range(10)
    ]
    assert len(lines) == 10 + 25 + 25 + 1
    clock.advance(10)
    log.info("the next line")
    counted, _ = told()
    text = "15 more lines in 10 s like: lost the lease of task … of queue …"
    assert (counted["message"], counted["count"], counted["level"]) == (text, 15, "warning")
    assert counted["logger"] == "fastq.server.heartbeater"
    for _ in range(11):
        log.error("the hooks failed")
    assert len(told()) == 10
    (handler,) = logging.getLogger("fastq").handlers
    handler.close()
    assert [line["message"] for line in told()] == ["1 more lines in 10 s like: the hooks failed"]

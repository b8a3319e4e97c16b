"""``fastq task``: what lists and describes tasks, and acts on those that are named."""

import json
import re
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import Client, Inspector, Task
from fastq.common.states import TaskState
from fastq.wire import keys
from fastq.wire.attempts import AttemptRecord
from fastq.wire.progress import encode_progress
from tests.broker.harness import message
from tests.cli.commands import BINARY, Fastq
from tests.waiting import wait_until

MANY = 6_000
HEADS = {
    "active": ["ID TYPE PAYLOAD HELD", "a1 slow running yes", "a2 slow no"],
    "pending": [
        "ID TYPE PAYLOAD",
        'p1 mail:send {"to":"ann"}',
        f"p2 mail:send 32 B, not text: {BINARY[:16].hex(' ')} …",
        "p3 письмо строка\\x1b[31m\\n",
    ],
    "aggregating": ["ID TYPE PAYLOAD GROUP", "g1 digest g mails", "g2 digest g mails"],
    "scheduled": ["ID TYPE PAYLOAD PROCESS IN", "s1 report later in 2h", "s2 report at last in 3d"],
    "archived": [
        "ID TYPE PAYLOAD LAST FAILED LAST ERROR",
        "d1 mail:send 1m 5s ago ValueError: no such\\nuser",
    ],
    "completed": ["ID TYPE PAYLOAD COMPLETED RESULT", 'c1 sum 5s ago {"sum": 3}'],
}


def listed(fastq: Fastq, state: str, *words: str) -> list[str]:
    group = ("--group", "mails") if state == "aggregating" else ()
    return fastq.lines("task", "ls", "--queue", "default", "--state", state, *group, *words)


def rounded(line: str) -> str:
    """Forgive the time that passed since the tasks were made."""
    line = re.sub(r"\dm( \d+s)? ago", "1m 5s ago", line)
    return line.replace("in 1h 59m", "in 2h").replace("in 2d 23h", "in 3d")


@pytest.mark.parametrize("state", HEADS)
def test_tasks_of_each_state_are_listed(filled: Fastq, state: str) -> None:
    lines = [rounded(line) for line in listed(filled, state)]
    if state == "completed":
        assert lines[0] == HEADS[state][0]
        assert lines[1].startswith("c1 sum ")
        assert lines[1].endswith(' ago {"sum": 3}')
    else:
        assert lines == HEADS[state]


def test_tasks_to_be_retried_are_listed(filled: Fastq) -> None:
    head, row = listed(filled, "retry")
    assert head == "ID TYPE PAYLOAD NEXT RETRY LAST ERROR LAST FAILED RETRIED MAX RETRY LOST"
    assert row.startswith("r1 mail:send again in ")
    assert " ValueError: no such\\nuser 1m " in row
    assert row.endswith(" ago 3 25 0")


@pytest.mark.parametrize("state", TaskState)
def test_tasks_of_each_state_are_listed_as_json(filled: Fastq, state: TaskState) -> None:
    group = ("--group", "mails") if state is TaskState.AGGREGATING else ()
    found = filled.json("task", "ls", "-q", "default", "-s", state.value, *group)
    assert found
    assert {task["state"] for task in found} == {state.value}


def test_bytes_come_as_json_without_loss(filled: Fastq) -> None:
    p1, p2, p3 = filled.json("task", "ls", "-q", "default", "-s", "pending")
    assert (json.loads(p1["payload"]), p1["payload_encoding"]) == ({"to": "ann"}, "utf-8")
    assert p2["payload_encoding"] == "base64"
    assert p3["payload"] == "строка\x1b[31m\n"
    assert (p3["headers"], p3["result"], p3["result_encoding"]) == ({"trace": "7"}, None, None)


def test_pages_are_listed(filled: Fastq) -> None:
    assert [line.split()[0] for line in listed(filled, "pending", "--size", "2")] == ["ID", "p1", "p2"]
    assert [line.split()[0] for line in listed(filled, "pending", "--size", "2", "--page", "2")] == ["ID", "p3"]
    assert filled.done("task", "list", "-q", "default", "-s", "pending") == filled.done(
        "task", "ls", "--queue", "default", "--state", "PENDING"
    )
    assert listed(filled, "pending", "--page", "2") == ["There are no pending tasks on page 2 in default."]


def test_where_there_are_none_that_is_said(filled: Fastq) -> None:
    assert filled.done("task", "ls", "-q", "low", "-s", "retry") == "There are no retry tasks in low.\n"
    assert filled.json("task", "ls", "-q", "low", "-s", "retry") == []


@pytest.mark.parametrize("state", ["pending", "scheduled"])
def test_with_a_filter_no_more_is_read_than_the_page_needs(fastq: Fastq, db: Any, state: str) -> None:
    process_in = 3600 if state == "scheduled" else 0
    with Client(fastq.url) as client:
        client.enqueue_many(Task(f"t{n % 4}", process_in=process_in) for n in range(MANY))
    db.config_resetstat()
    found = fastq.json("task", "ls", "-q", "default", "-s", state, "--type", "t1", "--size", "5", "--page", "2")
    assert len(found) == 5
    assert db.info("stats")["total_net_output_bytes"] < 200 * 500
    assert fastq.json("task", "ls", "-q", "default", "-s", state, "--type", "nix") == []


def test_a_filter_looks_at_no_more_than_a_page_at_once(fastq: Fastq) -> None:
    with Client(fastq.url) as client:
        client.enqueue_many(Task("t", b"x" * 1000) for _ in range(MANY))
    fastq.json("task", "ls", "-q", "default", "-s", "pending", "--type", "nix")  # what is imported and kept once
    tracemalloc.start()
    try:
        assert fastq.json("task", "ls", "-q", "default", "-s", "pending", "--type", "nix") == []
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < MANY * 1000 / 4  # a fourth of their payloads alone


@pytest.mark.parametrize(
    ("state", "words", "ids"),
    [
        ("pending", ["--type", "mail:*"], ["p1", "p2"]),
        ("pending", ["--type", "mail:*", "--size", "1", "--page", "2"], ["p2"]),
        ("pending", ["--type", "mail"], []),
        ("retry", ["--error", "^ValueError.*such"], ["r1"]),
        ("retry", ["--error", "KeyError"], []),
        ("retry", ["--since", "1h"], ["r1"]),
        ("retry", ["--since", "10"], []),
        ("archived", ["--since", "2000-01-01T00:00:00Z"], ["d1"]),
        ("completed", ["--since", "2100-01-01T00:00:00+00:00"], []),
        ("completed", ["--since", "1h", "--type", "s?m"], ["c1"]),
    ],
)
def test_filters_choose_tasks(filled: Fastq, state: str, words: list[str], ids: list[str]) -> None:
    found = filled.json("task", "ls", "-q", "default", "-s", state, *words)
    assert [task["id"] for task in found] == ids


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("ls -q default", "Missing option '--state'"),
        ("ls -s retry", "Missing option '--queue'"),
        ("ls -q default -s sleeping", "'sleeping' is not one of 'active', 'pending'"),
        ("ls -q default -s aggregating", "name one with --group; fastq group ls lists them"),
        ("ls -q default -s retry -g g", "--group goes with --state aggregating only, not with retry"),
        ("ls -q default -s retry --page 0", "0 is not in the range"),
        ("ls -q default -s pending --since 1h", "--since goes with retry, archived, completed"),
        ("ls -q default -s retry --since soon", "'soon' is neither a duration such as 1h30m nor a time"),
        ("ls -q default -s retry --since 2026-01-01T00:00:00", "nor a time such as 2026-11-21T07:00:00Z"),
        ("ls -q default -s retry --since 1e99", "is before the calendar begins"),
        ("ls -q default -s retry --error [", "'[' is not a regular expression"),
        ("inspect -q default", "Missing argument 'TASK_ID...'"),
        ("cancel", "Missing argument 'TASK_ID...'"),
        ("cancel x --outcome explode", "'explode' is not one of 'retry', 'archive', 'delete'"),
        ("delete -q default -i x --yess", "No such option"),
    ],
)
def test_misuse_is_said(filled: Fastq, words: str, text: str) -> None:
    assert text in filled.failure("task", *words.split(), code=2)


def test_the_progress_of_a_task_is_described(filled: Fastq, db: Any) -> None:
    db.hset(keys.task("default", "a2"), "progress", encode_progress(42, 100, "pa\nges", 0))
    words = ("task", "inspect", "-q", "default", "a2")
    (told,) = (line for line in filled.lines(*words) if line.startswith("Progress "))
    assert told.startswith("Progress 42/100 pa\\nges (")
    (record,) = filled.json(*words)
    assert record["progress"] == {"current": 42, "total": 100, "note": "pa\nges", "at": "1970-01-01T00:00:00Z"}


def test_tasks_are_described(filled: Fastq) -> None:
    lines = filled.lines("task", "inspect", "-q", "default", "r1", "--id", "p3")
    facts = dict(line.split(" ", 1) for line in lines[:4])
    assert facts == {"Queue": "default", "ID": "r1", "Type": "mail:send", "State": "retry"}
    assert "Retried 3/25" in lines
    assert "Last error ValueError: no such\\nuser" in lines
    assert any(line.startswith("Next process time 2096-10-02 07:06:40 UTC (in ") for line in lines)
    assert "Payload again" in lines
    assert "Headers trace=7" in lines
    assert "Next process time now" in lines
    orphan = filled.lines("task", "inspect", "-q", "default", "-i", "a2")
    assert "State active (no server holds it)" in orphan
    completed = filled.lines("task", "inspect", "-q", "default", "-i", "c1")
    assert 'Result {"sum": 3}' in completed
    assert "Retention 10m" in completed


def test_what_is_to_follow_a_task_by_its_key_is_described(filled: Fastq, db: Any) -> None:
    words = ("task", "inspect", "-q", "default", "a2")
    assert not any(line.startswith("Runs again") for line in filled.lines(*words))
    db.hset(keys.again("default"), "a2", b"4000000000::" + message("a2", payload=b"four"))
    lines = filled.lines(*words)
    assert "Runs again once this run has ended, with a payload of 4 bytes" in lines
    assert any(line.startswith("Not before 2096-10-02 07:06:40 UTC (in ") for line in lines)
    (record,) = filled.json(*words)
    locks = record["locks"]
    assert (locks["follow_up_bytes"], locks["follow_up_at"], locks["follow_up_latest"], locks["is_unique"]) == (
        *(4, "2096-10-02T07:06:40Z", None, False),
    )


def test_tasks_are_described_as_json(filled: Fastq) -> None:
    r1, c1 = filled.json("task", "inspect", "-q", "default", "-i", "r1", "-i", "c1")
    assert (r1["state"], r1["last_error"], r1["retried"]) == ("retry", "ValueError: no such\nuser", 3)
    assert r1["next_process_at"] == "2096-10-02T07:06:40Z"
    assert (c1["result"], c1["retention_s"]) == ('{"sum": 3}', 600)


def test_failed_attempts_are_described_with_the_last_traceback(filled: Fastq, db: Any) -> None:
    records = [
        AttemptRecord(1, 0, 1_000_000, "", "LeaseExpiredError: lost"),
        AttemptRecord(2, 1_000_000, 1_000_250, "web-1:7", "ValueError: no\nuser", "ab" * 8),
    ]
    db.hset(keys.task("default", "r1"), "attempts", b"".join(record.encode() for record in records))
    db.set(keys.error("default", "ab" * 8), "Traceback:\n  File \x1b[31m\nValueError")
    words = ("task", "inspect", "-q", "default", "-i", "r1")
    told = [line for line in filled.lines(*words) if line.startswith("Attempt")]
    assert told[0].startswith("Attempt 1 failed ")
    assert told[0].endswith(" ago: LeaseExpiredError: lost")
    assert told[1].endswith(" ago, ran 250ms on web-1:7: ValueError: no\\nuser")
    assert filled.lines(*words)[-5:] == [
        "Traceback of attempt 2",
        "Traceback:",
        "File \\x1b[31m",
        "ValueError: no",
        "user",
    ]
    (task,) = filled.json(*words)
    lost, failed = task["failed_attempts"]
    assert (lost["started_at"], lost["server"], lost["fingerprint"], lost["traceback"]) == (None, None, None, None)
    assert failed == {
        "attempt": 2,
        "started_at": "1970-01-01T00:16:40Z",
        "ended_at": "1970-01-01T00:16:40.250000Z",
        "server": "web-1:7",
        "error": "ValueError: no\nuser",
        "error_class": "ValueError",
        "fingerprint": "ab" * 8,
        "traceback": "Traceback:\n  File \x1b[31m\nValueError: no\nuser",
    }


def test_a_task_that_was_lost_says_how_often(filled: Fastq, db: Any) -> None:
    words = ("task", "inspect", "-q", "default", "-i", "r1")
    assert not [line for line in filled.lines(*words) if line.startswith("Lost")]
    db.hset(keys.task("default", "r1"), "lost", 2)
    (line,) = [line for line in filled.lines(*words) if line.startswith("Lost")]
    assert line.split(maxsplit=1)[1] == "2 times, with its server"
    listed = filled.json("task", "ls", "-q", "default", "-s", "retry", "--error", ".")
    assert {task["id"]: task["lost"] for task in listed}["r1"] == 2


ACTIONS = ["inspect", "run", "archive", "delete"]


@pytest.mark.parametrize("action", ACTIONS)
def test_an_unknown_task_is_said_and_keeps_no_other_from_it(filled: Fastq, action: str) -> None:
    more = ("--yes",) if action == "delete" else ()
    result = filled.run("task", action, "-q", "default", "nix", "-i", "s1", *more)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("fastq: task not found (queue='default', task_id='nix'); it may be done and deleted: ")
    assert "s1" in result.stdout


@pytest.mark.parametrize("action", ACTIONS)
def test_an_unknown_queue_is_said(filled: Fastq, action: str) -> None:
    line = filled.failure("task", action, "-q", "defaults", "-i", "s1")
    assert line == "fastq: queue not found (queue='defaults'); did you mean 'default'?"


@pytest.mark.parametrize(
    ("action", "task_id", "state"),
    [
        ("run", "p1", "pending"),
        ("run", "a1", "active"),
        ("archive", "d1", "archived"),
        ("archive", "a1", "active"),
        ("delete", "a1", "active"),
    ],
)
def test_a_wrong_state_is_said(filled: Fastq, action: str, task_id: str, state: str) -> None:
    more = ("--yes",) if action == "delete" else ()
    line = filled.failure("task", action, "-q", "default", "-i", task_id, *more)
    assert f"cannot {action} a task in state {state!r}" in line


def state_of(url: str, task_id: str) -> str:
    with Inspector(url) as inspector:
        return inspector.get_task_info("default", task_id).state.value


def test_tasks_are_run_and_archived(filled: Fastq) -> None:
    assert filled.done("task", "run", "-q", "default", "-i", "s1", "-i", "d1") == "s1 is pending.\nd1 is pending.\n"
    assert filled.done("task", "archive", "-q", "default", "-i", "p1") == "p1 is archived.\n"
    assert [state_of(filled.url, name) for name in ("s1", "d1", "p1")] == ["pending", "pending", "archived"]


@pytest.mark.parametrize("word", ["delete", "remove", "rm"])
def test_tasks_are_deleted_once_the_answer_is_yes(filled: Fastq, db: Redis, word: str) -> None:
    words = ("task", word, "-q", "default", "-i", "p1", "-i", "r1")
    for answer, code in (("n\n", 1), ("\n", 1), ("", 2)):
        result = filled.run(*words, input=answer)
        assert result.exit_code == code
        assert "p1 (pending, mail:send), r1 (retry, mail:send). Go on? [y/N]" in result.stderr
        assert db.exists(keys.task("default", "p1"), keys.task("default", "r1")) == 2
    assert filled.run(*words, input="y\n").stdout == "p1 is deleted.\nr1 is deleted.\n"
    assert db.exists(keys.task("default", "p1"), keys.task("default", "r1")) == 0


def test_where_nobody_answers_that_is_misuse(filled: Fastq) -> None:
    result = filled.run("task", "rm", "-q", "default", "-i", "p1", input="")
    assert "--yes skips the question" in result.stderr.splitlines()[-1]


def test_cancelling_is_published(filled: Fastq, db: Any) -> None:
    with db.pubsub() as listener:
        listener.subscribe("asynq:cancel", "asynq:cancel:as")
        got: list[Any] = []

        def heard(count: int) -> bool:
            got.extend(filter(None, [listener.get_message(timeout=0.1)]))
            return len(got) >= count

        wait_until(lambda: heard(2))
        assert "Asked the servers to stop a1." in filled.done("task", "cancel", "a1", "a2")
        wait_until(lambda: heard(4))
        assert [message["data"] for message in got[2:]] == [b"a1", b"a2"]
        filled.done("task", "cancel", "a1", "--queue", "default", "--outcome", "delete", "--yes")
        wait_until(lambda: heard(5))
        assert got[4]["channel"] == b"asynq:cancel:as"


# Enqueueing ---------------------------------------------------------------------------------------------------------


def test_a_task_is_enqueued_with_every_option(fastq: Fastq) -> None:
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    words = [
        *("--type_name", "mail", "--payload", '{"a": 1}', "--queue", "q", "--id", "x", "--retry", "3"),
        *("--timeout", "1m30s", "--deadline", deadline.isoformat(), "--unique", "1h", "--process_in", "30m"),
        *("--retention", "3600", "--header", "a=b=c"),
    ]
    found = fastq.json("task", "enqueue", *words)
    assert found["headers"] == {"a": "b=c"}
    with Inspector(fastq.url) as inspector:
        info = inspector.get_task_info("q", "x")
    assert (info.type, info.payload, info.max_retry, info.state) == ("mail", b'{"a": 1}', 3, TaskState.SCHEDULED)
    assert (info.timeout, info.deadline, info.retention) == (timedelta(seconds=90), deadline, timedelta(hours=1))
    line = fastq.failure("task", "enqueue", *words[:6], *words[8:])
    assert line.startswith("fastq: task already exists: another task holds the unique lock (queue='q', ")


def test_a_unique_key_stands_for_the_payload(fastq: Fastq) -> None:
    fastq.done("task", "enqueue", "-t", "mail", "-l", "1", "--unique", "1h", "--unique-key", "ann")
    line = fastq.failure("task", "enqueue", "-t", "mail", "-l", "2", "--unique", "1h", "--unique-key", "ann")
    assert line.startswith("fastq: task already exists: another task holds the unique lock")


def test_of_the_times_to_start_the_last_one_given_counts(fastq: Fastq) -> None:
    at = ("--process-at", "2096-10-02T07:06:40Z")
    now = ("--process-in", "0")
    assert fastq.json("task", "enqueue", "-t", "t", "-l", "x", *at, *now)["state"] == "pending"
    assert fastq.json("task", "enqueue", "-t", "t", "-l", "x", *now, *at)["state"] == "scheduled"


def test_what_became_of_a_task_by_key_is_said(fastq: Fastq) -> None:
    words = ("task", "enqueue", "-t", "t", "-l", "x", "--key", "a")
    assert fastq.json(*words, "--process-in", "1h")["key_outcome"] == "put"
    assert fastq.done(*words) == "Kept a of default, and nothing of this one: scheduled.\n"
    assert fastq.done(*words, "--if-there", "replace") == "Replaced a of default: scheduled.\n"
    postponed = fastq.json(*words, "--if-there", "postpone", "--process-in", "2h", "--latest", "90m")
    assert (postponed["key_outcome"], postponed["state"]) == ("postponed", "scheduled")
    assert "if_there must be one of keep" in fastq.failure(*words, "--if-there", "drop", code=2)
    assert "until='end' needs unique=" in fastq.failure(*words[:6], "--until", "end", code=2)


def test_what_became_of_an_enqueued_task_is_said(fastq: Fastq) -> None:
    words = ("task", "enqueue", "-t", "t", "-l", "x", "--id")
    assert fastq.done(*words, "1") == "Enqueued 1 into default: pending.\n"
    assert fastq.done(*words, "2", "--group", "g") == "Enqueued 2 into default: aggregating in group g.\n"
    at = "2096-10-02T07:06:40Z"
    assert fastq.done(*words, "3", "--process-at", at).startswith("Enqueued 3 into default: scheduled, in ")
    line = fastq.failure(*words, "1")
    assert line == "fastq: task ID conflicts with another task (queue='default', task_id='1')"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-l", "x"], "Missing option '--type-name'"),
        (["-t", "x"], "Missing option '--payload'"),
        (["-t", " ", "-l", "x"], "type must contain one or more characters that are not blank"),
        (["-t", "t", "-l", "x", "--timeout", "soon"], "timeout: 'soon' is neither seconds nor a duration"),
        (["-t", "t", "-l", "x", "--timeout", "0.5"], "timeout must be 0 (none) or at least 1 second"),
        (["-t", "t", "-l", "x", "--deadline", "2026-01-01"], "deadline: '2026-01-01' is not a time with its zone"),
        (["-t", "t", "-l", "x", "--header", "a"], "'a' is not of the form NAME=VALUE"),
    ],
)
def test_a_task_that_cannot_be_is_misuse(fastq: Fastq, words: list[str], text: str) -> None:
    assert text in fastq.failure("task", "enqueue", *words, code=2)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("--outcome delete", "a1, a2 in any queue will be stopped and deleted for good. Go on? [y/N]"),
        ("--outcome archive -q default", "a1, a2 in default will be stopped and archived. Go on? [y/N]"),
    ],
)
def test_no_running_task_is_deleted_or_archived_without_asking(filled: Fastq, words: str, asked: str) -> None:
    command = ("task", "cancel", "a1", "a2", *words.split())
    refused = filled.run(*command, input="n\n")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert asked in refused.stderr
    assert filled.run(*command, input="").exit_code == 2
    assert filled.done(*command, "-y").count("Asked the servers to stop") == 2


def test_a_page_beyond_what_there_can_be_is_misuse(filled: Fastq) -> None:
    words = ("task", "ls", "-q", "default", "-s", "pending", "--page", "10000000000000")
    assert "'--page': 10000000000000 is not in the range" in filled.failure(*words, code=2)
    assert "There are no pending tasks" in filled.done(*words[:-1], "1000000000000")

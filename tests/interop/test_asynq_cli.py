"""asynq's own command prints of fastq's data what ``fastq`` prints, command by command and field by field."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fastq import TaskState
from tests.cli.commands import Fastq
from tests.interop.asynq_cli import BINARY, WHY_NOT, Asynq, details, tables
from tests.interop.scene import BUSY, TICKING, Scene
from tests.interop.showing import shown_bytes
from tests.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.skipif(not BINARY, reason=WHY_NOT)]

NEAR_S = 120
PASSING = {"MemoryUsage", "Latency", "Timestamp", "timestamp"}
LISTED = [state for state in TaskState if state is not TaskState.AGGREGATING]
STATES = ("active", "pending", "aggregating", "scheduled", "retry", "archived", "completed")


@pytest.fixture
def asynq(scene: Scene, tmp_path: Path) -> Asynq:
    return Asynq(BINARY, scene.redis.port, tmp_path)


@pytest.fixture
def fastq(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastq:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Fastq(scene.redis.url)


def shown(record: dict[str, Any], name: str) -> str:
    """Return how asynq prints the bytes of our JSON."""
    if record[f"{name}_encoding"] == "base64":
        return "non-printable bytes"
    return shown_bytes((record[name] or "").encode())


def date(text: str | None) -> str:
    """Return how asynq prints a past time: to the second, nothing for none."""
    return "" if text is None else datetime.fromisoformat(text).astimezone(UTC).strftime("%a %b %e %H:%M:%S UTC %Y")


def is_near(told: str, moment: str) -> bool:
    """Return whether "in 1h2m3s" or "5s ago", read now, means about a moment."""
    hours, minutes, seconds = (float(part or 0) for part in re.findall(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)", told)[0])
    away_s = (3600 * hours + 60 * minutes + seconds) * (-1 if told.endswith("ago") else 1)
    return abs((datetime.fromisoformat(moment) - datetime.now(UTC)).total_seconds() - away_s) < NEAR_S


def rate(processed: int, failed: int) -> str:
    return f"{failed / processed:.2%}" if processed else "N/A"


def still(fastq: Fastq) -> list[str]:
    """Return the queues in which nothing moves."""
    return [queue for queue in fastq.lines("queue", "ls") if queue != TICKING]


def test_stats_are_the_same_as_json(asynq: Asynq, fastq: Fastq) -> None:
    theirs, ours = json.loads(asynq("stats", "--json")), fastq.json("stats")
    assert theirs.keys() == ours.keys()
    queues = [{queue["Queue"]: queue for queue in stats["queues"]} for stats in (theirs, ours)]
    moving = [each.pop(TICKING)["Pending"] for each in queues]
    for stats, own in zip((theirs, ours), moving, strict=True):
        stats["aggregate"]["pending"] -= own
    assert lasting(theirs["aggregate"]) == lasting(ours["aggregate"])
    assert {name: lasting(queue) for name, queue in queues[0].items()} == {
        name: lasting(queue) for name, queue in queues[1].items()
    }
    for name, queue in queues[0].items():
        assert queue.keys() == queues[1][name].keys()
        assert abs(queue["Latency"] - queues[1][name]["Latency"]) < NEAR_S * 1e9
    assert theirs["redis"].keys() == ours["redis"].keys()
    for name in ("redis_version", "run_id", "process_id", "tcp_port", "maxmemory_policy", "role", "os"):
        assert theirs["redis"][name] == ours["redis"][name]


def lasting(stats: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stats.items() if name not in PASSING}


def test_stats_are_the_same_for_people(asynq: Asynq, fastq: Fastq) -> None:
    (states,), (sizes,), (today,), (redis,) = tables(asynq("stats"))
    stats = fastq.json("stats")
    aggregate = stats["aggregate"]
    assert {name: states[name] for name in STATES if name != "pending"} == {
        name: str(aggregate[name]) for name in STATES if name != "pending"
    }
    ours = {f"{q['Queue']} (paused)" if q["Paused"] else q["Queue"]: str(q["Size"]) for q in stats["queues"]}
    assert sizes.keys() == ours.keys()
    assert {name: size for name, size in sizes.items() if name != TICKING} == {
        name: size for name, size in ours.items() if name != TICKING
    }
    assert list(today.values()) == day(aggregate)
    assert redis["version"] == stats["redis"]["redis_version"]


def day(counts: dict[str, Any]) -> list[str]:
    return [str(counts["processed"]), str(counts["failed"]), rate(counts["processed"], counts["failed"])]


def test_queues_are_the_same(asynq: Asynq, fastq: Fastq) -> None:
    assert sorted(asynq("queue", "ls").splitlines()) == fastq.lines("queue", "ls")
    for queue in still(fastq):
        text = asynq("queue", "inspect", queue)
        (ours,) = fastq.json("queue", "inspect", queue)
        facts = {"Name": queue, **{name.title(): str(ours[name]) for name in ("size", "groups")}}
        assert details(text) == {**facts, "Paused": str(ours["paused"]).lower()}
        (counts,), (today,) = tables(text)
        assert counts == {name: str(ours[name]) for name in STATES}
        assert list(today.values()) == day(ours)
        (theirs,) = tables(asynq("queue", "history", queue, "--days", "3"))
        (told,) = fastq.json("queue", "history", queue, "--days", "3")
        assert [list(row.values()) for row in theirs] == [[each["date"], *day(each)] for each in told["days"]]


OF_STATE = {
    "scheduled": {"Process In": "next_process_at"},
    "retry": {"Next Retry": "next_process_at", "Last Error": "last_error", "Last Failed": "last_failed_at"},
    "archived": {"Last Failed": "last_failed_at", "Last Error": "last_error"},
    "completed": {"CompletedAt": "completed_at", "Result": "result"},
    "aggregating": {"Group": "group"},
}


def check_row(told: dict[str, str], task: dict[str, Any]) -> None:
    """Compare a row with our JSON of the task."""
    assert (told.pop("ID"), told.pop("Type"), told.pop("Payload")) == (
        task["id"],
        task["type"].strip(),
        " ".join(shown(task, "payload").split()),
    )
    for heading, name in OF_STATE.get(task["state"], {}).items():
        text = told.pop(heading)
        match name:
            case "next_process_at":
                assert is_near(text, task[name])
            case "result":
                assert text == shown(task, "result")
            case "last_error" | "group":
                assert text == (task[name] or "")
            case _:
                assert text == date(task[name])
    if task["state"] == "retry":
        assert (told.pop("Retried"), told.pop("Max Retry")) == (str(task["retried"]), str(task["max_retry"]))
    assert not told


def test_tasks_of_every_state_are_listed_the_same(asynq: Asynq, fastq: Fastq) -> None:
    seen = set()
    for queue in still(fastq):
        for state in LISTED:
            ours = fastq.json("task", "ls", "-q", queue, "-s", state, "--size", "1000")
            compare_lists(asynq("task", "ls", "-q", queue, "-s", state, "--size", "1000"), ours)
            seen |= {state} if ours else set()
    assert seen == set(LISTED)
    for page in ("1", "2", "9"):
        words = ("task", "ls", "-q", "default", "-s", "scheduled", "--size", "5", "--page", page)
        compare_lists(asynq(*words), fastq.json(*words))


def compare_lists(text: str, ours: list[dict[str, Any]]) -> None:
    if not ours:
        assert text.startswith("No ")
        return
    (theirs,) = tables(text)
    assert len(theirs) == len(ours)
    for told, task in zip(theirs, ours, strict=True):
        check_row(told, task)


def test_groups_are_the_same(asynq: Asynq, fastq: Fastq) -> None:
    count = 0
    for queue in still(fastq):
        ours = sorted(group["group"] for group in fastq.json("group", "ls", "-q", queue))
        text = asynq("group", "ls", "-q", queue)
        assert sorted(text.splitlines()) == ours if ours else text.startswith("No groups found")
        for group in ours:
            words = ("task", "ls", "-q", queue, "-s", "aggregating", "-g", group)
            compare_lists(asynq(*words), fastq.json(*words))
            count += 1
    assert count > 3


@pytest.mark.parametrize("task_id", ["active", "retried", "dead", "skipped", "completed", "later"])
def test_a_task_is_the_same(asynq: Asynq, fastq: Fastq, task_id: str) -> None:
    told = details(asynq("task", "inspect", "-q", BUSY, "-i", task_id))
    (task,) = fastq.json("task", "inspect", "-q", BUSY, "-i", task_id)
    when = told.pop("Next process time")
    if task["next_process_at"] is None:
        assert when == "n/a"
    else:
        assert when.startswith(date(task["next_process_at"]))
    expected = {
        "Queue": BUSY,
        "ID": task_id,
        "Type": task["type"],
        "State": task["state"],
        "Retried": f"{task['retried']}/{task['max_retry']}",
    }
    if task["last_error"]:
        expected |= {"Failed at": date(task["last_failed_at"]), "Error message": task["last_error"]}
    assert told == expected


def test_servers_are_the_same(asynq: Asynq, fastq: Fastq) -> None:
    ((told,),) = tables(asynq("server", "ls"))
    (server,) = fastq.json("server", "ls")
    assert is_near(told.pop("Started"), server["started"])
    assert sorted(told.pop("Queues").split()) == sorted(f"{name}:{weight}" for name, weight in server["queues"].items())
    assert told == {
        "Host": server["host"],
        "PID": str(server["pid"]),
        "State": server["status"],
        "Active Workers": f"{len(server['active_workers'])}/{server['concurrency']}",
    }


def test_cron_entries_and_their_history_are_the_same(asynq: Asynq, fastq: Fastq, scene: Scene) -> None:
    wait_until(
        lambda: all(entry["prev"] or entry["task_type"] != "tick" for entry in fastq.json("cron", "ls")), PATIENCE_S
    )
    theirs = {told["EntryID"]: told for told in tables(asynq("cron", "ls"))[0]}
    ours = {entry["id"]: entry for entry in fastq.json("cron", "ls")}
    assert theirs.keys() == ours.keys() == set(scene.entries)
    for entry_id, entry in ours.items():
        told = theirs[entry_id]
        assert (told["Spec"], told["Type"]) == (entry["spec"], entry["task_type"])
        assert told["Payload"] == shown(entry, "task_payload")
        assert told["Options"] == f"[{' '.join(entry['options'])}]"
        assert told["Next"] == "Now" or is_near(told["Next"], entry["next"])
        assert is_near(told["Prev"], entry["prev"]) if entry["prev"] else told["Prev"] == "N/A"
        check_history(asynq, fastq, entry_id)


def check_history(asynq: Asynq, fastq: Fastq, entry_id: str) -> None:
    (ours,) = fastq.json("cron", "history", entry_id, "--size", "1000")
    text = asynq("cron", "history", entry_id, "--size", "1000")
    if not ours["events"]:
        assert "No scheduler enqueue events" in text
        return
    (told,) = tables(text)  # perhaps with later ones at the front
    theirs = [(row["TaskID"], row["EnqueuedAt"].removesuffix(" +0000 UTC")) for row in told][-len(ours["events"]) :]
    assert [(task_id, datetime.fromisoformat(at)) for task_id, at in theirs] == [
        (event["task_id"], datetime.fromisoformat(event["enqueued_at"]).replace(tzinfo=None))
        for event in ours["events"]
    ]


def test_what_there_is_none_of_is_refused(asynq: Asynq, fastq: Fastq) -> None:
    assert "queue not found" in fastq.failure("queue", "inspect", "nope")
    assert 'queue "nope" does not exist' in asynq("queue", "inspect", "nope")

"""The dashboard on what Go's asynq left in Redis (golden/keyspace.json)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Fastq
from tests.cli.dash.driving import driven, on_a_loop
from tests.cli.dash.scene import FAR_S

GOLDEN = Path(__file__).parents[2] / "golden" / "keyspace.json"
BEATS = {"asynq:servers", "asynq:workers", "asynq:schedulers"}


def raw(value: Any) -> bytes:
    """Return the bytes of a value, of which those that are no text stand there as hex."""
    return value.encode() if isinstance(value, str) else bytes.fromhex(value["hex"])


def restore(db: Any, case: str, step: int) -> None:
    """Put a step of a case into Redis, with heartbeats that last."""
    cases = {found["name"]: found["steps"] for found in json.loads(GOLDEN.read_text())["cases"]}
    for entry in cases[case][step]["keys"]:
        key = entry["key"]
        match entry["type"]:
            case "string":
                db.set(key, raw(entry["value"]))
            case "set":
                db.sadd(key, *map(raw, entry["members"]))
            case "list":
                db.rpush(key, *map(raw, entry["elements_lrange_0_-1"]))
            case "zset":
                members = {raw(each["member"]): float(each["score"]) for each in entry["members_by_rank"]}
                db.zadd(key, dict.fromkeys(members, FAR_S) if key in BEATS else members)
            case _:
                db.hset(key, mapping={name: raw(value) for name, value in entry["fields"].items()})


@pytest.mark.parametrize(
    ("case", "step", "state"),
    [
        ("enqueue_immediate", 0, "pending"),
        ("enqueue_process_in", 0, "scheduled"),
        ("retry_first_failure", 0, "retry"),
        ("archived_skip_retry", 0, "archived"),
        ("completed_with_result", 0, "completed"),
    ],
)
def test_tasks_of_go_are_listed_and_opened(fastq: Fastq, db: Any, case: str, step: int, state: str) -> None:
    async def look() -> None:
        restore(db, case, step)
        async with driven(fastq.url, queue="default") as dash:
            await dash.sees(f"default  {state} 1-1 of 1", "▸ id-1")
            await dash.press("enter")
            await dash.sees("task id-1", state, "Payload  ")

    on_a_loop(look)()


@on_a_loop
async def test_servers_and_schedulers_of_go_are_shown(fastq: Fastq, db: Any) -> None:
    restore(db, "running_server", 1)
    restore(db, "scheduler", 3)
    async with driven(fastq.url) as dash:
        await dash.press("f2")
        await dash.sees("1 server  1 of ", "2245", "▸ id-1")
        await dash.press("f3")
        await dash.sees("▸ ", "@every", 'Queue("low")')

"""What Go asynq's scheduler left in Redis, byte for byte: golden/keyspace.json's case ``scheduler``, at its own times.

Its first step is left out: asynq writes nothing before the first heartbeat is over, fastq publishes at once.
"""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fastq import Task
from fastq.wire import keys
from fastq.wire.records import decode_scheduler_enqueue_event
from tests.manual_clock import ManualClock
from tests.scheduler.harness import Bench

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "keyspace.json").read_text())
STEPS = next(case["steps"] for case in GOLDEN["cases"] if case["name"] == "scheduler")
SCHEDULER_ID = "vm:2245:3ed82ace-8d86-46f2-a70c-18a4afd9dfba"
ENTRY_ID = "d11471b9-6bf9-4a2b-89ce-36b7dfa3dd32"
BEGIN_NS = 1_795_221_934_200_000_000
TICK_NS = 1_795_221_937_000_866_930


@pytest.fixture
def bench(url: str) -> Iterator[Bench]:
    bench = Bench(url, ManualClock(BEGIN_NS / 1e9), SCHEDULER_ID, heartbeat_s=1.0)
    task = Task("report", b"\x00\x01\x02", max_retry=9)
    bench.add("@every 3s", task, queue="low", task_id="sched-1", timeout=20, unique=timedelta(hours=1)).id = ENTRY_ID
    (entry,) = bench.engine._followed()
    bench.engine._entries = {ENTRY_ID: entry}
    yield bench
    bench.close()


def turn_at(bench: Bench, unix_ns: int) -> None:
    bench.turn(after=(unix_ns - bench.clock.unix_ns()) / 1e9)
    assert abs(bench.clock.unix_ns() - unix_ns) < 1000


def golden(step: int) -> dict[str, Any]:
    """Return what Go left, by key, in the form of ``found``."""
    return {entry["key"]: _golden_value(entry) for entry in STEPS[step]["keys"]}


def _golden_value(entry: dict[str, Any]) -> Any:
    match entry["type"]:
        case "set":
            return set(entry["members"])
        case "list":
            return [
                element if isinstance(element, str) else element["hex"] for element in entry["elements_lrange_0_-1"]
            ]
        case "zset":
            return {_golden_member(member["member"]): member["score"] for member in entry["members_by_rank"]}
        case "hash":
            fields = {**entry["fields"], "msg": entry["fields"]["msg"]["hex"]}
            return {**fields, "pending_since": int(fields["pending_since"]) // 1000}
        case _:
            return entry["value"]


def _golden_member(member: Any) -> str:
    return member if isinstance(member, str) else str(member["decoded_scheduler_enqueue_event"]["task_id"])


def found_at(bench: Bench, db: Redis, unix_ns: int) -> dict[str, Any]:
    """Turn, and read it all in the two seconds that what is published lives; publish it again if that took longer."""
    begun_s = time.monotonic()
    turn_at(bench, unix_ns)
    read = found(db)
    while time.monotonic() - begun_s > 1.5:
        begun_s = time.monotonic()
        bench.engine._beat()
        read = found(db)
    return read


def found(db: Redis) -> dict[str, Any]:
    """Return what is there by key, without the counters of ticks, which asynq does not keep."""
    found: Any = db.keys("*")
    names = {key.decode() for key in found} - {keys.scheduler_ticks()}
    return {name: _found_value(db, name) for name in names}


def _found_value(db: Any, key: str) -> Any:
    match db.type(key):
        case b"set":
            return {member.decode() for member in db.smembers(key)}
        case b"list":
            decode = bytes.hex if key.startswith("asynq:schedulers:") else bytes.decode
            return [decode(element) for element in db.lrange(key, 0, -1)]
        case b"zset":
            is_history = key.startswith("asynq:scheduler_history:")
            return {
                decode_scheduler_enqueue_event(member).task_id if is_history else member.decode(): score
                for member, score in db.zrange(key, 0, -1, withscores=True)
            }
        case b"hash":
            fields = {name.decode(): value for name, value in db.hgetall(key).items()}
            return {
                **{name: value.decode() for name, value in fields.items() if name != "msg"},
                "msg": fields["msg"].hex(),
                "pending_since": int(fields["pending_since"]) // 1000,
            }
        case _:
            return db.get(key).decode()


def test_the_keyspace_is_that_of_go_step_by_step(bench: Bench, db: Redis) -> None:
    assert found_at(bench, db, 1_795_221_935_200_000_000) == golden(1)
    turn_at(bench, TICK_NS)
    assert found_at(bench, db, 1_795_221_938_200_000_000) == golden(2)
    turn_at(bench, 1_795_221_940_000_100_000)
    assert found_at(bench, db, 1_795_221_941_200_000_000) == golden(3)
    assert [type(error).__name__ for error in bench.heard.errors] == ["TaskIDConflictError"]
    bench.engine.clear()
    assert found(db) == golden(4)


def test_what_is_published_lives_as_long_as_in_go(bench: Bench, db: Redis) -> None:
    bench.turn()
    left: Any = db.pttl(f"asynq:schedulers:{{{SCHEDULER_ID}}}")
    assert left <= 2000
    assert left != -1  # for ever
    lives = {entry["key"]: entry["ttl"] is None for entry in STEPS[2]["keys"]}
    turn_at(bench, TICK_NS)
    for key, is_for_ever in lives.items():
        assert (db.ttl(key) == -1) is is_for_ever, key

"""Whole keyspaces: what Go left in Redis put back there, and all that is in a Redis to compare."""

import json
from pathlib import Path
from typing import Any

from redis import Redis

from fastq.wire import keys
from tests.cli.commands import FAR_S

_FILE = json.loads((Path(__file__).parents[1] / "golden" / "keyspace.json").read_text("utf-8"))
GO_CASES: dict[str, list[dict[str, Any]]] = {
    f"{case['name']}-{at}": step["keys"] for case in _FILE["cases"] for at, step in enumerate(case["steps"])
}
_NOT_OF_TASKS = ("processed", "failed", "paused")


def seed(db: Any, entries: list[dict[str, Any]]) -> None:
    """Write what Go had in Redis; what it kept until some minutes later is kept for ever."""
    for entry in entries:
        key = entry["key"]
        match entry["type"]:
            case "string":
                db.set(key, _bytes(entry["value"]))
            case "set":
                db.sadd(key, *map(_bytes, entry["members"]))
            case "list":
                db.rpush(key, *map(_bytes, entry["elements_lrange_0_-1"]))
            case "zset":
                far = FAR_S if key.endswith(":completed") else None
                db.zadd(key, {_bytes(each["member"]): far or each["score"] for each in entry["members_by_rank"]})
            case _:
                db.hset(key, mapping={name: _bytes(value) for name, value in entry["fields"].items()})
        if entry["ttl"]:
            db.pexpire(key, entry["ttl"]["pttl_ms"])


def _bytes(value: str | dict[str, Any]) -> bytes:
    return value.encode() if isinstance(value, str) else bytes.fromhex(value["hex"])


def queues_of(db: Any) -> list[str]:
    """Return the names of the queues that are listed."""
    return sorted(name.decode() for name in db.smembers(keys.all_queues()))


def everything(db: Redis) -> dict[str, Any]:
    """Read every key of a task, its place and its lock, as it is."""
    read: dict[str, Any] = {
        "string": db.get,
        "set": db.smembers,
        "list": lambda key: db.lrange(key, 0, -1),
        "zset": lambda key: db.zrange(key, 0, -1, withscores=True),
        "hash": db.hgetall,
    }
    found: Any = db.keys("asynq:*")
    return {
        key.decode(): read[db.type(key).decode()](key)  # type: ignore[union-attr]  # redis-py also has async replies
        for key in sorted(found)
        if key.decode().partition("}:")[2].partition(":")[0] not in _NOT_OF_TASKS
    }


def locks(db: Any) -> dict[str, int]:
    """Return how many milliseconds each unique lock still holds."""
    return {key.decode(): db.pttl(key) for key in db.keys("asynq:*:unique:*")}

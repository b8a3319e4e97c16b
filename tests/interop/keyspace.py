"""Dumps of a whole Redis database, in the form of golden/keyspace.json."""

from typing import Any

import redis


def dump(db: redis.Redis) -> dict[str, dict[str, Any]]:
    """Return key → its type, its time to live in seconds (None: none) and its value."""
    keys: list[bytes] = sorted(db.scan_iter(count=1000))
    return {key.decode(): {"ttl": _ttl(db, key), **_value(db, key)} for key in keys}


def _ttl(db: redis.Redis, key: bytes) -> int | None:
    left: Any = db.ttl(key)
    return None if left < 0 else int(left)


def _value(db: redis.Redis, key: bytes) -> dict[str, Any]:
    kind: Any = db.type(key)
    value: Any
    match kind.decode():
        case "set":
            value = db.smembers(key)
        case "list":
            value = db.lrange(key, 0, -1)
        case "zset":
            scored: Any = db.zrange(key, 0, -1, withscores=True)
            value = dict(scored)
        case "hash":
            value = db.hgetall(key)
        case _:
            value = db.get(key)
    return {"type": kind.decode(), "value": value}

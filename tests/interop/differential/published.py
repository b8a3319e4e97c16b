"""What schedulers leave in Redis, in words that are the same for two that never tick at the same moment."""

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from fastq.wire import keys
from fastq.wire.codec import decode_task_message
from fastq.wire.records import decode_scheduler_enqueue_event, decode_scheduler_entry
from tests.interop.keyspace import dump
from tests.keyspace import UUID, Cells, Place

ANY_ID: Final = re.compile(UUID)
HISTORY: Final = "asynq:scheduler_history:"
NEVER: Final = datetime(9999, 1, 1, tzinfo=UTC)
RANDOM: Final = "<uuid>"


def published(db: Any, ids: Mapping[str, str]) -> Cells:
    """Return all that is there; ``ids`` has the names of the entries and their ids."""
    names = {entry_id: name for name, entry_id in ids.items()}
    found: dict[Place, set[str]] = {}
    for key, entry in dump(db).items():
        for place, text in _told(key, entry, names):
            found.setdefault(place, set()).add(text)
    return {place: tuple(sorted(texts)) for place, texts in found.items()}


def _told(key: str, entry: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[tuple[Place, str]]:
    value = entry["value"]
    if key == "asynq:schedulers":
        yield Place(key, "members"), str(len(value))
    elif key.startswith("asynq:schedulers:"):
        yield Place("asynq:schedulers:<id>", "lives"), str(0 < entry["ttl"] <= 2)
        following = [decode_scheduler_entry(data).next_enqueue_time or NEVER for data in value]
        yield Place("asynq:schedulers:<id>", "latest first"), str(following == sorted(following, reverse=True))
        for data in value:
            yield from _told_of_entry(data, names)
    elif key.startswith(HISTORY):
        name = names[key.removeprefix(HISTORY)]
        yield Place(f"{HISTORY}<{name}>", "lives"), str(entry["ttl"])
        for data in value:
            yield Place(f"{HISTORY}<{name}>", "task ids"), _settled(decode_scheduler_enqueue_event(data).task_id)
    elif key == keys.scheduler_ticks():
        yield Place(key, "counters"), str(sorted(value))
    elif entry["type"] == "hash":
        yield Place(_settled(key), "task"), _told_of_task(value)
    else:
        yield from _told_of_others(key, entry)


def _told_of_entry(data: bytes, names: Mapping[str, str]) -> Iterator[tuple[Place, str]]:
    """Yield the facts of an entry except its id; its next time only where that does not count from the start."""
    entry = decode_scheduler_entry(data)
    following = None if entry.spec.startswith("@every") else entry.next_enqueue_time
    told = (entry.spec, entry.task_type, entry.task_payload, entry.enqueue_options, following)
    yield Place("asynq:schedulers:<id>", names[entry.id]), f"{told} {entry.prev_enqueue_time is not None}"


def _told_of_task(fields: Mapping[bytes, bytes]) -> str:
    message = decode_task_message(fields[b"msg"])
    others = {name.decode(): _settled(value.decode()) for name, value in fields.items() if name != b"msg"}
    if "pending_since" in others:
        others["pending_since"] = "then"
    return f"{message.replace(id=_settled(message.id))} {sorted(others.items())}"


def _told_of_others(key: str, entry: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    value = entry["value"]
    lives = None if entry["ttl"] is None else entry["ttl"] > 60
    members = [value] if isinstance(value, bytes) else value
    for member in members:
        yield Place(_settled(key), f"members, lives {lives}"), _settled(member.decode())
    if isinstance(value, dict):
        soon = {str(score - time.time() < 60) for score in value.values()}
        yield Place(_settled(key), "scores are near"), str(sorted(soon))


def _settled(text: str) -> str:
    return ANY_ID.sub(RANDOM, text)


def entries_of(db: Any) -> dict[str, bool]:
    """Return the ids of the published entries, and whether they have ticked."""
    lists = db.keys("asynq:schedulers:*")
    entries = [decode_scheduler_entry(data) for key in lists for data in db.lrange(key, 0, -1)]
    return {entry.id: entry.prev_enqueue_time is not None for entry in entries}


def ticked(db: Any, entry_id: str) -> bool:
    """Return whether an entry has ticked, and its task was enqueued."""
    return bool(db.exists(f"{HISTORY}{entry_id}"))

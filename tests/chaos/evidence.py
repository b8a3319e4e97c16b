"""The evidence: all that is known once a run is over, from sources that owe nothing to one another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redis import Redis

from fastq.server.base.timing import Timing
from fastq.wire.codec import decode_task_message
from tests.chaos.journal import Strike
from tests.chaos.ledger import Record
from tests.chaos.producer import Entry
from tests.chaos.workload import QUEUES

STATES = ("pending", "active", "lease", "scheduled", "retry", "archived", "completed")
_CHUNK = 1000


class Life(NamedTuple):
    """One life of a server, in monotonic nanoseconds; ``ended_ns`` is 0 if it was never ended."""

    server: int
    began_ns: int
    ended_ns: int


class Stored(NamedTuple):
    """What Redis stores of a task."""

    states: tuple[str, ...]
    error: str
    result: bytes | None
    failed_unix_s: int = 0


@dataclass(frozen=True)
class Keyspace:
    """What is left in Redis: tasks by id, the ids of hashes that are in no state, the locks of unique tasks."""

    tasks: Mapping[str, Stored]
    orphans: Sequence[str]
    locks: Sequence[str] = ()


@dataclass(frozen=True)
class Evidence:
    """The reports of producer, handlers, injector, kernel and Redis; ``observed`` is what the bench saw go wrong."""

    timing: Timing
    unix_less_monotonic_s: float
    entries: Sequence[Entry]
    records: Sequence[Record]
    strikes: Sequence[Strike]
    lives: Mapping[int, Life]
    keyspace: Keyspace
    observed: Sequence[tuple[str, str]] = field(default_factory=list)


def read_keyspace(db: Redis) -> Keyspace:
    """Read every task of the bench's queues."""
    ask: Any = db  # redis-py's types speak of coroutines, too
    tasks: dict[str, Stored] = {}
    orphans: list[str] = []
    locks: list[str] = []
    for queue in QUEUES:
        prefix = f"asynq:{{{queue}}}:"
        states: dict[str, list[str]] = {}
        for state in STATES:
            is_list = state in ("pending", "active")
            key = prefix + state
            for raw in ask.lrange(key, 0, -1) if is_list else ask.zrange(key, 0, -1):
                states.setdefault(raw.decode(), []).append(state)
        hashes = {raw.decode().removeprefix(f"{prefix}t:") for raw in ask.scan_iter(f"{prefix}t:*", count=_CHUNK)}
        locks += sorted(raw.decode() for raw in ask.scan_iter(f"{prefix}unique:*", count=_CHUNK))
        orphans += sorted(hashes - states.keys())
        tasks |= {task_id: _stored(ask, f"{prefix}t:{task_id}", tuple(where)) for task_id, where in states.items()}
    return Keyspace(tasks, orphans, locks)


def _stored(ask: Any, key: str, states: tuple[str, ...]) -> Stored:
    message, result = ask.hmget(key, "msg", "result")
    if message is None:
        return Stored((*states, "without its hash"), "", None)
    decoded = decode_task_message(message)
    return Stored(states, decoded.error_msg, result, decoded.last_failed_at)

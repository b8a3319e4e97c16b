"""A queue that is broken on purpose, in one way a function, without the code under test."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis

from fastq.broker.operations.lease import id_word
from fastq.server.inflight.dispositions import undecodable
from fastq.wire import keys
from tests.broker.harness import QueueBench, message
from tests.inspector.harness import Seeded

PAST_S: Final = 1_000_000_000
FAR_S: Final = 4_000_000_000


@dataclass(frozen=True)
class Defect:
    """Name the check that is to see it, what is said of it, and what makes it; ``is_repaired`` by ``--repair``."""

    check: str
    level: str
    seen: str
    make: Callable[[Seeded], None]
    is_repaired: bool = True
    example: str = ""


def sound(db: Redis, queue: str = "default") -> Seeded:
    """Fill a queue with tasks of every state, with which nothing is wrong."""
    seeded = Seeded(db, queue)
    seeded.pend("p1", "p2")
    seeded.activate("a1")
    for state, score in (("scheduled", FAR_S), ("retry", FAR_S), ("archived", FAR_S), ("completed", FAR_S)):
        seeded.add(state, {f"{state}-1": score})
    seeded.group("g", {"g1": FAR_S, "g2": FAR_S})
    lock = keys.unique(queue, "t", b"x")
    seeded.put("u1", "pending", unique_key=lock)
    seeded.db.hset(keys.task(queue, "u1"), "unique_key", lock)
    seeded.db.lpush(keys.pending(queue), "u1")
    seeded.db.set(lock, "u1", ex=3600)
    in_set = keys.aggregation_set(queue, "g", "s1")
    seeded.put("g3", "aggregating", group_key="g")
    seeded.db.hset(keys.task(queue, "g3"), "group", "g")
    seeded.db.zadd(in_set, {"g3": FAR_S})
    seeded.db.zadd(keys.aggregation_sets(queue), {in_set: FAR_S})
    seeded.db.mset({keys.processed_total(queue): 1, keys.failed_total(queue): 1, seeded.key("processed:2026-11-21"): 1})
    seeded.db.mset({keys.tick(queue, "n", 7): "x", keys.last_tick(queue, "n"): "7:x"})
    return seeded


def _dangling(place: str) -> Callable[[Seeded], None]:
    def make(queue: Seeded) -> None:
        if place in ("pending", "active"):
            queue.db.rpush(queue.key(place), "dangling")
            queue.db.lpush(queue.key(place), "dangling2")
            if place == "active":
                queue.db.zadd(keys.lease(queue.queue), {"dangling": FAR_S, "dangling2": FAR_S})
        else:
            queue.db.zadd(queue.key(place), {"dangling": FAR_S, "dangling2": FAR_S})

    return make


def _unleased(queue: Seeded) -> None:
    queue.activate("bare")
    queue.db.zrem(keys.lease(queue.queue), "bare")


def _inactive(queue: Seeded) -> None:
    queue.put("half", "active")
    queue.db.zadd(keys.lease(queue.queue), {"half": PAST_S})


def _expired(queue: Seeded) -> None:
    queue.activate("late", until_s=PAST_S)


def _lost(state: str, **fields: Any) -> Callable[[Seeded], None]:
    def make(queue: Seeded) -> None:
        queue.put("lost", state)
        if fields:
            queue.db.hset(keys.task(queue.queue, "lost"), mapping=fields)

    return make


def _leftover(queue: Seeded) -> None:
    queue.db.hset(keys.task(queue.queue, "rest"), "result", "x")


def _lock(queue: Seeded) -> None:
    queue.db.set(keys.unique(queue.queue, "gone", b"x"), "nobody", ex=3600)


def _unknown(queue: Seeded) -> None:
    queue.db.set(queue.key("in_progress"), "x")


def _unlisted(queue: Seeded) -> None:
    Seeded(queue.db, "hidden").add("scheduled", {"h1": FAR_S})
    queue.db.srem(keys.all_queues(), "hidden")


def _remains(queue: Seeded) -> None:
    hidden = QueueBench(queue.db, queue="removed")
    hidden.db.set(hidden.key("paused"), 1)
    hidden.db.hset(hidden.key("archive_rule"), "max", 5)
    hidden.db.set(hidden.key("processed:2026-11-21"), 1, ex=3600)


def _mistaken(queue: Seeded) -> None:
    hidden = QueueBench(queue.db, queue="mistaken")
    hidden.db.hset(hidden.key("limits"), "*", "2:0:1:1")
    hidden.db.hset(hidden.key("app_limits"), "*", "2:0:1:1")  # of no use alone, so that it is passed over
    hidden.db.hset(hidden.key("quota"), "pending", 5)


def _follow_up(queue: Seeded) -> None:
    """One whose task is gone, one whose task waits, one whose task runs, and one whose task waits in a group."""
    put_behind(queue, "gone", "p1", "a1", "g1")


def put_behind(queue: Seeded, *ids: str, payload: bytes = b"") -> None:
    """Put what was enqueued by key while tasks with these ids ran."""
    kept = {id_word(one): b"::" + message("x", payload=payload) for one in ids}
    queue.db.hset(keys.again(queue.queue), mapping=kept)


def _behind_no_hash(queue: Seeded) -> None:
    put_behind(queue, "odd")
    queue.db.set(keys.task(queue.queue, "odd"), "x")


def _wrong_type(queue: Seeded) -> None:
    queue.db.delete(queue.key("retry"), keys.task(queue.queue, "retry-1"))
    queue.db.set(queue.key("retry"), "x")


def _overdue(queue: Seeded) -> None:
    queue.db.zadd(keys.aggregation_sets(queue.queue), {keys.aggregation_set(queue.queue, "g", "s1"): PAST_S})


def _misplaced(queue: Seeded) -> None:
    queue.db.zadd(queue.key("archived"), {"p1": FAR_S})


def _undecodable(queue: Seeded) -> None:
    kept = undecodable("bad", queue.queue, b"\xff", "no", PAST_S)
    queue.db.hset(keys.task(queue.queue, "bad"), mapping={"msg": kept, "state": "archived"})
    queue.db.zadd(keys.archived(queue.queue), {"bad": FAR_S})


def _stale_server(queue: Seeded) -> None:
    queue.db.zadd(keys.all_servers(), {keys.server_info("h", 1, "x"): PAST_S})
    queue.db.zadd(keys.all_workers(), {keys.workers("h", 1, "x"): PAST_S})


DANGLING_PLACES: Final = ("pending", "active", "scheduled", "retry", "archived", "completed", "g:g", "g:g:s1")
STATES: Final = ("pending", "active", "scheduled", "retry", "archived", "completed", "aggregating")
DEFECTS: Final = {
    **{
        f"dangling in {place}": Defect(
            "ids without task", "problem", f"2 in {place.removeprefix('g:')}", _dangling(place), example="dangling"
        )
        for place in DANGLING_PLACES
    },
    **{
        f"lost, {state}": Defect("tasks in no list", "problem", "1", _lost(state), example=f"lost (state {state})")
        for state in STATES
    },
    "lost, of a group": Defect("tasks in no list", "problem", "1", _lost("aggregating", group="g")),
    "lost, of no state": Defect("tasks in no list", "problem", "1", _lost(""), example="lost (state unknown)"),
    "unleased": Defect("active without lease", "problem", "1 in active", _unleased, example="bare"),
    "inactive": Defect("leases without active task", "problem", "1 in lease", _inactive, example="half"),
    "expired": Defect("expired leases", "problem", "1 in lease", _expired, is_repaired=False, example="late"),
    "leftover": Defect("hashes without message", "warning", "1", _leftover, example="rest (state none)"),
    "lock": Defect("locks without task", "warning", "1", _lock),
    "unknown": Defect(
        "unknown keys", "warning", "1", _unknown, is_repaired=False, example="asynq:{default}:in_progress"
    ),
    "unlisted": Defect("unlisted queues", "problem", "1", _unlisted, example="hidden"),
    "remains": Defect(
        "remains of queues",
        "warning",
        "2 in archive_rule, paused",
        _remains,
        is_repaired=False,
        example="asynq:{removed}:",
    ),
    "mistaken name": Defect(
        "limits of unlisted queues",
        "warning",
        "2 in limits, quota",
        _mistaken,
        is_repaired=False,
        example="asynq:{mistaken}:",
    ),
    "follow-ups": Defect("follow-ups without a run", "warning", "2", _follow_up),
    "follow-up of what is no task": Defect(
        "keys of a wrong type", "problem", "1", _behind_no_hash, is_repaired=False, example="asynq:{default}:t:odd"
    ),
    "wrong type": Defect("keys of a wrong type", "problem", "1", _wrong_type, is_repaired=False),
    "overdue": Defect("overdue aggregation sets", "problem", "1", _overdue),
    "misplaced": Defect("ids out of place", "warning", "1 in archived", _misplaced, is_repaired=False, example="p1"),
    "undecodable": Defect("undecodable messages", "warning", "1 in archived", _undecodable, is_repaired=False),
    "stale server": Defect("server lists", "warning", "2 entries of servers that are gone", _stale_server),
}


def break_it(db: Redis, name: str) -> Defect:
    """Make a sound queue and one defect in it."""
    queue = sound(db)
    defect = DEFECTS[name]
    defect.make(queue)
    return defect

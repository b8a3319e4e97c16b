"""A queue in which each script has something to do, and a call of each script that does it."""

import time
from collections.abc import Mapping
from typing import Any

from redis import Redis

from fastq.broker.inspect.actions import Target, archive_task, run_task
from fastq.broker.inspect.bulk import Chosen, _archive_some, _run_some, delete_some, run_some
from fastq.broker.inspect.examine import (
    examine_again,
    examine_leases,
    examine_list,
    examine_lock,
    examine_set,
    examine_tasks,
)
from fastq.broker.inspect.keyspace import scan_keys
from fastq.broker.inspect.lanes import read_lanes
from fastq.broker.inspect.move import ParkedTask, claim_tasks, commit_move, drop_parked, unpark_tasks
from fastq.broker.inspect.put import TaskToPut, put_tasks, read_lock
from fastq.broker.inspect.queues import list_groups, pause_queue, peek_queue, queue_stats, sample_memory
from fastq.broker.inspect.redis_state import node_memory
from fastq.broker.inspect.removal import close_queue, find_groups, sweep_queue, unlist_groups
from fastq.broker.inspect.servers import read_workers
from fastq.broker.inspect.tasks import read_again, read_payload, read_tasks, update_payload
from fastq.broker.operation import Operation
from fastq.broker.operations.aggregate import (
    AggregationSet,
    GroupRule,
    archive_members,
    commit_set,
    delete_members,
    read_set,
    reclaim_set,
    relist_groups,
    scan_groups,
    take_set,
    unlist_due_groups,
)
from fastq.broker.operations.archive_rule import ArchiveRule, drop_archived, set_archive_rule
from fastq.broker.operations.cancel import _delete
from fastq.broker.operations.dequeue import dequeue, take
from fastq.broker.operations.ends import read_ends, tell_completed
from fastq.broker.operations.enqueue import EnqueueBatch, NewTask, QueueRegister, _operation, _put_keyed
from fastq.broker.operations.errors import keep_traceback
from fastq.broker.operations.finish import (
    ANY_OWNER,
    Archived,
    Completed,
    Done,
    Guard,
    Parked,
    PutBack,
    Retried,
    archive,
    complete,
    done,
    park,
    put_back,
    release_lock,
    requeue,
    retry,
)
from fastq.broker.operations.health import missing_rights
from fastq.broker.operations.history import add_history
from fastq.broker.operations.keyed import KeyTerms, put_again
from fastq.broker.operations.lanes import in_lanes, prune_rates, sweep_lanes
from fastq.broker.operations.lease import extend_leases, list_leases, list_owned, restore_owner
from fastq.broker.operations.limits import recheck_lanes, write_limit
from fastq.broker.operations.maintain import delete_expired_completed, forward
from fastq.broker.operations.presence import (
    ServerIdentity,
    ServerState,
    publish_server_state,
    save_checkpoint,
    write_progress,
    write_result,
)
from fastq.broker.operations.repair import repair_active, repair_lease
from fastq.broker.operations.schedulers import TickOutcome, count_ticks, publish_scheduler
from fastq.broker.operations.semaphore import Token, _acquire
from fastq.broker.operations.signs import ServerFacts, SilentServer, forget_signer, sign
from fastq.broker.operations.ticks import NamedTick, enqueue_tick
from fastq.broker.operations.walk import Source, Walk
from fastq.common.states import TaskState
from fastq.wire import keys
from fastq.wire.history import _LETTERS
from tests.broker.harness import NOW, NOW_NS, NOW_S, OURS, THEIRS, QueueBench, message
from tests.manual_clock import ManualClock

Q = "q"
LOCK = {task_id: keys.unique(Q, "t", task_id.encode()) for task_id in ("p2", "a2", "a3", "s2", "ar2", "m1", "n1", "k1")}
MADE = AggregationSet(Q, "g", "made")
TAKEN = AggregationSet(Q, "g", "taken")
ATTEMPT = b"." * 160


def set_scene(db: Redis) -> None:
    """Fill an empty Redis."""
    bench = QueueBench(db, queue=Q)
    put, at = bench.put, bench.db
    bench.pend("p1", "p2", "p3")
    bench.activate("a1", "a2", "a3", *(f"b{n}" for n in range(20)))
    bench.activate("e1", "e2", owner=THEIRS, until_s=NOW_S - 100)
    bench.activate("unleased")
    at.zrem(bench.key("lease"), "unleased")
    put("nowhere", "active")
    at.zadd(bench.key("lease"), {"nowhere": NOW_S - 100})
    put("lost", "archived")
    for state, found in {
        "scheduled": {"s1": NOW_S - 10, "s2": NOW_S + 10, "s3": NOW_S - 5},
        "retry": {"r1": NOW_S - 10, "r2": NOW_S + 10},
        "archived": {"ar1": NOW_S - 10_000_000, "ar2": NOW_S - 10, "ar3": NOW_S - 5},
        "completed": {"c1": NOW_S - 10, "c2": NOW_S + 10},
    }.items():
        for task_id in found:
            put(task_id, state)
        at.zadd(bench.key(state), found)
    at.hset(keys.task(Q, "s3"), "group", "g")
    at.hset(keys.task(Q, "c2"), "result", b"kept")
    _group(bench)
    _park(bench)
    _lanes(bench)
    for task_id, lock in LOCK.items():
        at.set(lock, task_id, ex=100_000)
        at.hset(keys.task(Q, task_id), "unique_key", lock)
    at.set(keys.unique(Q, "t", b"stale"), "gone")
    for key in (keys.processed(Q, NOW), keys.processed_total(Q), keys.failed(Q, NOW), keys.failed_total(Q)):
        at.set(key, 1000)
    at.set(keys.lost(Q, NOW), 3)
    at.hset(keys.archive_rule(Q), mapping={"max": 3, "ttl": 1_000_000, "full": "trim", "dropped": 1})
    at.hset(keys.quota(Q), "pending", 100)
    at.zadd(keys.errors(Q), {f"old{n}": NOW_S - n for n in range(200)})
    at.set(keys.error(Q, "old199"), "traceback")
    at.hset(keys.again(Q), mapping={one: behind(one) for one in ("gone", "r2", "a3", "c1", "s2")})
    at.zadd(keys.semaphore("scope"), {"x": NOW_S - 10})
    at.hset(keys.signers(), mapping={str(OURS): b"facts", "0.5": b"facts", "0.25": b"facts"})
    at.zadd(keys.signs(), {str(OURS): 1, "0.5": int(time.time() * 1000) - 100_000, "0.25": 1})
    at.lpush(keys.pending(Q), "dangling")
    at.zadd(keys.lease(Q), {"dangling": NOW_S - 100})
    at.lpush(keys.active(Q), "dangling")


def _group(bench: QueueBench) -> None:
    put, at = bench.put, bench.db
    for task_id in ("g1", "g2", "m1", "m2", "n1", "n2"):
        put(task_id, "aggregating")
        at.hset(keys.task(Q, task_id), "group", "g")
    at.zadd(keys.group(Q, "g"), {"g1": NOW_S - 20, "g2": NOW_S - 10})
    at.zadd(MADE.key, {"n1": NOW_S - 20, "n2": NOW_S - 10})
    at.zadd(TAKEN.key, {"m1": NOW_S - 20, "m2": NOW_S - 10})
    at.zadd(keys.aggregation_sets(Q), {MADE.key: "inf", TAKEN.key: NOW_S + 10})
    put("f1", "aggregating")
    at.hset(keys.task(Q, "f1"), "group", "unlisted")
    at.zadd(keys.group(Q, "unlisted"), {"f1": NOW_S})
    at.sadd(keys.groups(Q), "g", "empty")
    at.zadd(keys.scheduled_groups(Q), {"empty": NOW_S - 10_000})


def _lanes(bench: QueueBench) -> None:
    put, at = bench.put, bench.db
    at.hset(
        keys.limits(Q), mapping={"": "0:0:1:1", "lane": "1:0:1:1", "pool:*": "2:1000000:5:1", "free": "0:1000000:2:1"}
    )
    for lane, ids in {
        "lane": ("l1", "l2"),
        "pool:a": ("l3",),
        "pool:b": ("l4",),
        "free": ("l5",),
        "fresh": ("l6",),
    }.items():
        for task_id in ids:
            put(task_id, "aggregating")
            at.hset(keys.task(Q, task_id), "group", lane)
            at.zadd(keys.group(Q, lane), {task_id: NOW_S - 10})
        at.sadd(keys.groups(Q), lane)
    for task_id, lane in {"a1": "lane", "b1": "pool:a", "b2": "pool:b"}.items():
        at.hset(keys.task(Q, task_id), "group", lane)
    at.sadd(keys.held(Q, "lane"), "a1")
    at.sadd(keys.held(Q, "pool:*"), "b1", "b2")
    far = NOW_S * 10**6
    at.zadd(keys.full(Q), {"lane": far, "pool:*": far})
    at.zadd(keys.turns(Q), {"free": 1, "fresh": 2, "pool:a": 3, "later": 4e15})
    at.zadd(keys.pool_waiting(Q, "pool"), {"pool:b": 1})
    at.hset(keys.rates(Q), mapping={"free": 1, "pool:*": 1})


def _park(bench: QueueBench) -> None:
    put, at = bench.put, bench.db
    for task_id, more in {"k1": {"move_copy": "by"}, "k2": {}, "k3": {}}.items():
        put(task_id, "moving")
        state = "pending" if task_id == "k1" else "aggregating" if task_id == "k2" else "retry"
        parked = {
            "move_token": "token",
            "move_state": state,
            "move_score": NOW_S,
            "move_group": "g",
            "move_to": "other",
        }
        at.hset(keys.task(Q, task_id), mapping=parked | more)
    at.zadd(keys.moving(Q), {"k1": 1, "k2": 2, "k3": 3})
    at.hset(keys.moved(Q), "older:x", "by:other")


def behind(task_id: str) -> bytes:
    """Return what waits behind the run of a task."""
    at = f"{NOW_S + 60}:{NOW_S + 30}" if task_id == "s2" else ":"
    return f"{at}:".encode() + message(task_id, payload=b"newer")


def _keyed(*tasks: tuple[str, KeyTerms], run_at_s: int = 0, is_repeat: bool = False) -> Operation[Any]:
    new = [_new(one, terms=terms, run_at_s=run_at_s) for one, terms in tasks]
    return _put_keyed(EnqueueBatch(Q, TaskState.PENDING, new, NOW_NS), is_repeat=is_repeat)


def _new(task_id: str, **more: Any) -> NewTask:
    return NewTask(task_id, message(task_id), **more)


def _batch(state: TaskState, *tasks: NewTask) -> Operation[Any]:
    return _operation(EnqueueBatch(Q, state, tasks, NOW_NS))


def _limited(*tasks: NewTask) -> Operation[Any]:
    register = QueueRegister(ManualClock())
    return _operation(EnqueueBatch(Q, TaskState.PENDING, tasks, NOW_NS, register=register))


def _in_lane(state: TaskState, *tasks: NewTask) -> Operation[Any]:
    return _operation(EnqueueBatch(Q, state, tasks, NOW_NS, in_lane=True))


def _tick(state: TaskState, task: NewTask, *, in_lane: bool = False) -> Operation[Any]:
    tick = NamedTick("name", "entry", NOW_S, 100, "plan", 100)
    return enqueue_tick(tick, EnqueueBatch(Q, state, [task], NOW_NS, in_lane))


def _keyed_tick(task_id: str, if_there: str, run_at_s: int = 0) -> Operation[Any]:
    tick = NamedTick("name", "entry", NOW_S, 100, "plan", 100)
    task = _new(task_id, terms=KeyTerms(if_there, "mark", NOW_S), run_at_s=run_at_s)
    return enqueue_tick(tick, EnqueueBatch(Q, TaskState.PENDING, [task], NOW_NS))


def _first(flow: Any) -> Operation[Any]:
    found: Operation[Any] = next(flow)
    return found


_IN = {"group": "g", "lock": keys.unique(Q, "t", b"new"), "lock_ttl_s": 60}
_SCHEDULED = Source(Q, keys.scheduled(Q), TaskState.SCHEDULED)
_PENDING = Source(Q, keys.pending(Q), TaskState.PENDING)
_GROUP = Source(Q, keys.group(Q, "g"), TaskState.AGGREGATING, "g")
_SERVER = ServerIdentity("host", 1, "id")
_STATE = ServerState(b"info", {f"{n}": b"." * 1000 for n in range(600)}, b"notice")
_PARKED = [ParkedTask(b"k1", "by", LOCK["k1"], LOCK["k1"]), ParkedTask(b"k2"), ParkedTask(b"k3")]
_PUT = [
    TaskToPut(b"x1", "pending", {b"msg": message("x1")}, lock=keys.unique(Q, "t", b"new"), lock_ms=60_000),
    TaskToPut(b"x2", "aggregating", {b"msg": message("x2"), b"group": b"g"}, str(NOW_S), b"g"),
    TaskToPut(b"x3", "scheduled", {b"msg": message("x3"), b"group": b"g"}, str(NOW_S)),
]
_LOST = Guard(expired_at=NOW_S - 30)
_FACTS = ServerFacts("host:1:id", (Q,), 1, "run", "host", "boot", "namespace", 1, "2", NOW_S, 30)

CALLS: Mapping[str, list[Operation[Any]]] = {
    "acquire": [_acquire(Token("scope", "new", NOW_S + 10), 1, NOW_S)],
    "add_history": [add_history(Q, NOW_S, {"t": [1] * len(_LETTERS)})],
    "add_to_group": [_batch(TaskState.AGGREGATING, _new("x1", **_IN), _new("x2", group="other"))],
    "add_worker_state": list(publish_server_state(_SERVER, _STATE, 10)[1:2]),
    "aggregation_check": [
        take_set(AggregationSet(Q, "g", "new"), GroupRule(1, 0, 0), NOW_S, NOW_S + 100),
        take_set(AggregationSet(Q, "g", "new"), GroupRule(1, 0, 1), NOW_S, NOW_S + 100),
    ],
    "aggregation_check_lanes": [
        in_lanes(take_set(AggregationSet(Q, group, "new"), GroupRule(1, 0, 0), NOW_S, NOW_S + 100), Q)
        for group in ("g", "lane")
    ],
    "archive": [
        archive(Q, [Archived("a1", message("a1"), ATTEMPT), Archived("a2", message("a2"))], NOW, Guard(OURS)),
        archive(Q, [Archived("e1", message("e1"), ATTEMPT)], NOW, _LOST),
    ],
    "archive_lanes": [
        in_lanes(
            archive(Q, [Archived("a1", message("a1"), ATTEMPT), Archived("a2", message("a2"))], NOW, Guard(OURS)), Q
        ),
    ],
    "archive_aggregating": [archive_members(TAKEN, [("m1", message("m1")), ("m2", message("m2"))], NOW_S)],
    "archive_task": [archive_task(Target(Q, "p2"), NOW), archive_task(Target(Q, "g1"), NOW)],
    "archive_tasks": [
        _archive_some(NOW, _SCHEDULED, 10),
        _archive_some(NOW, _PENDING, 10),
        _archive_some(NOW, _GROUP, 9),
    ],
    "claim_tasks": [
        claim_tasks(_PENDING, [b"p1", b"p3"], "new", "other", 0),
        claim_tasks(_GROUP, [b"g1", b"g2"], "new", "other", 0),
    ],
    "close_queue": [close_queue("empty", NOW_S, force=True)],
    "commit_aggregation_set": [
        commit_set(TAKEN, 2, _new("x", **_IN), TaskState.SCHEDULED, NOW_NS),
        commit_set(TAKEN, 2, _new("x", lock=LOCK["m1"], lock_ttl_s=10), TaskState.PENDING, NOW_NS),
        commit_set(TAKEN, 2, _new("x", **_IN), TaskState.AGGREGATING, NOW_NS),
    ],
    "commit_move": [commit_move(Q, "token", _PARKED)],
    "complete": [
        complete(
            Q,
            [
                Completed("a1", message("a1"), NOW_S + 60, result=b"1"),
                Completed("a2", message("a2"), NOW_S + 60, LOCK["a2"]),
            ],
            NOW,
            OURS,
        )
    ],
    "complete_lanes": [in_lanes(complete(Q, [Completed("a1", message("a1"), NOW_S + 60, result=b"1")], NOW, OURS), Q)],
    "count_ticks": [count_ticks({(TickOutcome.ENQUEUED, "t"): 2, (TickOutcome.FAILED, "t"): 1})],
    "delete_aggregation_set": [delete_members(MADE, {"n1": LOCK["n1"], "n2": ""})],
    "delete_expired_completed": [delete_expired_completed(Q, NOW_S, 10)],
    "delete_task": [_delete((Q, "p2", ""), TaskState.PENDING), _delete((Q, "g1", ""), TaskState.AGGREGATING)],
    "delete_tasks": [delete_some(_SCHEDULED, 10), delete_some(_PENDING, 10), delete_some(_GROUP, 10)],
    "dequeue": [dequeue(Q, 10, f"{NOW_S + 30}.5"), dequeue(Q, 2, f"{NOW_S + 30}.5")],
    "done": [
        done(Q, [Done("a1"), Done("a2", LOCK["a2"])], NOW),
        done(Q, [Done(f"b{n}") for n in range(0, 20)] + [Done("a3", LOCK["a3"])], NOW, OURS),
    ],
    "done_lanes": [done(Q, [Done("a1"), Done("a2", LOCK["a2"]), Done("a3")], NOW, lanes=["lane", "pool:a", ""])],
    "drop_archived": [drop_archived(Q, [(b"ar2", str(NOW_S - 10).encode()), (b"ar1", b"0")])],
    "drop_parked": [drop_parked(Q, "token", _PARKED)],
    "enqueue": [
        _batch(TaskState.PENDING, _new("x1"), _new("x2")),
        _batch(TaskState.PENDING, _new("x1"), _new("x2", **{**_IN, "group": ""})),
    ],
    "enqueue_limited": [
        _limited(_new("x1"), _new("x2")),
        _limited(_new("x1"), _new("x2", **{**_IN, "group": ""})),
    ],
    "enqueue_lane": [
        _in_lane(TaskState.AGGREGATING, _new("x1", **{**_IN, "group": "pool:a"}), _new("x2", group="lane")),
        _in_lane(TaskState.AGGREGATING, _new("x1", group="new")),
    ],
    "enqueue_tick": [
        _tick(TaskState.PENDING, _new("x", lock=_IN["lock"], lock_ttl_s=60)),
        _tick(TaskState.SCHEDULED, _new("x", run_at_s=NOW_S + 1, **_IN)),
        _tick(TaskState.AGGREGATING, _new("x", **_IN)),
    ],
    "enqueue_tick_lanes": [
        _tick(TaskState.SCHEDULED, _new("x", run_at_s=NOW_S + 1, **_IN), in_lane=True),
        _tick(TaskState.AGGREGATING, _new("x", **{**_IN, "group": "pool:a"}, priority=3), in_lane=True),
        _tick(TaskState.AGGREGATING, _new("x", group="new"), in_lane=True),
    ],
    "examine_again": [examine_again(Q, "0")],
    "examine_leases": [examine_leases(Q, "0", NOW_S - 50)],
    "examine_list": [
        examine_list(Q, TaskState.ACTIVE, "0", repair=True),
        examine_list(Q, TaskState.PENDING, "0", repair=True),
    ],
    "examine_lock": [examine_lock(Q, keys.unique(Q, "t", b"stale"), repair=True)],
    "examine_set": [examine_set(Q, keys.lease(Q), TaskState.ACTIVE, "0", repair=True)],
    "examine_tasks": [examine_tasks(Q, ["nowhere", "lost", "p1", "g1"], NOW_S, most_archived=100)],
    "extend_leases": [extend_leases(Q, OURS, f"{NOW_S + 60}{str(OURS)[1:]}", ["a1", "a2", "e1"])],
    "find_groups": [_first(find_groups(Q))],
    "forget_signer": [forget_signer(SilentServer(OURS, 9.0, _FACTS, b"facts"))],
    "forward": [forward(Q, NOW_NS, 10)],
    "forward_lanes": [in_lanes(forward(Q, NOW_NS, 10), Q)],
    "keep_traceback": [keep_traceback(Q, "new", "traceback", NOW_S)],
    "list_groups": [list_groups(Q)],
    "list_leases": [list_leases(Q, "-inf", str(NOW_S - 50), 10)],
    "list_owned": [list_owned(Q, OURS, range(NOW_S, NOW_S + 60), 10)],
    "missing_rights": [missing_rights(Q, ["lpush", "zadd"])],
    "node_memory": [node_memory(Q)],
    "pause_queue": [pause_queue(Q, NOW_S)],
    "peek_queue": [peek_queue(Q, 10)],
    "publish_completed": [tell_completed("inbox", Q, [(Completed("c2", b"", NOW_S + 10), "")])],
    "put_again": [put_again(Q, ["gone", "r2", "a3", "c1", "s2", "p1"], NOW_NS)],
    "put_keyed": [
        _keyed(*((one, KeyTerms("rerun", "mark")) for one in ("x1", "a1", "a3", "p1", "r1", "c2", "ar1", "s1", "g1"))),
        _keyed(*((one, KeyTerms("postpone", "mark", NOW_S)) for one in ("x1", "s1", "a1", "a3")), run_at_s=NOW_S - 20),
        _keyed(("x1", KeyTerms("keep", "mark")), ("a3", KeyTerms("rerun", "newer")), is_repeat=True),
    ],
    "put_keyed_tick": [
        _keyed_tick("x1", "rerun"),
        _keyed_tick("ar1", "rerun"),
        _keyed_tick("r1", "rerun"),
        _keyed_tick("a3", "postpone", NOW_S - 20),
        _keyed_tick("s1", "postpone", NOW_S - 20),
    ],
    "put_tasks": [_first(put_tasks(Q, _PUT)), _first(put_tasks(Q, _PUT, token="new"))],
    "queue_stats": [queue_stats(Q, NOW_S)],
    "read_aggregation_set": [read_set(TAKEN, 0)],
    "read_ends": [read_ends(Q, [("c2", ""), ("ar1", "nonce"), ("p1", "")])],
    "read_lanes": [read_lanes(Q, [("pool:b", "pool"), ("pool:*", ""), ("lane", ""), ("none", "")])],
    "read_lock": [read_lock(LOCK["p2"], b"p2")],
    "read_page": [Walk(_SCHEDULED, with_locks=True).page(), Walk(_PENDING, with_locks=True).page()],
    "read_again": [read_again(Q, "gone"), read_again(Q, "p1")],
    "read_payload": [read_payload(Q, "p1", "msg", 0, 9)],
    "read_tasks": [read_tasks(Q, ["p1", "s1", "a1", "c2"])],
    "read_workers": [read_workers(_SERVER.workers_key), read_workers(_SERVER.workers_key, 600, [b"7", b"none"])],
    "reclaim_aggregation_set": [reclaim_set(TAKEN)],
    "recheck_lanes": [recheck_lanes(Q)],
    "release_lock": [release_lock(LOCK["p2"], b"p2")],
    "relist_groups": [relist_groups(Q, 0)],
    "repair_active": [repair_active(Q, 0, 100, NOW_S)],
    "repair_lease": [repair_lease(Q, ["nowhere", "e1"], NOW_S - 50, NOW_NS)],
    "park_lanes": [park(Q, [Parked("a1", 5_000_000), Parked("b1", 1), Parked("a2", 2)], NOW_NS, Guard(OURS))],
    "put_back": [
        put_back(
            Q, [PutBack("a1", message("a1"), ATTEMPT), PutBack("a2", message("a2"))], NOW_NS, Guard(OURS, NOW_S + 60)
        ),
        put_back(Q, [PutBack("e1", message("e1"))], NOW_NS, _LOST),
    ],
    "put_back_lanes": [
        in_lanes(
            put_back(
                Q,
                [PutBack("a1", message("a1"), ATTEMPT), PutBack("b1", message("b1"))],
                NOW_NS,
                Guard(OURS, NOW_S + 60),
            ),
            Q,
        )
    ],
    "requeue_lanes": [in_lanes(requeue(Q, ["a1", "a2", "b1"], NOW_NS, Guard(OURS)), Q)],
    "requeue": [requeue(Q, ["a1", "a2"], NOW_NS, Guard(OURS)), requeue(Q, ["e1"], NOW_NS, _LOST)],
    "restore_owner": [restore_owner(Q, "a1", message("a1"), f"{NOW_S + 60}{str(OURS)[1:]}")],
    "retry_lanes": [
        in_lanes(retry(Q, [Retried("a1", message("a1"), NOW_S + 5, attempt=ATTEMPT)], NOW, Guard(OURS)), Q)
    ],
    "prune_rates": [prune_rates(Q, 0)],
    "scan_groups_lanes": [in_lanes(scan_groups(Q, 0, GroupRule(1), NOW_S), Q)],
    "sweep_lanes": [sweep_lanes(Q, 0)],
    "schedule_lanes": [_in_lane(TaskState.SCHEDULED, _new("x1", run_at_s=NOW_S + 1, **{**_IN, "group": "new"}))],
    "take": [take(Q, 10, f"{NOW_S + 30}.5")],
    "retry": [
        retry(
            Q,
            [Retried("a1", message("a1"), NOW_S + 5, True, ATTEMPT), Retried("a2", message("a2"), NOW_S + 60, False)],
            NOW,
            Guard(OURS),
        ),
        retry(Q, [Retried("e1", message("e1"), NOW_S + 60)], NOW, _LOST),
        retry(Q, [Retried("a1", message("a1"), NOW_S + 60, False)], NOW, ANY_OWNER),
    ],
    "run_chosen": [run_some(Source(Q, keys.retry(Q), TaskState.RETRY), [Chosen(b"r1"), Chosen(b"r2")], NOW_NS)],
    "run_task": [run_task(Target(Q, "ar2"), NOW_NS), run_task(Target(Q, "g1"), NOW_NS)],
    "run_tasks": [_run_some(NOW_NS, _SCHEDULED, 10), _run_some(NOW_NS, _GROUP, 10)],
    "sample_memory": [sample_memory(Q)],
    "save_checkpoint": [save_checkpoint(Q, "a1", OURS, message("a1", headers={"x": "y"}), OURS.score(NOW_S, 60))],
    "scan_groups": [scan_groups(Q, 0, GroupRule(1, 0, 0), NOW_S)],
    "scan_keys": [scan_keys(Q, "asynq:*")],
    "schedule": [
        _batch(TaskState.SCHEDULED, _new("x1", run_at_s=NOW_S - 50, **_IN), _new("x2", run_at_s=NOW_S + 60)),
        _batch(TaskState.SCHEDULED, _new("x1", run_at_s=NOW_S - 50), _new("x2", run_at_s=NOW_S + 60, group="g")),
    ],
    "set_limit": [
        write_limit(Q, "", "remove", ""),
        write_limit(Q, "lane", "set", "3:0:1:1"),
        write_limit(Q, "pool:*", "pause", ""),
        write_limit(Q, "free", "declare", "3:0:1:1"),
    ],
    "sign": [sign(OURS, _FACTS, 6.0, 100), sign(OURS, _FACTS, 0.0, 100)],
    "set_archive_rule": [set_archive_rule(Q, ArchiveRule(5))],
    "sweep_queue": [_first(sweep_queue(Q))],
    "unlist_due_groups": [unlist_due_groups(Q)],
    "unlist_groups": [_first(unlist_groups(Q, ["g", "empty"]))],
    "unpark_tasks": [unpark_tasks(Q, "token", _PARKED), unpark_tasks(Q, "token", _PARKED, back=True)],
    "update_payload": [update_payload(Q, "s1", message("s1", queue=Q), message("s1", payload=b"new"))],
    "write_progress": [write_progress(Q, "a1", OURS, b"{}")],
    "write_result": [write_result(Q, "a1", OURS, b"half")],
    "write_scheduler_entries": list(publish_scheduler("host:1:id", [b"entry"], NOW_S, 10)[1:2]),
    "write_server_state": list(publish_server_state(_SERVER, _STATE, 10)[:1]),
}
"""For each script the calls that together use all of its commands."""

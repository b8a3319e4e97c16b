"""The safe repairs: each script checks again, atomically, before it repairs; only ``_enlist`` does not check."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from fastq.broker.inspect.examine import TASKS_A_CALL, Stretch, examine_again, examine_lock, examine_tasks
from fastq.broker.inspect.registry import INDEXES, forget_stale
from fastq.broker.operation import Flow, together
from fastq.broker.operations.aggregate import STRETCH, AggregationSet, reclaim_set
from fastq.broker.operations.archive_rule import ArchiveRule, read_archive_rule
from fastq.broker.operations.enqueue import register_queue
from fastq.broker.operations.keyed import PUT_AGAIN_AT_MOST, put_again
from fastq.broker.operations.lease import id_word
from fastq.broker.operations.repair import ActiveRepair, LeaseRepair, repair_active, repair_lease
from fastq.inspector.doctor.pending import read_pending, tasks_a_call
from fastq.inspector.doctor.places import find_places, walk
from fastq.inspector.doctor.queue_checks import NEARLY
from fastq.inspector.doctor.suspects import Kind, Survey, Suspect

IDS_A_CALL: Final = 500
SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True)
class Repair:
    """A possible repair: its check and queue, words for the result, the least number of cases, and the work."""

    check: str
    queue: str | None
    what: str
    count: int
    carry_out: Callable[[], Flow[int]]


RepairFlow: TypeAlias = Callable[[str, Sequence[Suspect], int], Flow[int]]


def repairs_of(survey: Survey, now_s: Callable[[], int]) -> list[Repair]:
    """Return the possible repairs of the findings."""
    return [
        _repair(kind, queue, suspects, survey.counts[kind, queue], now_s)
        for kind in _REPAIRS
        for queue, suspects in survey.of_kind(kind).items()
    ]


def _repair(kind: Kind, queue: str, suspects: Sequence[Suspect], count: int, now_s: Callable[[], int]) -> Repair:
    what, repair = _REPAIRS[kind]
    return Repair(kind.value, queue, what, count, lambda: repair(queue, suspects, now_s()))


def forget_servers(count: int, before_s: int) -> Repair:
    """Return the repair that removes dead servers and schedulers from the lists."""

    def carry_out() -> Flow[int]:
        removed = yield from together(*(forget_stale(index, before_s) for index in INDEXES))
        return sum(removed)

    return Repair("server lists", None, "entries of servers removed", count, carry_out)


def _drop_dangling(queue: str, suspects: Sequence[Suspect], now_s: int) -> Flow[int]:
    found = yield from find_places(queue, now_s)
    suspected = {suspect.place for suspect in suspects}
    dropped = 0
    for place in found.places:
        if place.name in suspected:
            dropped += yield from walk(place, _to_the_end, repair=True)
    return dropped


def _to_the_end(stretch: Stretch) -> bool:
    return True


def _lease_active(queue: str, suspects: Sequence[Suspect], now_s: int) -> Flow[int]:
    start = leased = 0
    while True:
        done: ActiveRepair = yield repair_active(queue, start, IDS_A_CALL, now_s)
        leased += done.leased
        start += IDS_A_CALL - done.dropped
        if done.looked_at < IDS_A_CALL:
            return leased


def _drop_leases(queue: str, suspects: Sequence[Suspect], now_s: int) -> Flow[int]:
    ids = [suspect.name for suspect in suspects]
    repaired = 0
    while ids:
        done: LeaseRepair = yield repair_lease(queue, ids[:TASKS_A_CALL], now_s, now_s * SECOND_NS)
        repaired += done.repaired
        ids = ids[done.looked_at :]
    return repaired


def _give_back(queue: str, suspects: Sequence[Suspect], now_s: int) -> Flow[int]:
    found = yield from find_places(queue, now_s)
    sets = 0
    for one in found.overdue:
        sets += yield from _give_one_back(one)
    return sets


def _give_one_back(one: AggregationSet) -> Flow[int]:
    while True:
        moved: int = yield reclaim_set(one)
        if moved < STRETCH:
            return int(moved >= 0)


def _rescue(queue: str, suspects: Sequence[Suspect], now_s: int) -> Flow[int]:
    pending = yield from read_pending(queue, None, lambda: now_s)
    ids = [suspect.name for suspect in suspects if id_word(suspect.name) not in pending.ids]
    at_once = tasks_a_call(len(pending.ids))
    rule: ArchiveRule = yield read_archive_rule(queue)
    repaired = 0
    for at in range(0, len(ids), at_once):
        found: list[tuple[str, str]] = yield examine_tasks(
            queue, ids[at : at + at_once], now_s, read_ns=pending.read_ns, most_archived=math.ceil(NEARLY * rule.most)
        )
        repaired += sum(what != "full" for _, what in found)
    return repaired


def _release(queue: str, suspects: Sequence[Suspect], now_s: int) -> Flow[int]:
    released = 0
    for at in range(0, len(suspects), TASKS_A_CALL):
        locks = (examine_lock(queue, one.name, repair=True) for one in suspects[at : at + TASKS_A_CALL])
        owners = yield from together(*locks)
        released += sum(owner is not None for owner in owners)
    return released


def _follow(queue: str, suspects: Sequence[Suspect], now_s: int) -> Flow[int]:
    put = 0
    cursor: str | None = "0"
    while cursor is not None:
        stretch: Stretch = yield examine_again(queue, cursor)
        ids = [id_word(task_id) for task_id, what in stretch.found if what == "over"]
        for at in range(0, len(ids), PUT_AGAIN_AT_MOST):
            while now := (yield put_again(queue, ids[at : at + PUT_AGAIN_AT_MOST], now_s * SECOND_NS)):
                put += now
        cursor = stretch.following
    return put


def _enlist(queue: str, suspects: Sequence[Suspect], now_s: int) -> Flow[int]:
    added: int = yield register_queue(queue)
    return added


_REPAIRS: Final[dict[Kind, tuple[str, RepairFlow]]] = {
    Kind.UNLISTED: ("queues listed", _enlist),
    Kind.DANGLING: ("ids without task dropped", _drop_dangling),
    Kind.UNLEASED: ("active tasks given an expired lease", _lease_active),
    Kind.INACTIVE: ("leases dropped, and lost tasks made pending", _drop_leases),
    Kind.OVERDUE_SET: ("aggregation sets given back to their groups", _give_back),
    Kind.LOST_TASK: ("tasks archived", _rescue),
    Kind.LEFTOVER: ("hashes without message deleted", _rescue),
    Kind.LOST_LOCK: ("locks released", _release),
    Kind.FOLLOW_UP: ("follow-ups enqueued", _follow),
}
"""For each kind, the words for the result, and the repair. Repairs are made in this order."""

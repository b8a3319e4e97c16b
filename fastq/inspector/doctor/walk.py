"""The walk through all ids of some queues, and through all keys, which records suspects."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from fastq.broker.inspect.examine import (
    TASKS_A_CALL,
    Stretch,
    examine_again,
    examine_leases,
    examine_lock,
    examine_tasks,
    list_parked,
)
from fastq.broker.inspect.keyspace import KEYS_A_CALL, KeyPage, glob_of, node_tags, scan_keys
from fastq.broker.inspect.servers import cluster_slots
from fastq.broker.operation import Flow, together
from fastq.broker.operations.lease import id_word
from fastq.inspector.doctor.finding import Refused, ask, attempt
from fastq.inspector.doctor.key_kinds import KeyKind, NamedKey, name_key
from fastq.inspector.doctor.pending import Pending, read_pending, tasks_a_call
from fastq.inspector.doctor.places import Place, find_places, is_sendable, walk
from fastq.inspector.doctor.suspects import Kind, Survey, Suspect
from fastq.wire import keys

KEYS_A_TASK: Final = 3
"""How many keys may be examined for each task of ``limit``."""
LASTING: Final = {
    **dict.fromkeys(("paused", "archive_rule", "scheduled_groups", "processed", "failed"), Kind.REMAINS),
    **dict.fromkeys(("limits", "quota"), Kind.LIMIT),
}
"""The keys of a queue that never expire and hold no tasks, and the kind of suspect that each is without the queue."""
STUCK_S: Final = 120
"""How long after its end a lease is reported. It is normally taken over after 30 s; Go's recoverers run every 60 s."""


@dataclass(frozen=True)
class Scope:
    """What to examine: only ``queues`` if any are named, and at most ``limit`` ids (None: all)."""

    queues: tuple[str, ...]
    limit: int | None
    now_s: Callable[[], int]
    note: Callable[[int], None] = lambda ids: None
    """Called with the number of ids examined so far."""
    nodes: Sequence[str] = ("fastq",)
    """Names of queues, one on each node of a cluster."""
    served: Collection[str] = ()
    """Queues that live servers serve, listed or not: servers write archive rules before a queue has tasks."""


def find_nodes() -> Flow[Sequence[str]]:
    """Return the name of a queue on each node of a cluster; without a cluster, any name."""
    ranges = yield from ask(cluster_slots())
    return ("fastq",) if isinstance(ranges, Refused) else node_tags(ranges)


def survey_queue(queue: str, survey: Survey, scope: Scope) -> Flow[None]:
    """Go through a queue's lists, sets and leases."""
    found = yield from find_places(queue, scope.now_s())
    for key, kind in found.wrong.items():
        survey.suspect(Suspect(Kind.WRONG_TYPE, queue, "", key, kind))
    for one in found.overdue:
        survey.suspect(Suspect(Kind.OVERDUE_SET, queue, "", one.key))
    if found.has_parked:
        parked: list[bytes] = yield list_parked(queue)
        for task_id in parked:
            survey.suspect(Suspect(Kind.PARKED, queue, "", task_id.decode("utf-8", "replace")))
    if found.has_follow_ups:
        done: object = yield from attempt(_survey_follow_ups(queue, survey, scope))
        if isinstance(done, Refused):
            survey.refused[Kind.FOLLOW_UP, queue] = done.why
    for place in found.places:
        yield from walk(place, _Seeing(place, survey, scope).see)
    if keys.lease(queue) not in found.wrong and keys.active(queue) not in found.wrong:
        yield from _survey_leases(queue, survey, scope)


def _survey_follow_ups(queue: str, survey: Survey, scope: Scope) -> Flow[None]:
    cursor: str | None = "0"
    looked_at = 0
    while cursor is not None:
        if scope.limit is not None and looked_at >= scope.limit:
            survey.is_partial = True
            return
        stretch: Stretch = yield examine_again(queue, cursor)
        for task_id, what in stretch.found:
            if what == "over":
                survey.suspect(Suspect(Kind.FOLLOW_UP, queue, "", task_id))
            else:
                survey.suspect(Suspect(Kind.WRONG_TYPE, queue, "", keys.task(queue, task_id)))
        looked_at += stretch.looked_at
        cursor = stretch.following


@dataclass
class _Seeing:
    """Records the suspects of one list or set, chunk by chunk."""

    place: Place
    survey: Survey
    scope: Scope
    kinds: dict[str, Kind] = field(
        default_factory=lambda: {"none": Kind.DANGLING, "unleased": Kind.UNLEASED, "undecodable": Kind.UNDECODABLE}
    )

    def see(self, stretch: Stretch) -> bool:
        self.survey.ids_looked_at += stretch.looked_at
        self.scope.note(self.survey.ids_looked_at)
        for task_id, what in stretch.found:
            kind = self.kinds.get(what, Kind.MISPLACED)
            detail = f"(state {what or 'unknown'})" if kind is Kind.MISPLACED else ""
            self.survey.suspect(Suspect(kind, self.place.queue, self.place.name, task_id, detail))
        if self.scope.limit is not None and self.survey.ids_looked_at >= self.scope.limit and stretch.following:
            self.survey.is_partial = True
            return False
        return True


def _survey_leases(queue: str, survey: Survey, scope: Scope) -> Flow[None]:
    kinds = {"inactive": Kind.INACTIVE, "expired": Kind.EXPIRED}
    cursor: str | None = "0"
    while cursor is not None:
        stretch: Stretch = yield examine_leases(queue, cursor, scope.now_s() - STUCK_S)
        for task_id, what in stretch.found:
            survey.suspect(Suspect(kinds[what], queue, "lease", task_id))
        cursor = stretch.following


def survey_keys(listed: Collection[str], survey: Survey, scope: Scope) -> Flow[None]:
    """Scan all keys, or those of the named queues, for data that nothing refers to."""
    sweep = _Sweep(frozenset(listed), survey, scope)
    if scope.queues:
        for queue in scope.queues:
            yield from sweep.node(queue, glob_of(keys.queue_prefix(queue)))
    else:
        for tag in scope.nodes:
            yield from sweep.node(tag, "asynq:*")
    yield from sweep.settle()


class _Sweep:
    """A walk through keys. Each queue's pending ids are read once, since looking up single ids would block Redis."""

    def __init__(self, listed: frozenset[str], survey: Survey, scope: Scope) -> None:
        self._listed = listed
        self._survey = survey
        self._scope = scope
        self._pending: dict[str, Pending] = {}
        self._unsure: dict[str, set[str]] = defaultdict(set)

    def node(self, tag: str, pattern: str) -> Flow[None]:
        limit = self._scope.limit
        cursor: str | None = "0"
        while cursor is not None:
            if limit is not None and self._survey.keys_looked_at >= KEYS_A_TASK * limit:
                self._survey.is_partial = True
                return
            page: KeyPage = yield scan_keys(tag, pattern, cursor)
            cursor = page.cursor
            self._survey.keys_looked_at += KEYS_A_CALL
            yield from self._look_at(page)

    def _look_at(self, page: KeyPage) -> Flow[None]:
        tasks: dict[str, list[str]] = defaultdict(list)
        locks: list[NamedKey] = []
        for named in map(name_key, page.keys):
            if named.kind is KeyKind.UNKNOWN or not is_sendable(named.key.partition(":t:")[0]):
                self._survey.suspect(Suspect(Kind.UNKNOWN_KEY, named.queue, "", named.key))
                continue
            if named.kind is KeyKind.TASK:
                tasks[named.queue].append(named.rest)
            elif named.kind is KeyKind.LOCK:
                locks.append(named)
            if named.kind in (KeyKind.TASK, KeyKind.PLACE) and named.queue not in self._listed:
                self._survey.suspect(Suspect(Kind.UNLISTED, named.queue, "", named.queue))
            if named.rest in LASTING and named.kind is KeyKind.ASIDE and not self._is_known(named.queue):
                self._survey.suspect(Suspect(LASTING[named.rest], named.queue, named.rest, named.key))
        for queue, task_ids in tasks.items():
            yield from self._kept(queue, self._look_at_tasks(queue, task_ids))
        for at in range(0, len(locks), TASKS_A_CALL):
            yield from self._look_at_locks(locks[at : at + TASKS_A_CALL])

    def _is_known(self, queue: str) -> bool:
        return queue in self._listed or queue in self._scope.served

    def _kept(self, queue: str, flow: Flow[None]) -> Flow[None]:
        """Do a part of the walk. If Redis refuses it, record why and go on. Keys of a wrong type are reported
        elsewhere.
        """
        done: object = yield from attempt(flow)
        if isinstance(done, Refused):
            self._survey.refused["tasks", queue] = done.why

    def _look_at_tasks(self, queue: str, task_ids: Sequence[str]) -> Flow[None]:
        if queue not in self._pending:
            self._pending[queue] = yield from self._read_pending(queue)
        pending = self._pending[queue]
        others = [task_id for task_id in task_ids if id_word(task_id) not in pending.ids]
        for task_id, state in (yield from self._examine(queue, others, pending)):
            if state == "unsure":
                self._unsure[queue].add(task_id)
            else:
                self._suspect(queue, task_id, state)

    def settle(self) -> Flow[None]:
        """Check again for tasks that may have entered a long pending list since it was read."""
        for queue, unsure in self._unsure.items():
            if self._pending[queue].is_whole:
                yield from self._kept(queue, self._settle(queue, unsure))

    def _settle(self, queue: str, unsure: set[str]) -> Flow[None]:
        pending = yield from self._read_pending(queue)
        if not pending.is_whole:
            return
        left = [task_id for task_id in unsure if id_word(task_id) not in pending.ids]
        for task_id, state in (yield from self._examine(queue, left, pending, read_ns=pending.read_ns)):
            self._suspect(queue, task_id, state)

    def _suspect(self, queue: str, task_id: str, state: str) -> None:
        kind = Kind.LEFTOVER if state == "none" else Kind.LOST_TASK
        self._survey.suspect(Suspect(kind, queue, "", task_id, f"(state {state or 'unknown'})"))

    def _examine(
        self, queue: str, task_ids: Sequence[str], pending: Pending, read_ns: int = 0
    ) -> Flow[list[tuple[str, str]]]:
        found: list[tuple[str, str]] = []
        at_once = tasks_a_call(len(pending.ids))
        for at in range(0, len(task_ids), at_once):
            some = task_ids[at : at + at_once]
            found += yield examine_tasks(queue, some, self._scope.now_s(), read_ns=read_ns)
        return found

    def _read_pending(self, queue: str) -> Flow[Pending]:
        pending = yield from read_pending(queue, self._scope.limit, self._scope.now_s)
        if not pending.is_whole:
            self._survey.is_partial = True
        return pending

    def _look_at_locks(self, locks: Sequence[NamedKey]) -> Flow[None]:
        owners = yield from together(*(examine_lock(named.queue, named.key) for named in locks))
        for named, owner in zip(locks, owners, strict=True):
            if owner is not None:
                self._survey.suspect(Suspect(Kind.LOST_LOCK, named.queue, "", named.key, f"of {owner}"))

"""The walk through all ids of some queues, and through all keys, which notes what looks wrong."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fastq import keys
from fastq.broker.examine import MAX_SEARCHED, TASKS_A_CALL, Stretch, examine_leases, examine_lock, examine_tasks
from fastq.broker.inspect_tasks import list_ids_newest_first
from fastq.broker.keyspace import KEYS_A_CALL, Page, glob_of, scan_keys
from fastq.broker.operation import Flow, together
from fastq.errors import BrokerConnectionError, BrokerError, BrokerTimeoutError
from fastq.inspector.doctor.key_kinds import KeyKind, NamedKey, name_key
from fastq.inspector.doctor.places import Place, find_places, is_sendable, walk
from fastq.inspector.doctor.suspects import Kind, Survey, Suspect
from fastq.states import TaskState

__all__ = ["Scope", "survey_keys", "survey_queue"]

IDS_A_CALL: Final = 5_000
KEYS_A_TASK: Final = 3
"""Keys that may be looked at for each task that may be."""
SEARCHED_A_CALL: Final = 1_000_000
STUCK_S: Final = 120
"""A lease is taken over 30 s after its end, by recoverers that look every 60 s if they are Go's."""


@dataclass(frozen=True)
class Scope:
    """Say what is looked at: ``queues`` alone if any are named, ``limit`` ids at most (None: all)."""

    queues: tuple[str, ...]
    limit: int | None
    now_s: Callable[[], int]
    note: Callable[[int], None] = lambda ids: None
    """Told how many ids were looked at so far."""
    nodes: Sequence[str] = ("fastq",)
    """Names of queues, one on each node of a cluster."""


def survey_queue(queue: str, survey: Survey, scope: Scope) -> Flow[None]:
    """Go through a queue's lists, sets and leases."""
    found = yield from find_places(queue, scope.now_s())
    for key, kind in found.wrong.items():
        survey.suspect(Suspect(Kind.WRONG_TYPE, queue, "", key, kind))
    for one in found.overdue:
        survey.suspect(Suspect(Kind.OVERDUE_SET, queue, "", one.key))
    for place in found.places:
        yield from walk(place, _Seeing(place, survey, scope).see)
    if keys.lease(queue) not in found.wrong and keys.active(queue) not in found.wrong:
        yield from _survey_leases(queue, survey, scope)


@dataclass
class _Seeing:
    """Note what stands in a place."""

    place: Place
    survey: Survey
    scope: Scope
    kinds: dict[str, Kind] = field(
        default_factory=lambda: {"none": Kind.GHOST, "unleased": Kind.UNLEASED, "undecodable": Kind.UNDECODABLE}
    )

    def see(self, stretch: Stretch) -> bool:
        self.survey.ids_looked_at += stretch.looked_at
        self.scope.note(self.survey.ids_looked_at)
        for task_id, what in stretch.found:
            kind = self.kinds.get(what, Kind.MISPLACED)
            detail = f"says {what or 'nothing'}" if kind is Kind.MISPLACED else ""
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
    """Go through all keys, or those of the named queues, for what nothing refers to."""
    sweep = _Sweep(frozenset(listed), survey, scope)
    if scope.queues:
        for queue in scope.queues:
            yield from sweep.node(queue, glob_of(keys.queue_prefix(queue)))
    else:
        for tag in scope.nodes:
            yield from sweep.node(tag, "asynq:*")


class _Pending(NamedTuple):
    """Hold the ids that were pending, and how long the list may be for others to be looked for in it."""

    ids: set[bytes]
    searched: int


class _Sweep:
    """Walk through keys; what is pending is read once for each queue, since it cannot be looked up by id."""

    def __init__(self, listed: frozenset[str], survey: Survey, scope: Scope) -> None:
        self._listed = listed
        self._survey = survey
        self._scope = scope
        self._pending: dict[str, _Pending] = {}

    def node(self, tag: str, pattern: str) -> Flow[None]:
        limit = self._scope.limit
        cursor: str | None = "0"
        while cursor is not None:
            if limit is not None and self._survey.keys_looked_at >= KEYS_A_TASK * limit:
                self._survey.is_partial = True
                return
            page: Page = yield scan_keys(tag, pattern, cursor)
            cursor = page.cursor
            self._survey.keys_looked_at += KEYS_A_CALL
            yield from self._look_at(page)

    def _look_at(self, page: Page) -> Flow[None]:
        tasks: dict[str, list[str]] = defaultdict(list)
        locks: list[NamedKey] = []
        for named in map(name_key, page.keys):
            if named.kind is KeyKind.UNKNOWN or not is_sendable(named.key.partition(":t:")[0]):
                self._survey.suspect(Suspect(Kind.UNKNOWN_KEY, named.queue, "", named.key))
            elif named.kind is KeyKind.TASK:
                tasks[named.queue].append(named.rest)
            elif named.kind is KeyKind.LOCK:
                locks.append(named)
            if named.kind in (KeyKind.TASK, KeyKind.PLACE) and named.queue not in self._listed:
                self._survey.suspect(Suspect(Kind.UNLISTED, named.queue, "", named.queue))
        for queue, task_ids in tasks.items():
            yield from self._look_at_tasks(queue, task_ids)
        for at in range(0, len(locks), TASKS_A_CALL):
            yield from self._look_at_locks(locks[at : at + TASKS_A_CALL])

    def _look_at_tasks(self, queue: str, task_ids: Sequence[str]) -> Flow[None]:
        try:
            if queue not in self._pending:
                self._pending[queue] = yield from self._read_pending(queue)
            pending = self._pending[queue]
            others = [task_id for task_id in task_ids if task_id.encode("utf-8", "surrogateescape") not in pending.ids]
            at_once = max(1, min(TASKS_A_CALL, SEARCHED_A_CALL // max(1, pending.searched)))
            for at in range(0, len(others), at_once):
                found: list[tuple[str, str]] = yield examine_tasks(
                    queue, others[at : at + at_once], self._scope.now_s(), searched=pending.searched
                )
                for task_id, state in found:
                    kind = Kind.LEFTOVER if state == "none" else Kind.LOST_TASK
                    self._survey.suspect(Suspect(kind, queue, "", task_id, f"says {state or 'nothing'}"))
        except (BrokerConnectionError, BrokerTimeoutError):
            raise
        except BrokerError as error:  # a key of a wrong type, which is told of where it is walked
            self._survey.refused[queue] = str(error)

    def _read_pending(self, queue: str) -> Flow[_Pending]:
        """Read the ids of pending, from the newest on: what comes meanwhile is asked for by its id."""
        found = _Pending(set(), MAX_SEARCHED)
        most = MAX_SEARCHED if self._scope.limit is None else min(MAX_SEARCHED, self._scope.limit)
        start = 0
        while start < most:
            ids: list[bytes] = yield list_ids_newest_first(queue, TaskState.PENDING, "", start, IDS_A_CALL)
            found.ids.update(ids)
            start += len(ids)
            if len(ids) < IDS_A_CALL:
                return found._replace(searched=2 * start + IDS_A_CALL)
        self._survey.is_partial = True
        return _Pending(set(), 0)

    def _look_at_locks(self, locks: Sequence[NamedKey]) -> Flow[None]:
        owners = yield from together(*(examine_lock(named.queue, named.key) for named in locks))
        for named, owner in zip(locks, owners, strict=True):
            if owner is not None:
                self._survey.suspect(Suspect(Kind.LOST_LOCK, named.queue, "", named.key, f"of {owner}"))

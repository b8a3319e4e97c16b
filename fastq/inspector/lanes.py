"""The inspector's methods for lanes: why their tasks wait, their limits, and their pauses."""

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from fastq.broker.inspect.lanes import LaneRow, LaneRows, NamePage, read_lanes, scan_lanes, scan_limits
from fastq.broker.inspect.queues import group_sizes
from fastq.broker.operation import Flow, Wait
from fastq.broker.operations.limits import Change, change_limit, set_limit
from fastq.common.clock import at_unix_ns
from fastq.errors import LaneStateError
from fastq.inspector.checks import MAX_PAGE_SIZE, check_count, check_queue, check_timeout
from fastq.inspector.driver import Driver, action, operation
from fastq.inspector.records import LaneInfo, LaneState, PoolInfo
from fastq.wire.limit import EACH_LANE, WHOLE_QUEUE, Limit, Rule, check_limited, check_shown, pool_of, read_rule

LANES_A_CALL: Final = 100
LOOK_EVERY_S: Final = 0.25
_CURSOR: Final = re.compile(r"([rl]):([0-9]{1,20})", re.ASCII)
_NO_RULE: Final = Rule(None, False)


class LaneMethods(Driver):
    """The inspector's methods for lanes."""

    @operation
    def lanes(self, queue: str, *, cursor: str = "", page_size: int = 100) -> Flow[tuple[list[LaneInfo], str]]:
        """Read about ``page_size`` of a queue's lanes, and the cursor of the next page, "" after the last one.

        Lanes with limits of their own come first, with "*" and pools among them. Other lanes that have tasks follow. If
        lanes change meanwhile, a lane may appear twice. A queue without limits has no lanes.
        """
        found = _CURSOR.fullmatch(cursor or "r:0")
        if found is None or int(found[2]) >= 2**64:
            raise ValueError(f"cursor must be that of the page before, not {cursor!r}")
        queue, most = check_queue(queue), check_count(page_size, "page_size", MAX_PAGE_SIZE)
        infos: list[LaneInfo] = []
        phase, at = found[1], found[2]
        while True:
            scan = scan_limits if phase == "r" else scan_lanes
            page: NamePage = yield scan(queue, at, min(most, LANES_A_CALL))
            infos += yield from _read(queue, page.names, with_rule=phase == "r")
            if page.cursor != "0":
                at = page.cursor
            elif phase == "r":
                phase, at = "l", "0"
            else:
                return infos, ""
            if len(infos) >= most:
                return infos, f"{phase}:{at}"

    @operation
    def get_lane(self, queue: str, lane: str | None) -> Flow[LaneInfo]:
        """Describe a lane, "*", a pool such as "openai:*", or with None the queue as a whole."""
        (info,) = yield from _read(check_queue(queue), [check_shown(lane)])
        return info

    @operation
    def pools(self, queue: str) -> Flow[list[PoolInfo]]:
        """Count the tasks in the lanes of each pool that has a limit; "" is for all other lanes. A queue without limits
        has no pools.
        """
        waiting = yield from _by_pool(check_queue(queue))
        infos = yield from _read(queue, sorted(pool for pool in waiting if pool))
        running = {info.lane: info.running for info in infos}
        return [PoolInfo(queue, pool.removesuffix(":*"), size, running.get(pool)) for pool, size in waiting.items()]

    @operation
    def drain_lane(
        self,
        queue: str,
        lane: str,
        *,
        timeout: float | timedelta | None = None,
        progress: Callable[[LaneInfo], object] | None = None,
    ) -> Flow[LaneInfo]:
        """Wait until a lane has no waiting tasks, and no running tasks that hold a place; returns the lane as it is
        then. The wait also ends after the ``timeout``, and if the lane is paused. It does not wait for scheduled tasks
        and retries, nor for running tasks of a lane without a ``concurrency``, which hold no places. ``progress`` is
        called after each reading of the lane, and may end the wait by raising.
        """
        timeout_s = math.inf if timeout is None else check_timeout(timeout)
        began_s, names = time.monotonic(), [check_shown(lane)]
        check_queue(queue)
        while True:
            (info,) = yield from _read(queue, names)
            if progress is not None:
                progress(info)
            is_over = time.monotonic() - began_s >= timeout_s or info.state is LaneState.PAUSED
            if is_over or (not info.waiting and not info.running):
                return info
            yield Wait(LOOK_EVERY_S)

    @action
    def set_limit(self, queue: str, lane: str | None, limit: Limit | None) -> Flow[bool]:
        """Set the limit of a lane, of "*", a pool or the queue, as ``Client.set_limit`` does; None removes it.

        Returns False if there was no limit to remove. A paused lane remains paused.
        """
        name = check_limited(lane, limit)
        if limit is None:
            return change_limit(check_queue(queue), name, Change.REMOVE)
        return set_limit(check_queue(queue), name, limit)

    @action
    def pause_lane(self, queue: str, lane: str) -> Flow[None]:
        """Pause a lane or a pool, or with "*" all lanes without limits of their own: servers start no more of their
        tasks. ``LaneStateError`` if it is paused already.
        """
        return _pause(queue, lane, Change.PAUSE)

    @action
    def resume_lane(self, queue: str, lane: str) -> Flow[None]:
        """Undo ``pause_lane``; ``LaneStateError`` if this very name is not paused."""
        return _pause(queue, lane, Change.RESUME)


def _limited(queue: str) -> Flow[set[str]]:
    """Return all names that have rules."""
    names: set[str] = set()
    cursor = "0"
    while True:
        page: NamePage = yield scan_limits(queue, cursor, LANES_A_CALL)
        names.update(page.names)
        cursor = page.cursor
        if cursor == "0":
            return names


def _by_pool(queue: str) -> Flow[dict[str, int]]:
    """Count the tasks that wait in lanes, by pool; "" is for lanes whose pool has no rule."""
    names = yield from _limited(queue)
    if not names:
        return {}
    pools = {name for name in names if name.endswith(":*")}
    waiting = dict.fromkeys(("", *sorted(pools)), 0)
    for lane, size in (yield from group_sizes(queue)).items():
        pool = pool_of(lane) if pool_of(lane) in pools else ""
        if pool or lane in names or EACH_LANE in names:
            waiting[pool] += size
    return waiting


def waiting_in_lanes(queue: str) -> Flow[int]:
    """Count the tasks that wait in lanes."""
    return sum((yield from _by_pool(queue)).values())


def _pause(queue: str, lane: str, change: Change) -> Flow[None]:
    check_queue(queue)
    if lane is None:
        raise TypeError("lane must be a str, not None; pause_queue pauses a queue as a whole")
    if not (yield from change_limit(queue, check_limited(lane), change)):
        raise LaneStateError(queue, lane, paused=change is Change.PAUSE)


def _read(queue: str, names: Sequence[str], *, with_rule: bool | None = None) -> Flow[list[LaneInfo]]:
    """Describe the named lanes: all, only those with a rule of their own, or only those without.

    If ``with_rule`` is given, groups that are not lanes are left out.
    """
    infos: list[LaneInfo] = []
    for at in range(0, len(names), LANES_A_CALL):
        some = names[at : at + LANES_A_CALL]
        asked = list(dict.fromkeys((*some, *_ALL_LANES, "", *map(pool_of, some))))
        rows: LaneRows = yield read_lanes(queue, [(name, _waits_for(name)) for name in asked])
        look = _Look(queue, rows, dict(zip(asked, rows.rows, strict=True)))
        infos += [look.at(name) for name in some if with_rule is None or look.is_of_its_own(name) == with_rule]
    return infos


def _waits_for(name: str) -> str:
    return "" if name.endswith(":*") else pool_of(name).removesuffix(":*")


class _Wait(NamedTuple):
    """Why tasks wait, until when, and because of which lane, pool or queue. If there are several waits, the maximum
    counts.
    """

    rank: int
    until_us: float
    by: str


_RANKS: Final = (LaneState.READY, LaneState.RATE, LaneState.FULL, LaneState.PAUSED)
_ALL_LANES: Final = (EACH_LANE, WHOLE_QUEUE)


class _Look:
    """Lanes at one moment."""

    def __init__(self, queue: str, rows: LaneRows, row_of: Mapping[str, LaneRow]) -> None:
        self._queue = queue
        self._rows = rows
        self._row_of = row_of

    def at(self, name: str) -> LaneInfo:
        """Describe a lane, a pool, "*", or the queue as a whole."""
        row, limit = self._row_of[name], self._rule(name).limit
        levels = (WHOLE_QUEUE, name, pool_of(name))
        wait = max([wait for level in dict.fromkeys(levels) if (wait := self._wait(level))], default=_Wait(0, 0.0, ""))
        state = _RANKS[wait.rank]
        is_full_itself = _is_wide(name) and state is LaneState.FULL and wait.by == name
        if not row.waiting and state is not LaneState.PAUSED and not is_full_itself:
            state = LaneState.IDLE
        is_closed = state in (LaneState.RATE, LaneState.FULL, LaneState.PAUSED)
        holders = self._row_of[wait.by].holders if state is LaneState.FULL else []
        lost = [task_id for task_id, until_s in holders if until_s is not None and until_s * 1e6 < self._rows.now_us]
        full = self._rule(wait.by).limit
        is_sequence = full is not None and full.order == "strict"
        return LaneInfo(
            queue=self._queue,
            lane=name,
            waiting=row.waiting,
            running=self._running(name) if limit is not None and limit.concurrency else None,
            limit=limit,
            has_own_limit=_rule_of(row).limit is not None,
            state=state,
            by=wait.by if is_closed else "",
            until=_time(wait.until_us) if state is LaneState.RATE else None,
            holders=tuple(task_id for task_id, _ in holders),
            lost_holders=tuple(lost),
            retried_holders=tuple(task_id for task_id, until_s in holders if is_sequence and until_s is None),
        )

    def is_of_its_own(self, name: str) -> bool | None:
        """Return whether a lane has a rule of its own; None if no rule applies, so that it is an ordinary group."""
        if self._row_of[name].rule:
            return True
        return False if self._row_of[EACH_LANE].rule or self._row_of[pool_of(name) or EACH_LANE].rule else None

    def _rule(self, name: str) -> Rule:
        """Return the rule for a name: its own rule, or that of "*" for a lane without a limit of its own."""
        own = _rule_of(self._row_of[name])
        if own.limit is not None or _is_wide(name):
            return own
        each = _rule_of(self._row_of[EACH_LANE])
        return Rule(each.limit, own.is_paused or each.is_paused)

    def _running(self, name: str) -> int:
        return self._rows.running if name == WHOLE_QUEUE else self._row_of[name].running

    def _wait(self, name: str) -> _Wait | None:
        """Return why a lane, a pool or the queue makes tasks wait; None if it makes none wait."""
        limit, is_paused = self._rule(name)
        row, now_us = self._row_of[name], self._rows.now_us
        if is_paused or (name == WHOLE_QUEUE and self._rows.is_paused):
            return _Wait(_RANKS.index(LaneState.PAUSED), 0.0, name)
        if limit is not None and limit.concurrency and self._running(name) >= limit.concurrency:
            return _Wait(_RANKS.index(LaneState.FULL), 0.0, name)
        until_us = row.turn_us or 0.0
        if limit is not None and limit.rate and row.arrival_us:
            token_us = row.arrival_us - (limit.burst - 1) * limit.interval_us
            # A token that is further away than one interval was computed under an earlier limit; take.lua ignores it.
            until_us = max(until_us, token_us if token_us <= now_us + limit.interval_us else 0.0)
        return _Wait(_RANKS.index(LaneState.RATE), until_us, name) if until_us > now_us else None


def _is_wide(name: str) -> bool:
    return name in _ALL_LANES or name.endswith(":*")


def _rule_of(row: LaneRow) -> Rule:
    return read_rule(row.rule) or _NO_RULE


def _time(unix_us: float) -> datetime:
    return at_unix_ns(int(unix_us) * 1_000)

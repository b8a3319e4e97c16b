"""What is promised of lanes: limits are never exceeded, no lane idles, and nothing of them is left."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from tests.simulation.happenings import (
    Acted,
    Changing,
    Collected,
    InRedis,
    Laned,
    Left,
    Limited,
    Placed,
    Rested,
    Switched,
    Waiting,
)
from tests.simulation.judge import CHILDREN, DEATHS, DONE, History

H = TypeVar("H", bound=Any)

TO_THE_US: Final = 2e-6
IDLE_S: Final = 6.0
"""The longest that a lane with work and free places idles while nothing fails: a full one is looked at each 5 s."""
AFTER_A_DEATH_S: Final = 130.0
"""The same beside a server that ended or was cut off: a lost lease ends, and somebody looks for it."""
AFTER_A_LOSS_S: Final = 45.0
"""The same beside other faults."""
UNHEARD_S: Final = 12.0
"""Until so long after it was cut off a server may take what waits outside of lanes as if the queue had no limits."""
QUEUE: Final = "low"
LOOK_EVERY_S: Final = 0.5


def pool_of(lane: str) -> str:
    return lane.partition(":")[0] + ":*" if ":" in lane else ""


def _with_lanes(history: History, happened: Iterable[H]) -> Iterator[tuple[H, str]]:
    """Yield what happened to tasks of lanes, each with its lane."""
    lane_of = {one.id: one.lane for one in history.all_of(Laned)}
    for one in happened:
        if lane_of.get(one.id):
            yield one, lane_of[one.id]


class Level:
    """A lane or a pool, as its limits leave it."""

    def __init__(self) -> None:
        self.counted: set[str] = set()
        """The tasks that have places: those that were taken while it had a concurrency."""
        self.arrival_s = 0.0
        """When the next token would come without a burst, at the earliest: takes under another limit do not count."""
        self.latest_s = 0.0
        """The same at the latest: what was taken before may count, but a change holds at once."""


def _comes_again(history: History) -> Iterator[Placed]:
    """Yield the ends of leases after which the same Redis gives the task to somebody once more."""
    later: set[str] = set()
    for one in reversed(history.lanes):
        match one:
            case Switched():
                later.clear()  # an end that was lost is no reason to wait before
            case Placed(is_taken=True):
                later.add(one.id)
            case Placed() if one.id in later:
                yield one


class Lanes:
    """What Redis has of lanes, as one thing happens after the other."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.lane_of = {one.id: one.lane for one in history.all_of(Laned)}
        self.by_hand = {one.id for one in history.all_of(Acted) if one.what == "run"}
        self.limits: dict[str, Limited] = {}
        self.levels: defaultdict[str, Level] = defaultdict(Level)
        self.leased: set[str] = set()
        self.switched_s = -1.0
        self.begun: defaultdict[str, set[str]] = defaultdict(set)
        """Of each sequence, the tasks that were taken and have not ended: they run, or will be taken again."""
        self.earlier: set[str] = set()
        """Tasks that were taken while their lane was no sequence: such a one may come back before its tasks."""
        self.comes_again = set(_comes_again(history))

    def limit_of(self, level: str) -> Limited | None:
        """Return the limit of a lane or pool: its own, or of a lane without one that of each."""
        return self.limits.get(level) or (None if level.endswith(":*") else self.limits.get("*"))

    def order_of(self, lane: str) -> str | None:
        """Return the order of a lane; a rule that only pauses it leaves that of each lane in force."""
        own, each = self.limits.get(lane), self.limits.get("*")
        rule = each if own is None or own.order is None else own
        return rule and rule.order

    def names_of(self, task_id: str) -> tuple[str, ...]:
        """Return the names of a task's lane and pool."""
        lane = self.lane_of.get(task_id, "")
        return tuple(filter(None, (lane, pool_of(lane))))

    def happen(self, one: InRedis) -> Iterator[str]:
        """Take what happened, and yield what it breaks."""
        match one:
            case Limited():
                self._set(one)
            case Switched():  # takes of the former master may be lost
                self.switched_s = one.at_s
                self.begun.clear()
                for level in self.levels.values():
                    level.arrival_s = 0.0
            case Placed(is_taken=False):
                self._freed(one)
            case Placed() if one.at_s == self.switched_s:
                self.leased.add(one.id)  # its end is lost
            case Placed():
                yield from self._taken(one)

    def _freed(self, one: Placed) -> None:
        self.leased.discard(one.id)
        if one not in self.comes_again:
            self.begun[self.lane_of.get(one.id, "")].discard(one.id)
        for level in self.levels.values():
            level.counted.discard(one.id)

    def _taken(self, one: Placed) -> Iterator[str]:
        self.leased.add(one.id)
        for name in () if one.id in self.by_hand else self.names_of(one.id):
            yield from self._take(name, one)
            if self.order_of(name) == "strict":
                self.begun[name].add(one.id)
            elif name == self.lane_of[one.id]:
                self.earlier.add(one.id)
        whole = self.limits.get("")
        if whole and 0 < whole.concurrency < len(self.leased) and not self._may_be_unheard(one.at_s):
            yield f"{one.id} is one of {len(self.leased)} at {one.at_s:.3f}, of {whole.concurrency} in all"

    def _may_be_unheard(self, at_s: float) -> bool:
        """Return whether a server may not have heard yet that the queue has limits: it was cut off when they came."""
        cut_off = (one for one in self.history.struck if one.kind not in ("pause", "kill", "stop"))
        return any(one.at_s <= at_s <= one.until_s + UNHEARD_S for one in cut_off)

    def _set(self, one: Limited) -> None:
        before = dict(self.limits)
        if one.is_there:
            self.limits[one.name] = one
        else:
            self.limits.pop(one.name, None)
        for lane in [lane for lane in self.begun if self.order_of(lane) != "strict"]:
            self.earlier |= self.begun.pop(lane)
        for name, level in self.levels.items():
            was, now = before.get(name) or before.get("*"), self.limit_of(name)
            if (was and (was.interval_s, was.burst)) != (now and (now.interval_s, now.burst)):
                level.arrival_s = 0.0
                level.latest_s = min(level.latest_s, one.at_s + now.burst * now.interval_s) if now else 0.0

    def _take(self, name: str, one: Placed) -> Iterator[str]:
        limit, level = self.limit_of(name), self.levels[name]
        if limit is None:
            return
        if limit.is_paused:
            yield f"{one.id} was taken at {one.at_s:.3f}, while {name} was paused"
        if limit.concurrency:
            level.counted.add(one.id)
            if len(level.counted) > limit.concurrency:
                held = " ".join(sorted(level.counted))
                yield f"{name} has {len(level.counted)} at {one.at_s:.3f}, of {limit.concurrency}: {held}"
        if limit.interval_s:
            level.arrival_s = max(level.arrival_s, one.at_s)
            early_s = level.arrival_s - one.at_s - (limit.burst - 1) * limit.interval_s
            level.arrival_s += limit.interval_s
            level.latest_s = max(level.latest_s, one.at_s) + limit.interval_s
            if early_s > TO_THE_US:
                yield f"{one.id} was taken at {one.at_s:.3f}, {early_s:.6f} s before {name} had a token"


def lane_limits(history: History) -> Iterator[str]:
    """No lane, pool or queue has more tasks at once than its concurrency, or starts them faster than its rate."""
    lanes = Lanes(history)
    for one in history.lanes:
        yield from lanes.happen(one)


def rests(history: History) -> Iterator[str]:
    """A lane that is to rest starts nothing, until its limits change."""
    lane_of = {one.id: one.lane for one in history.all_of(Laned)}
    by_hand = {one.id for one in history.all_of(Acted) if one.what == "run"}
    asked = {(one.id, one.at_s): one.after_s for one in history.all_of(Rested)}
    resting: dict[str, tuple[float, str]] = {}
    is_changing = False
    for one in history.lanes:
        match one:
            case Limited() | Switched():
                resting.clear()
            case Changing():
                is_changing = one.is_on
                resting.clear()
            case Placed(is_taken=False):
                ended_s = max((at_s for name, at_s in asked if name == one.id and at_s <= one.at_s), default=-1.0)
                runs = [run for run in history.runs.get(one.id, ()) if run.ended_s == ended_s]
                # What ends in time was written by its own server, and not by whoever looks for lost ones.
                if runs and one.at_s - ended_s < 2.0 and not history.may_be_unwritten(runs[0]):
                    until_s = one.at_s + asked.pop((one.id, ended_s))
                    lane = lane_of[one.id]
                    resting[lane] = max(resting.get(lane, (0.0, "")), (until_s, one.id))
            case Placed() if one.id in lane_of and one.id not in by_hand and not is_changing:
                until_s, by = resting.get(lane_of[one.id], (0.0, ""))
                if one.at_s < until_s - TO_THE_US:
                    yield f"{one.id} was taken at {one.at_s:.3f}, though {by} lets its lane rest until {until_s:.3f}"


class Idle:
    """For how long each lane has had work that could be taken, and nobody took it; looked at twice a second."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.lanes = Lanes(history)
        self.waiting: dict[str, tuple[str, ...]] = {}
        self.since_s: dict[str, float] = {}
        self.idle_s: defaultdict[str, float] = defaultdict(float)
        self._runs = [run for runs in history.runs.values() for run in runs]
        self._servers = {run.server for run in self._runs}
        self._rests = [(lane, one.at_s + one.after_s) for one, lane in _with_lanes(history, history.all_of(Rested))]

    def happen(self, one: InRedis) -> None:
        """Take what happened; a lane that is served, or has nothing left, idles no more."""
        list(self.lanes.happen(one))
        match one:
            case Waiting():
                self.waiting[one.lane] = one.ids
                if not one.ids:
                    self.idle_s.pop(one.lane, None)
            case Placed(is_taken=True):
                self.idle_s.pop(self.lanes.lane_of.get(one.id, ""), None)

    def look(self, at_s: float) -> Iterator[str]:
        """Look at all lanes that have tasks, at a time; yield those that have idled for too long."""
        can_work = self._has_a_child(at_s)
        for lane, ids in self.waiting.items():
            if not ids or not self._is_open(lane, at_s):
                self.idle_s.pop(lane, None)
            elif can_work:
                if lane not in self.idle_s:
                    self.since_s[lane] = at_s
                self.idle_s[lane] += LOOK_EVERY_S
                if self.idle_s[lane] > self._longest_s(self.since_s[lane], at_s):
                    self.idle_s[lane] = -1e9
                    since_s = self.since_s[lane]
                    yield f"{lane} may start one of {len(ids)} tasks, and idled from {since_s:.1f} to {at_s:.1f}"

    def _is_open(self, lane: str, at_s: float) -> bool:
        whole, leased = self.lanes.limits.get(""), self.lanes.leased
        if whole and 0 < whole.concurrency <= len(leased):
            return False
        if any(one == lane and at_s <= until_s for one, until_s in self._rests):
            return False
        for name in filter(None, (lane, pool_of(lane))):
            limit = self.lanes.limit_of(name)
            held = sum(name in self.lanes.names_of(one) for one in leased)
            held = max(held, len(self.lanes.begun[name]))
            if limit and (limit.is_paused or 0 < limit.concurrency <= held):
                return False
            if limit and at_s < self.lanes.levels[name].latest_s - (limit.burst - 1) * limit.interval_s:
                return False
        return True

    def _has_a_child(self, at_s: float) -> bool:
        """Return whether the queue goes on, and a server that is well has nothing to do for one of its children."""
        if any(one.who == QUEUE and one.at_s <= at_s <= one.until_s for one in self.history.struck):
            return False
        for server in self._servers:
            busy = sum(run.server == server and run.began_s <= at_s < run.ended_s for run in self._runs)
            if busy < CHILDREN and not self.history.is_struck(server, at_s, at_s):
                return True
        return False

    def _longest_s(self, since_s: float, until_s: float) -> float:
        near = [
            one
            for one in self.history.struck
            if one.kind != "pause" and one.at_s <= until_s and one.until_s >= since_s - AFTER_A_DEATH_S
        ]
        if not near:
            return IDLE_S
        longest_s = AFTER_A_DEATH_S if any(one.kind in DEATHS for one in near) else AFTER_A_LOSS_S
        return longest_s + sum(one.until_s - one.at_s for one in near)


def idle(history: History) -> Iterator[str]:
    """No lane with work, free places and tokens idles while a server has nothing to do, longer than causes explain."""
    found, next_s = Idle(history), 0.0
    for one in history.lanes:
        while next_s < one.at_s:
            yield from found.look(next_s)
            next_s += LOOK_EVERY_S
        found.happen(one)


def combined(history: History) -> Iterator[str]:
    """A task of a lane is never combined; one that was sent as a group may be while no limit makes that a lane."""
    of_lanes = {one.id: one for one in history.all_of(Laned)}
    for made in history.all_of(Collected):
        for one in (of_lanes[member] for member in made.members if member in of_lanes):
            if one.is_own:
                yield f"{one.id} of the lane {one.lane} was combined into {made.id}"
            elif any(run.kind in DONE for run in history.runs.get(one.id, ())) and one.id not in history.rolled_back:
                yield f"{one.id} of the lane {one.lane} ran, and was combined into {made.id}"


def lanes_left(history: History) -> Iterator[str]:
    """At the end no place is held, and nothing of a lane is left but limits."""
    for one in history.all_of(Left):
        yield f"{one.key} is left: {' '.join(one.members)}"

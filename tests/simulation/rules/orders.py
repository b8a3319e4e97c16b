"""In which order the tasks of a lane start: sequences, the oldest, newest or most urgent first, by priority."""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from tests.simulation.happenings import InRedis, Laned, Limited, Placed, Switched, Waiting
from tests.simulation.judge import SKEW_S, History
from tests.simulation.rules.lanes import Lanes

ENQUEUES = "laner"
"""Who enqueues into lanes, one task after the other."""


def sequences(history: History) -> Iterator[str]:
    """A lane in strict order starts no task while one that it has started is not ended."""
    lanes = Lanes(history)
    for one in history.lanes:
        list(lanes.happen(one))
        if not isinstance(one, Placed) or not one.is_taken:
            continue
        lane = lanes.lane_of.get(one.id, "")
        before = lanes.begun[lane] - {one.id}
        if one.id in lanes.begun[lane] - lanes.earlier and before:
            others = " ".join(sorted(before))
            yield f"{one.id} of the sequence {lane} was taken at {one.at_s:.3f}, before the end of {others}"


class Place(NamedTuple):
    """A task that waits in a lane, and since when; None for one whose score may be older."""

    id: str
    since_s: float | None
    nth: int
    """How often it was taken before."""
    is_back: bool
    """It was taken and not run to its end, so it is the next."""


class Orders:
    """Who waits in which lane, as one thing happens after the other."""

    def __init__(self, history: History) -> None:
        self.history, self.lanes = history, Lanes(history)
        self.number = dict(zip((one.id for one in history.all_of(Laned)), count()))
        self.sent = {one.id: one for one in history.all_of(Laned)}
        self.direct = {one.id for one in history.sent.values() if one.due_s == one.at_s}
        self.clocks_s = [(one.who, one.at_s) for one in history.struck if one.kind == "clock"]
        self.waiting: dict[str, dict[str, Place]] = {}
        self.since_s: dict[str, float] = {}
        """When a lane last became, or was no longer, one whose newest or most urgent task is the first."""
        self.taken: dict[str, list[float]] = {}
        self.freed_s: dict[str, float] = {}
        self.moved: set[str] = set()
        """Tasks that somebody has taken out of their lane otherwise."""

    def happen(self, one: InRedis) -> Iterator[str]:
        """Take what happened, and yield what it breaks."""
        before = self._placing()
        list(self.lanes.happen(one))
        match one:
            case Limited():
                self.since_s |= {lane: one.at_s for lane, order in self._placing().items() if before[lane] != order}
            case Switched():
                self.waiting = {
                    lane: {task_id: place._replace(since_s=None) for task_id, place in places.items()}
                    for lane, places in self.waiting.items()
                }
            case Placed(is_taken=True):
                self.taken.setdefault(one.id, []).append(one.at_s)
            case Placed() if one.at_s != self.lanes.switched_s:  # what lost its take with a master did not come back
                self.freed_s[one.id] = one.at_s
            case Waiting():
                yield from self._changes(one)

    def _placing(self) -> dict[str, str]:
        """Return the orders of lanes in which tasks are placed otherwise."""
        orders = {lane: self.lanes.order_of(lane) or "" for lane in self.waiting}
        return {lane: order if order in ("lifo", "deadline") else "" for lane, order in orders.items()}

    def _changes(self, one: Waiting) -> Iterator[str]:
        before = self.waiting.get(one.lane, {})
        still = [place for task_id, place in before.items() if task_id in one.ids]
        for place in before.values():
            if place in still:
                continue
            if self.taken.get(place.id, [-1.0])[-1] != one.at_s:
                self.moved.add(place.id)
            elif place.nth == 0:
                for other in still:
                    if why := self._comes_before(other, place, one.lane):
                        yield f"{place.id} was taken from {one.lane} at {one.at_s:.3f}, before {other.id}, {why}"
        self.waiting[one.lane] = {task_id: before.get(task_id) or self._place(task_id, one) for task_id in one.ids}

    def _place(self, task_id: str, one: Waiting) -> Place:
        is_back = self.freed_s.get(task_id) == one.at_s
        return Place(task_id, None if task_id in self.moved else one.at_s, len(self.taken.get(task_id, [])), is_back)

    def _comes_before(self, one: Place, taken: Place, lane: str) -> str:
        """Return why a task that waits should have been taken before one that had not been taken yet; "" if not."""
        if one.since_s is None or taken.since_s is None or min(one.since_s, taken.since_s) < self.since_s.get(lane, 0):
            return ""
        priority, is_lifo = self.sent[one.id].priority, self.lanes.order_of(lane) == "lifo"
        due_s, its_due_s = self.sent[one.id].deadline_s, self.sent[taken.id].deadline_s
        if self.lanes.order_of(lane) == "deadline" and (due_s or its_due_s):
            return self._is_more_urgent(one, taken, lane)
        if priority > self.sent[taken.id].priority:
            return f"which has the priority {priority}"
        if one.is_back and (not is_lifo or (priority == self.sent[taken.id].priority and one.since_s > taken.since_s)):
            return "which had to be the next"
        if priority < self.sent[taken.id].priority:
            return ""
        return (
            "which is newer"
            if is_lifo and self._is_older(taken, one)
            else ("which is older" if not is_lifo and self._is_older(one, taken) else "")
        )

    def _is_more_urgent(self, one: Place, taken: Place, lane: str) -> str:
        """Return why a task comes before another in order of deadlines, one of them with a deadline; "" if not."""
        if one.is_back:
            return "which had to be the next"
        sent, others = self.sent[one.id], self.sent[taken.id]
        # Whoever was sent before may have been placed, and may come back, as one without a deadline.
        if min(sent.at_s, others.at_s) < self.since_s.get(lane, 0) or sent.deadline_s is None:
            return ""
        is_first = others.deadline_s is None or sent.deadline_s < others.deadline_s
        return "whose deadline is earlier" if is_first else ""

    def _is_older(self, one: Place, other: Place) -> bool:
        """Return whether a task surely came before another: both from one producer, or one some time before."""
        assert one.since_s is not None
        assert other.since_s is not None
        if not one.nth and not other.nth and {one.id, other.id} <= self.direct:
            until_s = max(one.since_s, other.since_s)
            has_jumped = any(who == ENQUEUES and at_s <= until_s for who, at_s in self.clocks_s)
            return not has_jumped and self.number[one.id] < self.number[other.id]
        is_quiet = not self.clocks_s and self.history.is_quiet(one.since_s, other.since_s)
        return is_quiet and one.since_s + SKEW_S < other.since_s


def orders(history: History) -> Iterator[str]:
    """A lane starts tasks of a higher priority first, of equals the first or the newest; or the most urgent first."""
    found = Orders(history)
    for one in history.lanes:
        yield from found.happen(one)

"""What MONITOR tells of a queue with lanes: how many tasks ran at once, how long a lane idled, whether rates were kept.

A task runs while its hash says ``active``: asynq's states are the witness, not what fastq keeps about places. So the
task of a dead server runs until somebody takes it over. Ids are ``lane/number``; the number says nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

WHOLE: Final = ""
"""The queue as a whole. A pool is named as its limit is: ``p:*``."""
PLAIN: Final = "-"
"""Stands for the lane of tasks that have none."""
EACH: Final = "*"
BIG: Final = "big"
SINGLE: Final = "one-"
"""How the lanes begin that get one task, while many wait in BIG."""

_LINE: Final = re.compile(r'^\+?(\d+\.\d+) \[\d+ lua\] "(HSET|DEL|UNLINK|TIME)"')
_WORD: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Rule:
    """A limit; 0 is none."""

    most: int = 0
    interval_s: float = 0.0
    burst: int = 1


@dataclass
class Level:
    """A lane, a pool, or the queue, and the worst that was seen of it; times are in seconds."""

    rule: Rule
    waiting: int = 0
    running: int = 0
    starts: int = 0
    peak: int = 0
    idle: float = 0.0
    without_start: float = 0.0
    ahead: float = 0.0
    big_before: int = 0
    open_since: float | None = None
    waits_since: float | None = None
    arrival: float = 0.0

    def has_room(self) -> bool:
        """Return whether one more may run."""
        return not self.rule.most or self.running < self.rule.most

    def earliest(self) -> float:
        """Return when its rate lets the next task start."""
        return self.arrival - (self.rule.burst - 1) * self.rule.interval_s

    def close(self, now: float) -> None:
        """Note how long it could have started a task, and did not."""
        if self.open_since is not None:
            self.idle = max(self.idle, now - max(self.open_since, self.earliest()))
            self.open_since = None

    def start(self, now: float, called: float) -> None:
        """Note a start, in a script that read its clock at ``called``."""
        self.starts += 1
        self.close(now)
        if self.waits_since is not None:
            self.without_start = max(self.without_start, now - self.waits_since)
            self.waits_since = now
        if self.rule.interval_s:
            self.ahead = max(self.ahead, self.earliest() - called)
            self.arrival = max(self.arrival, called) + self.rule.interval_s


class Account:
    """Hear the lines of MONITOR about one queue."""

    def __init__(self, queue: str, rules: Mapping[str, Rule], waiting: Mapping[str, int]) -> None:
        self._prefix, self._rules = f"asynq:{{{queue}}}:t:", rules
        self.levels: dict[str, Level] = {}
        self.done: set[str] = set()
        self._states: dict[str, str] = {}
        self._called = self._big_called = 0.0
        for lane, count in waiting.items():
            self._level(lane).waiting = count

    def _level(self, name: str) -> Level:
        if name not in self.levels:
            is_lane = name not in (WHOLE, PLAIN) and not name.endswith(":*")
            self.levels[name] = Level(self._rules.get(name, self._rules[EACH] if is_lane else Rule()))
        return self.levels[name]

    def _of(self, lane: str) -> list[Level]:
        """Return a lane, its pool, and the queue."""
        pool = [f"{lane.partition(':')[0]}:*"] if ":" in lane else []
        return [self._level(one) for one in (lane, *pool, WHOLE)]

    def hear(self, line: str) -> None:
        """Take in one line."""
        head = _LINE.match(line)
        if not head:
            return
        now, words = float(head[1]), _WORD.findall(line)[1:]
        if head[2] == "TIME":
            self._called = now
            return
        ids = [one.removeprefix(self._prefix) for one in words if one.startswith(self._prefix)]
        if head[2] != "HSET":
            for one in ids:
                self._states.setdefault(one, "aggregating")  # it waited when this began
                self._become(one, "gone", now)
        elif ids:
            fields = dict(zip(words[1::2], words[2::2], strict=True))
            if ids[0] not in self._states and "msg" not in fields:
                self._states[ids[0]] = "aggregating"  # it waited when this began
            if "state" in fields:
                self._become(ids[0], fields["state"], now)

    def _become(self, task_id: str, state: str, now: float) -> None:
        name, before = task_id.rpartition("/")[0], self._states.get(task_id, "gone")
        self._states[task_id] = state
        levels = self._of(name)
        levels[0].waiting += (state == "aggregating") - (before == "aggregating")
        for level in levels:
            level.running += (state == "active") - (before == "active")
            level.peak = max(level.peak, level.running)
        if state == "active":
            levels[0].start(now, self._called)
            if name == BIG and self._called != self._big_called:
                self._big_called = self._called
                for lane, single in self.levels.items():
                    single.big_before += lane.startswith(SINGLE) and not single.starts
        elif state == "gone" and before == "active":
            self.done.add(task_id)
        self._look(now)

    def _look(self, now: float) -> None:
        """Note which lanes could start a task."""
        for name, lane in [*self.levels.items()]:
            if name in (WHOLE, PLAIN) or name.endswith(":*"):
                continue
            if lane.waiting and all(level.has_room() for level in self._of(name)):
                lane.open_since = now if lane.open_since is None else lane.open_since
            else:
                lane.close(now)
            if not lane.waiting:
                lane.waits_since = None
            elif lane.waits_since is None:
                lane.waits_since = now

    def exceeded(self) -> list[str]:
        """Return the limits that did not hold."""
        found = [(name, level) for name, level in self.levels.items() if level.rule.most]
        return [f"{name or 'queue'}: {one.peak} > {one.rule.most}" for name, one in found if one.peak > one.rule.most]

"""Chooses the next operation: at random, and more often than not what was not reached often enough."""

from collections import Counter
from collections.abc import Generator as Iteration
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from tests.interop.differential.goal import OK, Goal
from tests.interop.differential.goals import all_goals
from tests.interop.differential.operation import BEGIN, CANCEL, END, Operation
from tests.interop.differential.state import State

ENOUGH_OK, ENOUGH_OTHER = 200, 20
TO_WHAT_IS_MISSING = 0.75
"""How often an operation is made because it was not made often enough yet."""
LAG: Final = 3
"""Power of the share of a goal that is missing: the rarest come first where they can be made, and all end together."""

STEPS = 80
"""Of a sequence."""
Reached = Counter[tuple[str, str]]
Steps = Iteration[Sequence[Operation], State, None]


class Goals:
    """The goals, how often each was reached, and how many times each is missing; others may have their shares."""

    def __init__(self, goals: Sequence[Goal], shares: int = 1) -> None:
        self.goals = goals
        self.reached: Reached = Counter()
        self._missing = {goal: _enough(goal) / shares for goal in goals}
        self._named = {(goal.name, goal.ending): goal for goal in goals}
        assert len(self._named) == len(goals)

    def count(self, name: str, ending: str) -> None:
        """Count an operation that ended in one way, whether that is a goal or not."""
        self.reached[name, ending] += 1
        goal = self._named.get((name, ending))
        if goal in self._missing:
            self._missing[goal] -= 1
            if self._missing[goal] <= 0:
                del self._missing[goal]

    def missing(self) -> Mapping[Goal, float]:
        """Return the goals not reached often enough, and how many times each is missing."""
        return self._missing


class Generator(Goals):
    """Choose by a seed and by what the state allows; of what is to be reached, others may have their shares.

    A seed makes the same sequences again but where tasks come in the order of whole seconds, which pass as they do.
    """

    def __init__(self, seed: int, shares: int = 1) -> None:
        super().__init__(all_goals(), shares)
        self._rng = Random(seed)
        self._any_time = {goal: _usual_weight(goal) for goal in self.goals}

    def next(self, state: State) -> Operation:
        """Return an operation that can be made; most are for what is missing most."""
        made = None
        if self._rng.random() < TO_WHAT_IS_MISSING:
            made = self._made(self._lag(), state)
        made = made or self._made(self._any_time, state)
        assert made is not None, "some can be made in any state"
        return made

    def _lag(self) -> Mapping[Goal, float]:
        """Weigh what is missing; a begin stands for all that can be done only while a handler has a task, too."""
        lag = {goal: (count / _enough(goal)) ** LAG for goal, count in self.missing().items()}
        begin = self._named[BEGIN, OK]
        lag[begin] = lag.get(begin, 0.0) + sum(weight for goal, weight in lag.items() if _needs_handler(goal))
        return lag

    def _made(self, weighted: Mapping[Goal, float], state: State) -> Operation | None:
        goals, weights = list(weighted), list(weighted.values())
        while any(weights):
            (index,) = self._rng.choices(range(len(goals)), weights)
            operation = goals[index].build(state, self._rng)
            if operation is not None:
                return operation
            weights[index] = 0.0
        return None

    def sequence(self) -> Steps:
        """Yield what to do next, and be sent what is there after it."""
        state = State()
        for _ in range(STEPS):
            state = yield [self.next(state)]
        if last := self.last(state):
            yield [last]

    def coin(self) -> bool:
        """Choose between two ways to the same."""
        return self._rng.random() < 0.5

    def last(self, state: State) -> Operation | None:
        """Return what must be done before a sequence may end: no task stays with a handler."""
        endings = [goal for goal in self.goals if goal.name.startswith("end_") and goal.name.count("_") == 1]
        return self._rng.choice(endings).build(state, self._rng)


def _enough(goal: Goal) -> int:
    return ENOUGH_OK if goal.ending == OK else ENOUGH_OTHER


def _needs_handler(goal: Goal) -> bool:
    return goal.name.startswith((f"{END}_", "list_active")) or goal.name == CANCEL


def _usual_weight(goal: Goal) -> float:
    """Let tasks be enqueued and go through handlers, for what can be done to them after that; few are swept away."""
    if goal.ending != OK:
        return 0.2
    kinds = {"enqueue": 6.0, "begin": 40.0, "end": 12.0, "pause": 4.0, "unpause": 20.0}
    return kinds.get(goal.name.split("_")[0], 1.0)

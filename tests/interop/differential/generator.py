"""Chooses the next operation: at random, and more often than not what was not reached often enough."""

from collections import Counter
from collections.abc import Generator as Iteration
from collections.abc import Mapping, Sequence
from random import Random

from tests.interop.differential.goal import OK, Goal
from tests.interop.differential.goals import all_goals
from tests.interop.differential.operation import Operation
from tests.interop.differential.state import State

ENOUGH_OK, ENOUGH_OTHER = 200, 20
TO_WHAT_IS_MISSING = 0.75
"""How often an operation is made because it was not made often enough yet."""

STEPS = 40
"""Of a sequence."""
Reached = Counter[tuple[str, str]]
Steps = Iteration[Sequence[Operation], State, None]


class Generator:
    """Choose by a seed and by what the state allows; of what is to be reached, others may have their shares.

    A seed makes the same sequences again but where tasks come in the order of whole seconds, which pass as they do.
    """

    def __init__(self, seed: int, shares: int = 1) -> None:
        self._rng = Random(seed)
        self._shares = shares
        self.goals = all_goals()
        self._any_time = {goal: _usual_weight(goal) for goal in self.goals}
        self.reached: Reached = Counter()

    def next(self, state: State) -> Operation:
        """Return an operation that can be made; most are for what is missing most."""
        goals = self.missing() if self._rng.random() < TO_WHAT_IS_MISSING else {}
        while True:
            if not goals:
                goals = self._any_time
            goal = self._rng.choices(list(goals), list(goals.values()))[0]
            operation = goal.build(state, self._rng)
            if operation is not None:
                return operation
            goals = {each: weight for each, weight in goals.items() if each is not goal}

    def missing(self) -> Mapping[Goal, float]:
        """Return the goals not reached often enough, and how many times each is missing."""
        return lacking(self.goals, self.reached, self._shares)

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


def lacking(goals: Sequence[Goal], reached: Reached, shares: int = 1) -> Mapping[Goal, float]:
    """Return the goals not reached often enough, and how many times each is missing."""
    counts = {goal: _enough(goal) / shares - reached[goal.name, goal.ending] for goal in goals}
    return {goal: count for goal, count in counts.items() if count > 0}


def _enough(goal: Goal) -> int:
    return ENOUGH_OK if goal.ending == OK else ENOUGH_OTHER


def _usual_weight(goal: Goal) -> float:
    """Let tasks be enqueued and go through handlers, for what can be done to them after that; few are swept away."""
    if goal.ending != OK:
        return 0.2
    kinds = {"enqueue": 6.0, "begin": 40.0, "end": 12.0, "unpause": 20.0}
    return kinds.get(goal.name.split("_")[0], 1.0)

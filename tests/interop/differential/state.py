"""What the generator has to know of a database to choose what can succeed, and what must fail."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tests.keyspace import Cells, Place

TASK = re.compile(r"asynq:\{(.*?)\}:t:(.*)", re.DOTALL)
PAUSED = re.compile(r"asynq:\{(.*?)\}:paused")


@dataclass(frozen=True)
class TaskAt:
    """A task: where it is, and in which state."""

    queue: str
    id: str
    state: str
    group: str = ""


@dataclass
class State:
    """The tasks, the queues that are known and that are paused, and all keys, with ``key=state`` of tasks."""

    tasks: list[TaskAt] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)

    def within(self, states: Collection[str]) -> list[TaskAt]:
        """Return the tasks in one of the states, of queues that are known."""
        return [task for task in self.tasks if task.state in states and task.queue in self.queues]

    @property
    def held(self) -> TaskAt | None:
        """The task that a handler has; there is one at most."""
        return next((task for task in self.tasks if task.state == "active"), None)

    def sizes(self, queue: str) -> int:
        return sum(task.queue == queue for task in self.tasks)


def state_of(cells: Cells) -> State:
    """Read it from a snapshot."""
    state = State(keys={place.key for place in cells})
    for (key, part), value in cells.items():
        if part == "state":
            state.keys.add(f"{key}={value}")
            if task := TASK.fullmatch(key):
                state.tasks.append(TaskAt(task[1], task[2], str(value), str(cells.get(Place(key, "group"), ""))))
        elif key == "asynq:queues" and part == "members":
            state.queues = sorted(_texts(value))
        elif part == "string" and (paused := PAUSED.fullmatch(key)):
            state.paused.add(paused[1])
    state.tasks.sort(key=lambda task: (task.queue, task.id))
    return state


def _texts(value: object) -> Iterable[str]:
    assert isinstance(value, tuple)
    return value

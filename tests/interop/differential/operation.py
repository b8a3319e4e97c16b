"""What is done to both sides, as data, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastq.wire import keys
from tests.keyspace import Place

ENQUEUE, BEGIN, END, CANCEL, TEND = "enqueue", "begin", "end", "cancel", "tend"
"""The ``method`` of operations that are no method of the inspector."""


@dataclass(frozen=True)
class Operation:
    """One call: ``name`` counts in the table, ``method`` is what to call with ``args`` and ``options``.

    ``before`` are commands for both databases first: what time would have done to scores, or the death of a server.
    ``gone`` names what must not be there after it: keys, or ``key=state`` of tasks.
    """

    name: str
    method: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[tuple[Any, ...], ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def queue(self) -> str:
        """Name the queue that it is about; "" for those that are about none."""
        match self.method, self.args:
            case "enqueue", _:
                return str(self.options["queue"])
            case "end", ((queue, _), *_):
                return str(queue)
            case "tend", (_, queue, *_):
                return str(queue)
            case _, (queue, *_):
                return str(queue)
        return ""

    @property
    def task_id(self) -> str:
        """Name the task that it is about; "" for those that are about none."""
        match self.method, self.args:
            case "enqueue", _:
                return str(self.options["task_id"])
            case "end", ((_, task_id), *_):
                return str(task_id)
            case _, (_, str(task_id), *_):
                return task_id
        return ""

    @property
    def lock(self) -> str:
        """Name the unique lock that a task to be enqueued asks for."""
        if self.method != ENQUEUE:
            return ""
        type, payload = self.args
        return keys.unique(self.queue, type, payload)

    def concerns(self, place: Place, others: Sequence["Operation"]) -> bool:
        """Return whether a difference is this one's among operations that were made at the same time."""
        return len(others) == 1 or place.key.startswith(keys.queue_prefix(self.queue))

    def __str__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.options.items())]
        first = "".join(f"{' '.join(map(str, command))}; " for command in self.before)
        return f"{self.name}: {first}{self.method}({', '.join(given)})"


@dataclass(frozen=True)
class Outcome:
    """The result of a call as text, or the name of fastq's error class that it raised."""

    value: str = ""
    error: str = ""

    def __str__(self) -> str:
        return self.error or self.value

"""When a group is due, and what an aggregator makes of it; the same for both sides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any, Final

from fastq import Task
from fastq.running import GroupedTask

NO_TASK: Final = "NoTask"
"""The aggregator returned none; fastq has no class for that."""
TYPE: Final = "whole"


@dataclass(frozen=True)
class Due:
    """An aggregator: the rule (0 for none; it waits a second for another task), and the options of what it returns.

    It returns no task where there are no options.
    """

    max_size: int = 0
    max_delay_s: int = 0
    options: Mapping[str, Any] | None = None


def bundler(due: Due) -> Callable[[str, Sequence[GroupedTask]], Any]:
    """Return the aggregator; ids are made of what is in a task, as in the Go peer."""

    def bundle(group: str, tasks: Sequence[GroupedTask]) -> Task | None:
        if due.options is None:
            return None
        payload = bundled([task.payload for task in tasks])
        task_id = f"{group}-{md5(payload, usedforsecurity=False).hexdigest()}"
        return Task(TYPE, payload, **{"task_id": task_id, **due.options})

    return bundle


def bundled(payloads: Sequence[bytes]) -> bytes:
    return b"+".join(payloads)

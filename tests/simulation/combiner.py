"""The child that aggregates groups, in simulated time: the runner is the real one."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from fastq import Task
from fastq.running import GroupedTask
from fastq.server.children.aggregation_child import AggregationChild, AggregationFailure
from fastq.worker.child.aggregation_runner import AggregationRunner
from fastq.worker.shared.requests import Combined, Unreadable, aggregation_answer, aggregation_request

KEEPS_S = 86_400


def combine(group: str, tasks: Sequence[GroupedTask]) -> Task:
    """Return a task that names all others."""
    return Task("batch", " ".join(task.id for task in tasks).encode(), retention=KEEPS_S, max_retry=2)


class SimulatedCombiner(AggregationChild):
    """An aggregator that takes its time, and fails now and then."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._runner = AggregationRunner(combine)

    async def prepare(self) -> bool:
        return True

    async def combine(
        self, queue: str, group: str, messages: Sequence[bytes]
    ) -> Combined | Unreadable | AggregationFailure:
        await asyncio.sleep(self._draw.choice((0.001, 0.01, 0.5, 5.0)))
        if self._draw.random() < 0.1:
            return AggregationFailure("by chance")
        nobody: Any = None  # the context, which is asked only after an error
        answer: Any = self._runner.run(aggregation_request(queue, group, messages), nobody)
        return aggregation_answer(answer[1])

    async def stop(self) -> None: ...

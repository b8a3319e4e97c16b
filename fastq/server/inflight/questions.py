"""Questions about tasks in flight, to the hook child or to Redis: the answer decides what follows for a task."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fastq.server.inflight.tasks import InFlightTask


class Questions:
    """The questions that are open, each with its task, which stays in flight until the answer."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[None], InFlightTask] = {}

    def ask(self, task: InFlightTask, asking: Coroutine[Any, Any, None]) -> None:
        """Begin to ask; ``settle`` waits for the answer."""
        question = asyncio.create_task(asking)
        self._open[question] = task
        question.add_done_callback(self._open.pop)

    async def settle(self, within_s: float) -> None:
        """Wait until all questions are answered; cancel those still open after ``within_s``, so that defaults apply."""
        if not self._open:
            return
        _, late = await asyncio.wait(self._open, timeout=within_s)
        for question in late:
            question.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def tasks(self) -> set[object]:
        """Return the tasks that wait for an answer."""
        return set(self._open.values())

"""An actor's work on a Redis Cluster, divided by node, so that a slow node holds up its own queues only."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from logging import Logger
from typing import Final, TypeVar

from fastq.broker.transport.end_task import end_task
from fastq.server.actors.actor import Actor
from fastq.server.base.outage import Outage
from fastq.wire import keys

T = TypeVar("T")

AFTER_A_DEFECT_S: Final = 1.0


class PerNode:
    """The work under way, at most one piece per node; ``done`` is called after each piece.

    ``node_name_of`` names the node of a key; None means that Redis is no cluster, so nothing is divided.
    """

    def __init__(self, node_name_of: Callable[[str], str] | None, done: Callable[[], None], log: Logger) -> None:
        self._node_name_of = node_name_of
        self._done = done
        self._log = log
        self._works: dict[str, asyncio.Task[None]] = {}

    @property
    def are_many(self) -> bool:
        """Return whether Redis is a cluster."""
        return self._node_name_of is not None

    def __contains__(self, node: str) -> bool:
        """Return whether a piece of work for a node is under way."""
        return node in self._works

    def __bool__(self) -> bool:
        return bool(self._works)

    def busy(self, queues: Iterable[str]) -> frozenset[str]:
        """Return the queues on the nodes for which work is under way."""
        return frozenset(queue for queue in queues if self.of(queue) in self._works) if self._works else frozenset()

    def of(self, queue: str) -> str:
        """Name the node of a queue."""
        return "" if self._node_name_of is None else self._node_name_of(keys.pending(queue))

    def split(self, items: Iterable[T], queue_of: Callable[[T], str]) -> dict[str, list[T]]:
        """Divide items by the node of their queue."""
        parts = defaultdict(list)
        nodes: dict[str, str] = {}
        for item in items:
            queue = queue_of(item)
            if queue not in nodes:
                nodes[queue] = self.of(queue)
            parts[nodes[queue]].append(item)
        return parts

    async def spread(
        self, items: Iterable[T], queue_of: Callable[[T], str], work: Callable[[list[T]], Coroutine[None, None, None]]
    ) -> None:
        """Do work on items, if there are any; on a cluster, begin it for each node that is free, with its items."""
        if self.are_many:
            for node, part in self.split(items, queue_of).items():
                if node not in self._works:
                    self.begin(node, work(part))
        elif part := list(items):
            await work(part)

    def begin(self, node: str, work: Coroutine[None, None, None]) -> None:
        """Begin the next piece of work for a node; none may be under way."""
        task = self._works[node] = asyncio.create_task(work, name=f"fastq work at {node}")
        task.add_done_callback(lambda _: self._end(node, task))

    def _end(self, node: str, task: asyncio.Task[None]) -> None:
        del self._works[node]
        if task.cancelled() or (error := task.exception()) is None:
            self._done()
        else:
            self._log.error("unexpected error at %s; continuing", node, exc_info=error)
            asyncio.get_running_loop().call_later(AFTER_A_DEFECT_S, self._done)

    async def settle(self) -> None:
        """Wait until no work is under way."""
        while self._works:
            await asyncio.wait(self._works.values())
            await asyncio.sleep(0)  # lets _end run for the ended work

    async def stop(self) -> None:
        """End all work."""
        await asyncio.gather(*map(end_task, list(self._works.values())))


class PerNodeActor(Actor):
    """An actor that works on each node of a cluster by itself."""

    def __init__(self, outage: Outage, node_name_of: Callable[[str], str] | None) -> None:
        super().__init__(outage)
        self._per_node = PerNode(node_name_of, self.node_is_free, self._log)

    def node_is_free(self) -> None:
        """Wake after the work at a node has ended."""
        self.wake()

    async def finish(self, within_s: float) -> None:
        """End once the work under way is done, or after ``within_s``."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + within_s
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._per_node.settle()
        await super().finish(max(0.0, until_s - now_s()))

    async def stop(self) -> None:
        """End at once."""
        await super().stop()
        await self._per_node.stop()

"""Both inspectors behind one call, and a queue put into a known state behind their backs."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from redis import Redis, RedisCluster

from fastq import AsyncInspector, Inspector
from fastq.common.states import TaskState
from fastq.wire import keys
from tests.broker.harness import QueueBench

Ask = Callable[..., Any]

NOW_STATES = (TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED, TaskState.COMPLETED)


def ask_blocking(url: str) -> Ask:
    """Return a function that calls a method of Inspector by its name; an iterator comes as a list."""

    def ask(method: str, *args: Any, **named: Any) -> Any:
        with Inspector(url) as inspector:
            result = getattr(inspector, method)(*args, **named)
            return list(result) if inspect.isgenerator(result) else result

    return ask


def ask_async(url: str) -> Ask:
    """Return a function that calls a method of AsyncInspector by its name, on a loop of its own."""

    async def call(method: str, args: Sequence[Any], named: dict[str, Any]) -> Any:
        async with AsyncInspector(url) as inspector:
            result = getattr(inspector, method)(*args, **named)
            return [info async for info in result] if inspect.isasyncgen(result) else await result

    return lambda method, *args, **named: asyncio.run(call(method, args, named))


def ask_resp3(url: str) -> Ask:
    """As ``ask_blocking``, with a client of the user's own; those of redis-py speak RESP3 unless told otherwise."""
    scheme, _, host = url.partition("-cluster")

    def ask(method: str, *args: Any, **named: Any) -> Any:
        of_url: Any = RedisCluster.from_url if host else Redis.from_url
        with of_url(scheme + host.partition(",")[0], protocol=3) as given:
            result = getattr(Inspector(given), method)(*args, **named)
            return list(result) if inspect.isgenerator(result) else result

    return ask


FACES = {"Inspector": ask_blocking, "AsyncInspector": ask_async, "RESP3": ask_resp3}


class Seeded(QueueBench):
    """One listed queue, filled without the code under test."""

    def __init__(self, db: Redis, queue: str = "default") -> None:
        super().__init__(db, queue=queue)
        self.db.sadd(keys.all_queues(), queue)

    def add(self, state: TaskState | str, scores: dict[str, float], **fields: Any) -> None:
        """Let tasks be in a state that has scores."""
        for task_id in scores:
            self.put(task_id, str(state), **fields)
        self.db.zadd(self.key(str(state)), scores)

    def group(self, name: str, scores: dict[str, float], **fields: Any) -> None:
        """Let tasks wait in a group."""
        for task_id in scores:
            self.put(task_id, "aggregating", group_key=name, **fields)
            self.db.hset(keys.task(self.queue, task_id), "group", name)
        self.db.zadd(keys.group(self.queue, name), scores)
        self.db.sadd(keys.groups(self.queue), name)

    def all_keys(self) -> set[str]:
        """Return the name of every key that there is."""
        return {key.decode() for key in self.db.scan_iter(count=1000)}

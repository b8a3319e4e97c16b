"""Groups in Redis and an aggregator without a process: what the tests of the aggregator and the reclaimer share."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from fastq import Task
from fastq.broker.operations.aggregate import GroupRule
from fastq.pool.shared.event_kind import EventKind
from fastq.running import GroupedTask
from fastq.server.actors.aggregator import Aggregator
from fastq.server.base.commands import Commands
from fastq.server.base.config import ServerConfig
from fastq.server.base.timing import STANDARD
from fastq.server.children.aggregation_child import AggregationFailure
from fastq.wire import keys
from fastq.worker.child.aggregation_runner import AggregationRunner, GroupAggregator
from fastq.worker.shared.requests import Combined, Unreadable, aggregation_answer, aggregation_request
from tests.broker.harness import QUEUE, QueueBench
from tests.server.harness import Bench
from tests.worker.harness import FakeContext

RULE = GroupRule(60)

Combine: TypeAlias = Callable[[str, str, Sequence[bytes]], Awaitable[Combined | Unreadable | AggregationFailure]]
Prepare: TypeAlias = Callable[[], Awaitable[bool]]


async def is_there() -> bool:
    """Stand in for the start of a child that runs."""
    return True


class NoChild:
    """What an aggregator asks in place of a child: functions of the test."""

    def __init__(self, combine: Combine, prepare: Prepare = is_there) -> None:
        self._combine = combine
        self._prepare = prepare

    async def prepare(self) -> bool:
        return await self._prepare()

    async def combine(
        self, queue: str, group: str, messages: Sequence[bytes]
    ) -> Combined | Unreadable | AggregationFailure:
        return await self._combine(queue, group, messages)


def config_of(queues: Sequence[str], rule: GroupRule) -> ServerConfig:
    """Return the settings of a server with some queues and a rule for their groups."""
    return ServerConfig(
        queues=dict.fromkeys(queues, 1),
        group_grace_period=rule.grace_s,
        group_max_delay=rule.max_delay_s,
        group_max_size=rule.max_size,
    )


def concat(group: str, tasks: Sequence[GroupedTask]) -> Task:
    """Put the payloads together, and the group in front."""
    return Task(f"whole:{group}", b"+".join(task.payload for task in tasks))


def in_process(aggregator: GroupAggregator, *, calls: Counter[str] | None = None) -> Combine:
    """Run an aggregator as the child would, without the child."""
    runner = AggregationRunner(aggregator)

    async def combine(queue: str, group: str, messages: Sequence[bytes]) -> Combined | Unreadable | AggregationFailure:
        if calls is not None:
            calls[group] += 1
        answer = runner.run(aggregation_request(queue, group, messages), FakeContext())
        assert answer is not None
        kind, data = answer
        return aggregation_answer(data) if kind is EventKind.RESULT else AggregationFailure(*orjson.loads(data))

    return combine


def aggregator_on(
    bench: Bench,
    aggregator: GroupAggregator | Combine = concat,
    *,
    rule: GroupRule = RULE,
    queues: Sequence[str] = (QUEUE,),
    commands: Commands | None = None,
    combine: Callable[..., Any] | None = None,
    prepare: Prepare = is_there,
) -> Aggregator:
    made: Any = combine or in_process(aggregator)  # type: ignore[arg-type]  # it is one if combine is not given
    child, config = NoChild(made, prepare), config_of(queues, rule)
    return Aggregator(commands or bench.commands, config, child, bench.clock, STANDARD, bench.stats)


def join(queue: QueueBench, scores: Mapping[str, float], group: str = "g", **fields: Any) -> None:
    """Let tasks be in a group, each with its id for a payload."""
    for task_id in scores:
        put = {"payload": task_id.encode(), "group_key": group, **fields}
        queue.put(task_id, "aggregating", **put)
        queue.db.hset(keys.task(queue.queue, task_id), "group", group)
    queue.db.zadd(keys.group(queue.queue, group), dict(scores))
    queue.db.sadd(keys.groups(queue.queue), group)


def outcome(queue: QueueBench) -> dict[str, list[str]]:
    """Return the payloads of the pending tasks, oldest first, by their types: of what became of each group."""
    found: dict[str, list[str]] = {}
    for task_id in queue.places().get("pending", [])[::-1]:
        task = queue.message(task_id)
        found.setdefault(task.type, []).append(task.payload.decode())
    return found


def leftovers(queue: QueueBench) -> dict[str, Any]:
    """Return all that there is of groups: members by key, the listed groups, the sets, tasks that wait for one."""
    prefix = keys.group_prefix(queue.queue)
    kinds = {
        key.decode(): queue.scores(key.decode().removeprefix(queue.key(""))) for key in queue.db.keys(f"{prefix}*")
    }
    tasks = [task_id for task_id, state in queue.states().items() if state == "aggregating"]
    listed = {name.decode() for name in queue.db.smembers(keys.groups(queue.queue))}
    found = {"groups": kinds, "listed": listed, "sets": queue.scores("aggregation_sets"), "tasks": tasks}
    return {name: value for name, value in found.items() if value}

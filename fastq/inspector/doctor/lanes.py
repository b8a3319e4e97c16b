"""Checks of queues with limits: Go servers, which do not obey limits, and lanes that no server serves."""

from collections.abc import Sequence
from typing import Final

from fastq.broker.inspect.lanes import LaneRows, NamePage, read_lanes, scan_lanes
from fastq.broker.inspect.registry import read_registry
from fastq.broker.operation import Flow, Operation, Pause
from fastq.broker.operations.presence import read_servers
from fastq.inspector.doctor.finding import Finding, Level
from fastq.wire import keys
from fastq.wire.limit import EACH_LANE, WHOLE_QUEUE, pool_of

SAMPLED: Final = 100
SHOWN: Final = 5
SWEPT_S: Final = 6.0
"""Within this time, servers add a lane to ``turns`` if Go's clients have put tasks into it."""


def check_lanes(queues: Sequence[str]) -> Flow[list[Finding]]:
    """Check the queues that have limits; returns no findings if none has."""
    with_lanes = []
    for queue in queues:
        if (yield Operation("EXISTS", (keys.limits(queue),), (), bool, idempotent=True)):
            with_lanes.append(queue)
    if not with_lanes:
        return []
    registry = yield from read_registry()
    servers = yield from read_servers([one.key for one in registry if one.listed_in == "servers" and one.ttl_ms != -2])
    findings: list[Finding] = []
    for queue in with_lanes:
        serving = [server for server in servers if queue in server.queues and server.is_active]
        unaware = sum(server.notice is None for server in serving)
        if unaware:
            findings.append((yield from _unaware(queue, unaware, len(serving))))
        forgotten = yield from _forgotten(queue)
        if forgotten and len(serving) > unaware:
            yield Pause(SWEPT_S)
            forgotten = [lane for lane in (yield from _forgotten(queue)) if lane in forgotten]
        if forgotten:
            findings.append(_stuck(queue, forgotten, is_served=len(serving) > unaware))
    seen = f"queues with lanes: {len(with_lanes)}; their lanes get turns, and only servers of fastq serve them"
    return findings or [Finding("lanes", Level.OK, seen)]


def _forgotten(queue: str) -> Flow[list[str]]:
    """Check some lanes; return the names of those that have tasks, but neither have a turn nor wait for one."""
    page: NamePage = yield scan_lanes(queue, "0", SAMPLED)
    if not page.names:
        return []
    names = page.names[:SAMPLED]
    pools = [pool_of(name) for name in names]
    asked = [*((name, pool.removesuffix(":*")) for name, pool in zip(names, pools, strict=True)), (EACH_LANE, "")]
    asked += [(pool, "") for pool in pools]
    rows: LaneRows = yield read_lanes(queue, asked)
    lanes, each, of_pools = rows.rows[: len(names)], rows.rows[len(names)], rows.rows[len(names) + 1 :]
    return [
        name
        for name, row, pool, pool_row in zip(names, lanes, pools, of_pools, strict=True)
        if row.waiting
        and (row.rule or each.rule or (pool and pool_row.rule))
        and row.turn_us is row.full_us is row.pool_us is None
    ]


def _unaware(queue: str, count: int, serving: int) -> Flow[Finding]:
    is_limited = yield Operation("HEXISTS", (keys.limits(queue),), (WHOLE_QUEUE,), bool, idempotent=True)
    rules = yield Operation("HLEN", (keys.limits(queue),), (), int, idempotent=True)
    has, why, advice = [], [], []
    if rules > is_limited:
        has.append("lanes")
        why.append("take no task of a lane; one with a GroupAggregator combines all that wait in a lane into one task")
        advice.append("give lanes a queue that only servers of fastq serve, or leave Config.GroupAggregator unset")
    if is_limited:
        has.append("a limit as a whole")
        why.append("know nothing of the queue's limit: they start tasks beyond it, which servers of fastq then count")
        advice.append("let their Config.Concurrency be a part of the queue's limit")
    return Finding(
        "lanes",
        Level.WARNING,
        f"{count} of the {serving} servers of this queue, which has {' and '.join(has)}, are asynq servers, "
        "or older fastq servers",
        why=f"these {'; they '.join(why)}",
        advice="; ".join(advice),
        queue=queue,
        count=count,
    )


def _stuck(queue: str, lanes: Sequence[str], *, is_served: bool) -> Finding:
    return Finding(
        "lanes",
        Level.PROBLEM,
        f"lanes that have tasks: {len(lanes)} of those checked, and "
        + ("got no turn" if is_served else "no running server of fastq serves the queue"),
        why="their tasks are not taken",
        advice="restart a server of this queue, and report this"
        if is_served
        else f"start one: fastq worker APP --queues {queue}",
        queue=queue,
        count=len(lanes),
        examples=tuple(sorted(lanes)[:SHOWN]),
    )

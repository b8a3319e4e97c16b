"""``fastq stats``: an overview; its JSON has the same keys as that of asynq, unless ``--since`` is given."""

from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any, Final

import click

from fastq.cli.commands import Verb
from fastq.cli.parameters import json_option
from fastq.cli.session import Session, askable, emit, pass_session
from fastq.cli.stats_history import show_history
from fastq.cli.tables import Cell, Column, column_of, facts, heading, table
from fastq.common.states import TaskState
from fastq.errors import BrokerAuthError
from fastq.inspector import QueueInfo
from fastq.inspector.fields import QUEUE, faced
from fastq.inspector.json_records import time_text
from fastq.text.fields import text_of
from fastq.text.human import clean, number, payload_text, share, size, span

STATES: Final = (
    TaskState.ACTIVE,
    TaskState.PENDING,
    TaskState.AGGREGATING,
    TaskState.SCHEDULED,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
)
STATE_COLOURS: Final[Mapping[TaskState, str]] = {
    TaskState.ACTIVE: "blue",
    TaskState.PENDING: "white",
    TaskState.AGGREGATING: "cyan",
    TaskState.SCHEDULED: "magenta",
    TaskState.RETRY: "yellow",
    TaskState.ARCHIVED: "red",
    TaskState.COMPLETED: "green",
}
_MICROSECOND: Final = timedelta(microseconds=1)
_ASYNQS: Final = (
    *("queue", "memory_usage", "paused", "size", "groups", "pending", "active", "scheduled", "retry", "archived"),
    *("completed", "aggregating", "processed", "failed", "processed_total", "failed_total"),
)
"""The fields of a queue in ``asynq stats --json``, in asynq's order."""

_SHORT: Final = ("ACT", "PEND", "AGGR", "SCHED", "RETRY", "ARCH", "COMPL")
STATE_COLUMNS: Final = tuple(
    Column(state.value.upper(), right=True, short=short) for state, short in zip(STATES, _SHORT, strict=True)
)
_MORE: Final = faced(QUEUE, "stats")
_COLUMNS: Final = (
    Column("QUEUE", cut=True),
    Column("SIZE", right=True),
    *STATE_COLUMNS,
    *(column_of(*each) for each in _MORE),
)


@click.command("stats", cls=Verb, examples=["stats", "stats --since 1h", "stats --json | jq .aggregate.pending"])
@click.option(
    "--since", metavar="DURATION", help="show instead what tasks did for so long until now: 30m, 8h, up to 336h"
)
@json_option
@pass_session
def stats(session: Session, since: str | None, as_json: bool) -> None:
    """Show the number of tasks in each state and queue, today's work, and the state of Redis.

    Days are UTC; a failed attempt counts as processed, too. LOST are tasks whose server died: no failed attempt.
    LATENCY is how long the oldest pending task has waited. --since shows the runs on fastq's servers, up to 8h also by
    type; RUN and WAIT are the times that half of them (P50), and 95% (P95), did not exceed.
    """
    if since is not None:
        show_history(session, since, as_json=as_json)
        return
    queues = session.inspector.get_queue_infos(askable(session.inspector.queues()))
    redis = _redis_facts(session)
    if as_json:
        emit(
            {
                "aggregate": _aggregate(session, queues),
                "queues": [_asynq_record(info) for info in queues],
                "redis": redis,
            }
        )
        return
    _show(session, queues, redis)


def _redis_facts(session: Session) -> Mapping[str, str]:
    try:
        return session.inspector.cluster_info() if session.is_cluster else session.inspector.redis_info()
    except BrokerAuthError:
        return {}  # not every Redis user may read INFO; the rest is shown


def _total(queues: Sequence[QueueInfo], name: str) -> int:
    return sum(getattr(info, name) for info in queues)


def _aggregate(session: Session, queues: Sequence[QueueInfo]) -> dict[str, Any]:
    names = (*(state.value for state in STATES), "processed", "failed")
    moment = max((info.timestamp for info in queues), default=session.now)
    return {**{name: _total(queues, name) for name in names}, "timestamp": time_text(moment)}


def _asynq_record(info: QueueInfo) -> dict[str, Any]:
    """Describe a queue as ``asynq stats --json`` does."""
    values = {name.title().replace("_", ""): getattr(info, name) for name in _ASYNQS}
    return {**values, "Latency": info.latency // _MICROSECOND * 1000, "Timestamp": time_text(info.timestamp)}


def state_counts(info: QueueInfo) -> list[str]:
    """Format the number of tasks in each state, in the order of ``STATES``."""
    return [_count(getattr(info, state.value), state) for state in STATES]


def _count(count: int, state: TaskState) -> str:
    return Cell(number(count), fg=STATE_COLOURS[state]) if count else Cell("0", dim=True)


def _show(session: Session, queues: Sequence[QueueInfo], redis: Mapping[str, str]) -> None:
    screen = session.screen
    heading(screen, "Tasks by state")
    table(
        screen,
        STATE_COLUMNS,
        [[_count(_total(queues, state.value), state) for state in STATES]],
    )
    screen.say()
    heading(screen, "Queues")
    if queues:
        table(screen, _COLUMNS, [_row(info) for info in queues])
    else:
        screen.say("There are none yet.")
    for info in queues:
        if info.lost:
            screen.say(
                Cell(f"{clean(info.queue)}: {number(info.lost)} tasks were lost with their servers today", fg="yellow")
            )
        if info.archive_dropped:
            dropped = f"{number(info.archive_dropped)} failed tasks were dropped from the archive"
            screen.say(Cell(f"{clean(info.queue)}: {dropped} (fastq queue inspect {clean(info.queue)})", fg="yellow"))
    screen.say()
    processed, failed, lost = (_total(queues, name) for name in ("processed", "failed", "lost"))
    heading(screen, f"Today, {session.now.astimezone(UTC):%Y-%m-%d} UTC")
    table(
        screen,
        [Column(title, right=True) for title in ("PROCESSED", "FAILED", "ERRORS", "LOST")],
        [[number(processed), number(failed), share(failed, processed), number(lost)]],
    )
    screen.say()
    _show_redis(session, redis)


def _row(info: QueueInfo) -> list[str]:
    name = clean(info.queue)
    return [
        Cell(f"{name} (paused)", fg="yellow") if info.paused else name,
        number(info.size),
        *state_counts(info),
        *(text_of(field, info) for _, _, field in _MORE),
    ]


def _show_redis(session: Session, redis: Mapping[str, str]) -> None:
    heading(session.screen, "Redis cluster" if session.is_cluster else "Redis")
    if not redis:
        session.screen.say("The Redis user may not read it.")
    elif session.is_cluster:
        facts(session.screen, cluster_pairs(redis))
    else:
        facts(session.screen, redis_pairs(redis))


def cluster_pairs(redis: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return titles and values of the important fields of CLUSTER INFO."""
    names = {"cluster_state": "State", "cluster_known_nodes": "Known nodes", "cluster_size": "Size"}
    return [(title, _fact(redis, name)) for name, title in names.items()]


def redis_pairs(redis: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return titles and values of the important fields of INFO."""
    product = ("Valkey", "valkey_version") if "valkey_version" in redis else ("Redis", "redis_version")
    return [
        ("Version", f"{product[0]} {_fact(redis, product[1])}"),
        ("Up for", _of_number(redis, "uptime_in_seconds", lambda seconds: span(timedelta(seconds=seconds)))),
        ("Connections", _of_number(redis, "connected_clients", number)),
        ("Memory", _of_number(redis, "used_memory", size)),
        ("Peak memory", _of_number(redis, "used_memory_peak", size)),
    ]


def _fact(redis: Mapping[str, str], name: str) -> str:
    return payload_text(redis.get(name, "-").encode())


def _of_number(redis: Mapping[str, str], name: str, write: Any) -> str:
    text = redis.get(name, "")
    return str(write(int(text))) if text.isdecimal() else "-"

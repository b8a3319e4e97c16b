"""Checks of whole queues: their servers, whether they are paused, how full their archives are."""

from collections.abc import Mapping
from typing import Final

from fastq.broker.inspect.queues import Pulse, QueueStats
from fastq.common.states import TaskState
from fastq.inspector.doctor.finding import Finding, Level

MANY: Final = 1_000
_WAITING: Final = (TaskState.PENDING, TaskState.SCHEDULED, TaskState.RETRY)
NEARLY: Final = 0.9
"""The share of its limit at which an archive is nearly full."""


def unserved(pulses: Mapping[str, Pulse], served: frozenset[str]) -> dict[str, dict[str, int]]:
    """Return how many tasks wait in each queue that no server serves, by state; paused queues are left out."""
    found = {}
    for queue, pulse in pulses.items():
        waiting = {state.value: pulse.stats.sizes[state] for state in _WAITING if pulse.stats.sizes[state]}
        if waiting and queue not in served and pulse.paused_since_s is None:
            found[queue] = waiting
    return found


def check_served(waiting: Mapping[str, Mapping[str, int]], looked_at: int, servers: int) -> list[Finding]:
    """Find the queues whose tasks no server takes."""
    if not waiting:
        seen = (
            f"servers: {servers}; no queue waits without a server" if servers else "no server runs, and no task waits"
        )
        return [Finding("served", Level.OK, f"queues: {looked_at}, {seen}")]
    there = "no running server serves it" if servers else "no server is running"
    return [
        Finding(
            "served",
            Level.PROBLEM if TaskState.PENDING in sizes else Level.WARNING,
            f"{', '.join(f'{count} {state}' for state, count in sizes.items())}, and {there}",
            why="no server takes these tasks" if TaskState.PENDING in sizes else "no server will take them when due",
            advice=f"start a server that serves it (fastq worker APP --queues {queue}), or check whether one died",
            queue=queue,
            count=sum(sizes.values()),
        )
        for queue, sizes in waiting.items()
    ]


def check_paused(pulses: Mapping[str, Pulse], now_s: float) -> list[Finding]:
    """Find the paused queues in which many tasks wait."""
    found = [
        Finding(
            "paused",
            Level.WARNING,
            f"{waiting} pending{_since(pulse.paused_since_s, now_s)}",
            why="servers take nothing from it until it is resumed",
            advice=f"fastq queue resume {queue}",
            queue=queue,
            count=waiting,
        )
        for queue, pulse in pulses.items()
        if pulse.paused_since_s is not None and (waiting := pulse.stats.sizes[TaskState.PENDING]) >= MANY
    ]
    paused = sum(pulse.paused_since_s is not None for pulse in pulses.values())
    return found or [Finding("paused", Level.OK, f"paused queues: {paused}, none with {MANY} pending or more")]


def _since(since_s: int | None, now_s: float) -> str:
    return f", paused for {(now_s - since_s) / 3600:.1f} h" if since_s else ""


def check_archives(pulses: Mapping[str, Pulse]) -> list[Finding]:
    """Find the archives that are full or nearly full, and those that have dropped tasks."""
    found = [
        finding
        for queue, pulse in pulses.items()
        for finding in (_full(queue, pulse.stats), _dropped(queue, pulse.stats))
        if finding is not None
    ]
    return found or [Finding("archive", Level.OK, "none is nearly full, and none has dropped a task")]


def _full(queue: str, stats: QueueStats) -> Finding | None:
    count = stats.sizes[TaskState.ARCHIVED]
    if stats.archive_full == "spill" and count >= 2 * stats.archive_max:
        return Finding(
            "archive",
            Level.WARNING,
            f"{count} tasks of at most {stats.archive_max}",
            why="no server writes the oldest to files: none has archive_full=spill for this queue, or its disk is full",
            advice="see the logs of its servers, or start one with --archive-full trim, which replaces the rule",
            queue=queue,
            count=count,
        )
    if count < NEARLY * stats.archive_max or stats.archive_full == "spill":
        return None
    return Finding(
        "archive",
        Level.WARNING,
        f"{count} of {stats.archive_max} tasks",
        why="a full archive pauses the queue"
        if stats.archive_full == "pause"
        else "a full archive deletes its oldest task for each new one",
        advice=f"fastq task ls --queue {queue} --state archived shows what failed; run or delete them "
        f"(task run-all, task delete-all), or see the settings archive_max and archive_full",
        queue=queue,
        count=count,
    )


def _dropped(queue: str, stats: QueueStats) -> Finding | None:
    if not stats.archive_dropped:
        return None
    return Finding(
        "archive",
        Level.WARNING,
        f"the archive has dropped {stats.archive_dropped} failed tasks",
        why="it was full, or they were too old; they can no longer be listed or run",
        advice="fastq-worker --archive-full pause or spill keeps them, --archive-max keeps more",
        queue=queue,
        count=stats.archive_dropped,
    )

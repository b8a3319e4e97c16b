"""What is wrong, as far as it is seen without looking at single tasks; ``fastq doctor`` looks closer."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from fastq.cli.human import number, share, span
from fastq.inspector import Level, QueueInfo, ServerInfo

__all__ = ["Problem", "problems_of"]

LATE: Final = timedelta(minutes=5)
MANY_FAILED: Final = 10
FAILED_SHARE: Final = 0.1
NEARLY_FULL: Final = 0.9


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a queue, and what to do about it; ``state`` names the tasks that it is about."""

    level: Level
    queue: str
    seen: str
    advice: str
    state: str = "pending"


def problems_of(queues: Iterable[QueueInfo], servers: Sequence[ServerInfo]) -> list[Problem]:
    """Return what is wrong, the worst first."""
    served = {queue for server in servers if server.status == "active" for queue in server.queues}
    found = [problem for info in queues for problem in _of_queue(info, info.queue in served, bool(servers))]
    return sorted(found, key=lambda problem: problem.level is not Level.PROBLEM)


def _of_queue(info: QueueInfo, is_served: bool, there_are_servers: bool) -> Iterator[Problem]:
    yield from _waiting(info, is_served, there_are_servers)
    if info.failed >= MANY_FAILED and info.failed >= FAILED_SHARE * info.processed:
        seen = f"{share(info.failed, info.processed)} of today's {number(info.processed)} runs failed"
        yield Problem(Level.WARNING, info.queue, seen, "The errors say why.", "retry" if info.retry else "archived")
    if info.lost:
        seen = f"{_tasks(info.lost, 'was', 'were')} lost with their servers today"
        yield Problem(Level.WARNING, info.queue, seen, "They run again; see why the servers died.", "active")
    if info.archive_dropped:
        seen = f"the archive has deleted {number(info.archive_dropped)} failed tasks"
        yield Problem(
            Level.WARNING, info.queue, seen, "Run or delete archived tasks, or raise archive_max.", "archived"
        )
    elif info.archive_full != "spill" and info.archived >= NEARLY_FULL * info.archive_max:
        what = "pauses the queue" if info.archive_full == "pause" else "deletes its oldest task for each new one"
        seen = f"{number(info.archived)} of at most {number(info.archive_max)} tasks are in the archive"
        yield Problem(Level.WARNING, info.queue, seen, f"A full archive {what}.", "archived")


def _waiting(info: QueueInfo, is_served: bool, there_are_servers: bool) -> Iterator[Problem]:
    if not info.pending:
        return
    if info.paused:
        seen = f"paused, while {_tasks(info.pending, 'waits', 'wait')}"
        yield Problem(Level.WARNING, info.queue, seen, "Servers take none of them until the queue is resumed.")
    elif not is_served:
        there = "no running server serves this queue" if there_are_servers else "no server is running"
        seen = f"{_tasks(info.pending, 'waits', 'wait')}, and {there}"
        yield Problem(Level.PROBLEM, info.queue, seen, f"Start one: fastq worker APP --queues {info.queue}")
    elif info.latency >= LATE:
        seen = f"the oldest pending task has waited for {span(info.latency)}"
        yield Problem(Level.WARNING, info.queue, seen, "Its servers do not keep up: add some, or raise concurrency.")


def _tasks(count: int, one: str, many: str) -> str:
    return f"{number(count)} {f'task {one}' if count == 1 else f'tasks {many}'}"

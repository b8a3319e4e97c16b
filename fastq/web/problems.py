"""What is wrong, as far as it is seen without looking at single tasks; ``fastq doctor`` looks closer."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from fastq.cli.human import number, share, span
from fastq.inspector import Level, QueueInfo, RunHistory, RunStats, ServerInfo
from fastq.web.days import total_of

__all__ = ["Problem", "problems_of"]

LATE: Final = timedelta(minutes=5)
LATELY: Final = timedelta(minutes=15)
MANY_FAILED: Final = 10
FAILED_SHARE: Final = 0.1
FEW_FAILED: Final = 3
MOST_FAILED_SHARE: Final = 0.5
"""A queue with few runs is in trouble if this share of them has failed."""
NEARLY_FULL: Final = 0.9
_WORD: Final = re.compile(r"[\w.:-]+")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a queue, and what to do about it; ``state`` names the tasks that it is about.

    ``search`` finds those that say more of it.
    """

    level: Level
    queue: str
    seen: str
    advice: str
    state: str = "pending"
    search: str = ""


def problems_of(
    queues: Iterable[QueueInfo], servers: Sequence[ServerInfo], lately: Mapping[str, RunHistory | None]
) -> list[Problem]:
    """Return what is wrong, the worst first.

    ``lately`` has the minutes of queues of which runs have failed; None for one that only Go's servers serve.
    """
    served = {queue for server in servers if server.status == "active" for queue in server.queues}
    found = [problem for info in queues for problem in _of_queue(info, info.queue in served, bool(servers))]
    found += [problem for info in queues if info.queue in lately for problem in _failing(info, lately[info.queue])]
    return sorted(found, key=lambda problem: problem.level is not Level.PROBLEM)


def _of_queue(info: QueueInfo, is_served: bool, there_are_servers: bool) -> Iterator[Problem]:
    yield from _waiting(info, is_served, there_are_servers)
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
        seen = f"the oldest pending task has waited for {span(_in_minutes(info.latency))}"
        yield Problem(Level.WARNING, info.queue, seen, "Its servers do not keep up: add some, or raise concurrency.")


def _failing(info: QueueInfo, past: RunHistory | None) -> Iterator[Problem]:
    if past is None:
        runs, failed, when = info.processed, info.failed, "today's"
    else:
        lately = total_of(past.points[-(LATELY // past.step) :])
        runs, failed, when = lately.processed, lately.failed, "the last 15 minutes'"
    if not _are_many(failed, runs):
        return
    seen = f"{share(failed, runs)} of {when} {number(runs)} {'run' if runs == 1 else 'runs'} failed"
    if past is not None:
        seen += _since(past)
    state = "retry" if info.retry else "archived"
    search = f"queue:{info.queue} state:retry,archived" if _WORD.fullmatch(info.queue) else ""
    yield Problem(Level.WARNING, info.queue, seen, "The errors say why.", state, search)


def _are_many(failed: int, runs: int) -> bool:
    return (failed >= MANY_FAILED and failed >= FAILED_SHARE * runs) or (
        failed >= FEW_FAILED and failed >= MOST_FAILED_SHARE * runs
    )


def _since(past: RunHistory) -> str:
    """Return since when runs fail; minutes without a run tell nothing."""
    begin: RunStats | None = None
    for point in reversed(past.points):
        if point.processed and point.failed < FAILED_SHARE * point.processed:
            break
        begin = point if point.processed else begin
    if begin is None:
        return ""
    if begin is past.points[0]:
        return ", for an hour or longer"
    return f", for {span(past.points[-1].start + past.step - begin.start)} now"


def _in_minutes(long: timedelta) -> timedelta:
    """Leave out the seconds, which would change with each look."""
    return long // timedelta(minutes=1) * timedelta(minutes=1)


def _tasks(count: int, one: str, many: str) -> str:
    return f"{number(count)} {f'task {one}' if count == 1 else f'tasks {many}'}"

"""The problems that can be found without reading single tasks; ``fastq doctor`` finds more."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from fastq.inspector import Level, QueueInfo, RunHistory, RunStats, ServerInfo
from fastq.text.human import number, plural, share, span
from fastq.web.days import total_of

LATE: Final = timedelta(minutes=5)
LATELY: Final = timedelta(minutes=15)
MANY_FAILED: Final = 10
FAILED_SHARE: Final = 0.1
FEW_FAILED: Final = 3
MOST_FAILED_SHARE: Final = 0.5
"""A queue with few runs has a problem if at least this share of the runs failed."""
NEARLY_FULL: Final = 0.9
FEW_ALIKE: Final = 3
_OPTION: Final = " --queues "
_UNSERVED: Final = ("no running server serves this queue", "no running server serves them")
_WORD: Final = re.compile(r"[\w.:-]+")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a queue, and what to do about it; ``state`` is the state of the tasks concerned.

    ``search`` is a search for these tasks. ``of_many`` is the text for several queues with this problem, ``tasks`` the
    number of tasks concerned. ``folded`` has the problems of single queues if this problem stands for several.
    """

    level: Level
    queue: str
    seen: str
    advice: str
    state: str = "pending"
    search: str = ""
    of_many: str = ""
    tasks: int = 0
    folded: tuple["Problem", ...] = ()


def problems_of(
    queues: Iterable[QueueInfo], servers: Sequence[ServerInfo], lately: Mapping[str, RunHistory | None]
) -> list[Problem]:
    """Return the problems, the worst first.

    ``lately`` has the last hour, by minute, of queues with failed runs; None for a queue that only Go's servers serve.
    """
    served = {queue for server in servers if server.status == "active" for queue in server.queues}
    found = [problem for info in queues for problem in _of_queue(info, info.queue in served, bool(servers))]
    found += [problem for info in queues if info.queue in lately for problem in _failing(info, lately[info.queue])]
    return sorted(_folded(found), key=lambda problem: problem.level is not Level.PROBLEM)


def _folded(found: Sequence[Problem]) -> Iterator[Problem]:
    """Yield the problems; if many queues have the same problem, yield one problem for all of them."""
    alike: dict[str, list[Problem]] = {}
    for problem in found:
        alike.setdefault(problem.of_many, []).append(problem)
    for of_many, some in alike.items():
        if not of_many or len(some) <= FEW_ALIKE:
            yield from some
            continue
        some.sort(key=lambda problem: (-problem.tasks, problem.queue))
        tasks = sum(problem.tasks for problem in some)
        seen = f"{number(len(some))} queues, {plural(tasks, 'task')}: {of_many}"
        start, option, _ = some[0].advice.partition(_OPTION)
        advice = f"{start}{option}QUEUE[,QUEUE…]" if option else start
        yield Problem(some[0].level, "", seen, advice, folded=tuple(some))


def _of_queue(info: QueueInfo, is_served: bool, there_are_servers: bool) -> Iterator[Problem]:
    yield from _waiting(info, is_served, there_are_servers)
    if info.lost:
        seen = f"{_tasks(info.lost, 'was', 'were')} lost with their servers today"
        advice, of_many = "They run again; see why the servers died.", "lost with their servers today"
        yield Problem(Level.WARNING, info.queue, seen, advice, "active", of_many=of_many, tasks=info.lost)
    if info.archive_dropped:
        seen = f"the archive has deleted {number(info.archive_dropped)} failed tasks"
        advice, of_many = "Run or delete archived tasks, or raise archive_max.", "deleted from full archives"
        dropped = info.archive_dropped
        yield Problem(Level.WARNING, info.queue, seen, advice, "archived", of_many=of_many, tasks=dropped)
    elif info.archive_full != "spill" and info.archived >= NEARLY_FULL * info.archive_max:
        what = "pauses the queue" if info.archive_full == "pause" else "deletes its oldest task for each new one"
        seen = f"{number(info.archived)} of at most {number(info.archive_max)} tasks are in the archive"
        of_many = f"in archives that are nearly full, each of which {what}"
        advice = f"A full archive {what}."
        yield Problem(Level.WARNING, info.queue, seen, advice, "archived", of_many=of_many, tasks=info.archived)


def _waiting(info: QueueInfo, is_served: bool, there_are_servers: bool) -> Iterator[Problem]:
    if not info.pending:
        return
    if info.paused:
        seen = f"paused, while {_tasks(info.pending, 'waits', 'wait')}"
        advice = "Servers take none of them until the queue is resumed."
        of_many = "paused, while tasks wait"
        yield Problem(Level.WARNING, info.queue, seen, advice, of_many=of_many, tasks=info.pending)
    elif not is_served:
        there, of_many = _UNSERVED if there_are_servers else ("no server is running", "no server is running")
        seen = f"{_tasks(info.pending, 'waits', 'wait')}, and {there}"
        advice = f"Start one: fastq worker APP{_OPTION}{info.queue}"
        yield Problem(Level.PROBLEM, info.queue, seen, advice, of_many=of_many, tasks=info.pending)
    elif info.latency >= LATE:
        seen = f"the oldest pending task has waited for {span(_in_minutes(info.latency))}"
        advice = "Its servers do not keep up: add some, or raise concurrency."
        of_many = f"the oldest has waited for more than {span(LATE)}"
        yield Problem(Level.WARNING, info.queue, seen, advice, of_many=of_many, tasks=info.pending)


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
    yield Problem(Level.WARNING, info.queue, seen, "The errors say why.", state, search, "runs fail", failed)


def _are_many(failed: int, runs: int) -> bool:
    return (failed >= MANY_FAILED and failed >= FAILED_SHARE * runs) or (
        failed >= FEW_FAILED and failed >= MOST_FAILED_SHARE * runs
    )


def _since(past: RunHistory) -> str:
    """Return a text that says for how long runs have been failing; minutes without a run do not end that time."""
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
    """Round down to minutes, since seconds would change at each update of the page."""
    return long // timedelta(minutes=1) * timedelta(minutes=1)


def _tasks(count: int, one: str, many: str) -> str:
    return f"{number(count)} {f'task {one}' if count == 1 else f'tasks {many}'}"

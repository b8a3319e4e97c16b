"""What is wrong is what is wrong now: failures are those of the last minutes, not of the UTC day."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fastq import Durations, QueueInfo, RunHistory, RunStats
from fastq.web.days import total_of
from fastq.web.problems import problems_of
from fastq.wire.history import BUCKETS

NOW = datetime(2026, 11, 23, 14, 25, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NONE = Durations((0,) * BUCKETS)
QUEUE = QueueInfo(
    "critical", None, timedelta(0), 0, 0, 0, 0, 0, 0, 0, 0, 0, 1_000_000, 99_000, 1_000_000, 99_000, False, NOW
)


def hour(*failing: int, runs: int = 20, idle: range = range(0), failed: int = 10) -> RunHistory:
    """Return the last hour: so many runs a minute, of which some fail in the minutes given, counted back from now."""
    points = []
    for ago in range(59, -1, -1):
        of_all = 0 if ago in idle else runs
        bad = min(of_all, failed) if ago in failing else 0
        points.append(RunStats(NOW - ago * MINUTE, of_all - bad, bad, bad, 0, 0, NONE, NONE))
    return RunHistory("critical", MINUTE, points, total_of(points))


def seen(info: QueueInfo, past: RunHistory | None) -> list[str]:
    return [problem.seen for problem in problems_of([info], [], {"critical": past})]


@pytest.mark.parametrize(
    ("past", "told"),
    [
        (hour(*range(3)), ["10.00% of the last 15 minutes' 300 runs failed, for 3m now"]),
        (hour(*range(12), idle=range(2)), ["38.46% of the last 15 minutes' 260 runs failed, for 12m now"]),
        (hour(*range(60)), ["50.00% of the last 15 minutes' 300 runs failed, for an hour or longer"]),
        (hour(*range(5, 8)), ["10.00% of the last 15 minutes' 300 runs failed"]),
        (hour(0, 5, 10, idle=range(1, 5), runs=1, failed=1), []),
        (hour(*range(60), runs=1, idle=range(3, 60)), ["100.00% of the last 15 minutes' 3 runs failed, for 3m now"]),
        (hour(*range(16, 60)), []),
        (hour(*range(20, 60), idle=range(20)), []),
        (hour(0), []),
    ],
)
def test_failures_are_judged_by_the_last_quarter_of_an_hour(past: RunHistory, told: list[str]) -> None:
    assert seen(QUEUE, past) == told


def test_a_queue_that_only_go_serves_is_judged_by_the_day() -> None:
    assert seen(QUEUE, None) == []
    assert seen(replace(QUEUE, failed=100_000), None) == ["10.00% of today's 1,000,000 runs failed"]


def test_a_warning_leads_to_the_failed_tasks_of_the_queue() -> None:
    (found,) = problems_of([QUEUE], [], {"critical": hour(*range(60))})
    assert found.search == "queue:critical state:retry,archived"
    odd = replace(QUEUE, queue='"a b"')
    (found,) = problems_of([odd], [], {'"a b"': hour(*range(60))})
    assert (found.search, found.state) == ("", "archived")


def test_a_problem_that_many_queues_have_is_one() -> None:
    waiting = [replace(QUEUE, queue=f"tenant-{n}", pending=n + 1) for n in range(5)]
    few, many = (
        problems_of(waiting[:3], [], {}),
        problems_of([*waiting, replace(QUEUE, pending=2, paused=True)], [], {}),
    )
    assert [problem.queue for problem in few] == ["tenant-0", "tenant-1", "tenant-2"]
    one, paused = many
    assert (one.seen, one.queue) == ("5 queues, 15 tasks: no server is running", "")
    assert one.advice == "Start one: fastq worker APP --queues QUEUE[,QUEUE…]"
    assert [problem.tasks for problem in one.folded] == [5, 4, 3, 2, 1]
    assert paused.seen == "paused, while 2 tasks wait"

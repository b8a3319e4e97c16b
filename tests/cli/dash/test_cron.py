"""The view of periodic tasks, and of when one was enqueued."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fastq import SchedulerEnqueueEvent, SchedulerEntry
from fastq.wire import keys
from fastq.wire.records import encode_scheduler_enqueue_event
from tests.cli.commands import Fastq
from tests.cli.dash.driving import driven, on_a_loop
from tests.cli.dash.scene import publish_entries

FAR = datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC)


@on_a_loop
async def test_periodic_tasks_are_listed_with_their_next_times(fastq: Fastq, db: Any) -> None:
    now = datetime.now(UTC)
    options = ('Queue("low")', "MaxRetry(3)")
    publish_entries(
        db,
        SchedulerEntry("e1", "@every 3h", "report", b"\x1b", options, FAR, None),
        SchedulerEntry("e2", "0 3 * * *", "clean", b"", (), None, now - timedelta(days=2, hours=3, minutes=1)),
    )
    for n in range(30):
        event = encode_scheduler_enqueue_event(SchedulerEnqueueEvent(f"t{n:02}", now - timedelta(hours=n)))
        db.zadd(keys.scheduler_history("e2"), {event: now.timestamp() - 3600 * n})
    async with driven(fastq.url) as dash:
        await dash.press("f3")
        await dash.sees(
            "2 periodic tasks",
            "SPEC       QUEUE    TYPE    NEXT",
            "▸ 0 3 * * *  default  clean   -",
            "2d 3h ago",
            " id e2",
        )
        await dash.press("j")
        await dash.sees("▸ @every 3h", "next 2096-10-02 07:06:40 UTC  id e1", 'Queue("low"), MaxRetry(3)  \\x1b')
        await dash.press("enter")
        await dash.sees("@every 3h  report  page 1", "There are no times on this page")
        await dash.press("n", "escape", "k", "enter")
        await dash.sees("0 3 * * *  clean  page 1", "▸ 20", "t00", "t16", no="t17")
        await dash.press("n")
        await dash.sees("page 2", "t17", "t29")
        await dash.press("p")
        await dash.sees("page 1", "t00")
        await dash.press("escape", "escape")
        await dash.sees("0 queues")


@on_a_loop
async def test_without_schedulers_that_is_said(fastq: Fastq) -> None:
    async with driven(fastq.url) as dash:
        await dash.press("f3")
        await dash.sees("0 periodic tasks", "There are no schedulers running.")

"""The view of servers and what they run."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fastq import WorkerInfo
from tests.cli.commands import Fastq
from tests.cli.dash.driving import driven, on_a_loop
from tests.cli.dash.scene import publish_server
from tests.inspector.harness import Seeded


def running(task_id: str, *, hours: int = 5, deadline: int = 15 * 3600 - 600) -> WorkerInfo:
    """Return a task that a server has been working on for some hours, so that no minute more is seen."""
    began = datetime.now(UTC) - timedelta(hours=hours, seconds=1)
    return WorkerInfo("h", 1, "s", task_id, "slow\x1b", b'{"n": 1}', "default", began, began + timedelta(0, deadline))


@on_a_loop
async def test_servers_are_listed_with_what_each_child_runs(fastq: Fastq, db: Any) -> None:
    Seeded(db).activate("t1", type="slow", payload=b"deep")
    publish_server(db, "aaaa1111", "host-a", [running("t0", hours=7, deadline=60), running("t1")], concurrency=4)
    publish_server(db, "bbbb2222", "host-b", [], concurrency=2)
    async with driven(fastq.url, refresh_s=1.0) as dash:
        await dash.sees("default")
        await dash.press("f2")
        await dash.sees("2 servers  2 of 6 busy", "▸ aaaa1111  host-a  4211  active     2/4  critical:6")
        await dash.sees(
            "host-a:4211 runs 2 tasks, 2 of 4 busy", " ago ", "in 9h ", "▸ t0       slow\\x1b  default   7h "
        )
        await dash.sees("  t1       slow\\x1b  default   5h ", '{"n": 1}')
        await dash.press("j")
        await dash.sees("host-b:4211 runs 0 tasks, 0 of 2 busy", "It runs no tasks now.", no="t1 ")
        await dash.press("k", "enter", "j", "enter")
        await dash.sees("task t1", "State    active", "deep")
        await dash.press("escape", "escape", "j")
        await dash.sees("▸ bbbb2222")
        publish_server(db, "bbbb2222", "host-b", [running("t9")], concurrency=2)
        await dash.sees("▸ t9")
        await dash.press("escape")
        await dash.sees("1 queue")


@on_a_loop
async def test_a_task_that_is_done_by_now_is_told(fastq: Fastq, db: Any) -> None:
    publish_server(db, "aaaa1111", "host-a", [running("t0")])
    async with driven(fastq.url) as dash:
        await dash.press("f2")
        await dash.sees("▸ t0")
        await dash.press("enter", "enter")
        await dash.sees("task t0  there is no such task")


@on_a_loop
async def test_without_servers_that_is_said(fastq: Fastq) -> None:
    async with driven(fastq.url) as dash:
        await dash.press("f2")
        await dash.sees("0 servers", "There are no servers running.")
        await dash.press("enter", "tab", "enter", "f1")
        await dash.sees("There are no queues yet.")

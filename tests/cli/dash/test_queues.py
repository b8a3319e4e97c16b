"""The view of all queues."""

import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from redis import Redis

from fastq.broker.operations.history import add_history
from fastq.broker.transport.open import open_broker
from fastq.wire import keys
from fastq.wire.history import COUNTERS
from tests.cli.commands import Fastq
from tests.cli.dash.driving import driven, on_a_loop
from tests.cli.dash.scene import pass_time
from tests.inspector.harness import Seeded


@on_a_loop
async def test_queues_are_listed_with_what_is_in_them(filled: Fastq) -> None:
    async with driven(filled.url, refresh_s=3600.0) as dash:  # a second look would tell rates
        await dash.sees("critical", "default", "low (paused)", "3 queues  13 tasks")
        assert dash.lines[3].split() == ["QUEUE", "STATES", "SIZE", "/S", "LATELY", "LATENCY", "MEMORY", "ERRORS"]
        assert dash.row("critical ").startswith("▸ critical ████████████ 1 - ")
        assert " default ████████████ 12 - " in f" {dash.row('default ')}"
        assert dash.row("default ").endswith("25.00%")
        assert dash.row("low (paused)").startswith("low (paused) ············ 0 - ")
        await dash.sees("pend 1", "today 0 runs")
        await dash.press("down")
        await dash.sees("act 2  pend 3  aggr 2  sched 2  retry 1  arch 1  compl 1", "today 40 runs, 10 failed")
        await dash.press("k")
        await dash.sees("today 0 runs")


@on_a_loop
async def test_what_was_lost_today_is_told(filled: Fastq, db: Redis) -> None:
    today = datetime.now(UTC)
    for day in (today, today + timedelta(days=1)):  # in case that midnight is about to come
        db.set(keys.lost("default", day), 7)
    async with driven(filled.url, size=(160, 40)) as dash:
        await dash.sees("today 40 runs, 25.00% failed, 7 lost")
        await dash.press("j")
        await dash.sees("today 40 runs, 10 failed, 7 lost with their servers  in total")


@on_a_loop
async def test_a_wide_terminal_has_more_columns_and_whole_names(filled: Fastq) -> None:
    async with driven(filled.url, size=(160, 40)) as dash:
        await dash.sees("PENDING  ACTIVE  RETRY  ARCHIVED  RUNS TODAY", "3 queues", "today 40 runs, 25.00% failed")
        await dash.press("j")
        await dash.sees("active 2  pending 3  aggregating 2  scheduled 2")
        await dash.resize(80, 24)
        await dash.sees("act 2  pend 3", no="ARCHIVED")


@on_a_loop
async def test_rates_are_told_once_there_were_two_looks(filled: Fastq, db: Redis) -> None:
    async with driven(filled.url, refresh_s=3600.0) as dash:
        await dash.sees("default", " -/s")
    async with driven(filled.url, refresh_s=1.0) as dash:
        await dash.sees("default")
        for name in ("critical", "default", "images", "low"):
            db.sadd(keys.all_queues(), name)
        pass_time(db, 100_000)
        text = await dash.until(lambda text: "█" in dash.row("default ").split("%")[0].split("12", 1)[1], "a sparkline")
        assert " -/s" not in text
        assert "failed/s" in text


@on_a_loop
async def test_the_recent_course_is_that_of_the_history_if_there_is_one(filled: Fastq, db: Redis) -> None:
    now_s = int(time.time())
    db.set(keys.processed_total("default"), 1)
    with closing(open_broker(filled.url)) as broker:
        for ago_min, done in ((3, 8), (2, 4), (1, 8)):
            counts = [done, *(0,) * (COUNTERS - 1)]
            broker.run(add_history("default", now_s - 60 * ago_min, {"t": counts}))
    async with driven(filled.url, refresh_s=3600.0) as dash:
        await dash.sees("default", "█▅█")


@on_a_loop
async def test_without_queues_that_is_said(fastq: Fastq, db: Redis) -> None:
    async with driven(fastq.url, refresh_s=1.0) as dash:
        await dash.sees("There are no queues yet.", "0 queues  0 tasks")
        await dash.press("enter", "P", "j", "G")
        await dash.sees("There are no queues yet.")
        Seeded(db, "fresh").pend("x")
        await dash.sees("▸ fresh", "1 queue")


@on_a_loop
async def test_a_queue_is_paused_and_resumed_once_that_was_confirmed(filled: Fastq, db: Redis) -> None:
    async with driven(filled.url) as dash:
        await dash.sees("critical")
        await dash.press("j", "P")
        await dash.sees("Pause default, so that servers leave its 3 pending tasks?")
        await dash.press("n")
        await dash.sees("Nothing was done.", "critical")
        assert not db.exists(keys.paused("default"))
        await dash.press("P", "y")
        await dash.sees("1 queue paused: default.", "default (paused)")
        assert db.exists(keys.paused("default"))
        await dash.press("P")
        await dash.sees("Resume default, so that servers take its 3 pending tasks?")
        await dash.press("y")
        await dash.sees("1 queue resumed: default.", no="default (paused)")
        assert not db.exists(keys.paused("default"))


@on_a_loop
async def test_what_somebody_else_did_first_is_told(filled: Fastq, db: Redis) -> None:
    async with driven(filled.url) as dash:
        await dash.sees("critical")
        await dash.press("P")
        await dash.sees("Pause critical")
        db.set(keys.paused("critical"), 1)
        await dash.press("y")
        await dash.sees("queue is already paused (queue='critical')", "critical (pause")  # cut once rates are known


@on_a_loop
async def test_names_that_would_upset_a_terminal_are_escaped(fastq: Fastq, db: Any) -> None:
    Seeded(db, "a\x1b[31m[red]\n").pend("x")
    db.sadd(keys.all_queues(), b"\xff\xfe", " ")
    async with driven(fastq.url, size=(130, 24)) as dash:
        await dash.sees(r"a\x1b[31m[red]\n", "1 queue", no="\x1b")
        await dash.press("enter")
        await dash.sees(r"a\x1b[31m[red]\n  pending 1-1 of 1", no="\x1b")


@on_a_loop
async def test_a_name_that_is_cut_is_told_whole(fastq: Fastq, db: Any) -> None:
    name = "eu-west-1:customer-000:webhooks-outgoing-priority"
    Seeded(db, name).pend("x")
    async with driven(fastq.url, size=(80, 24)) as dash:
        await dash.sees("1 queue  1 task", f" {name}", "today 0 runs")

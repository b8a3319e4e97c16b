"""The past of any number of queues is shown, and what is known of it is not read again."""

import asyncio
import re
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from redis import Redis

from fastq import AsyncInspector, Client, RunHistory
from fastq.broker.operations.history import add_history
from fastq.broker.transport.open import open_broker
from fastq.web import FastqWeb
from fastq.web.past import DAYS_KEPT_S, LATELY_KEPT_S, Past
from fastq.wire import keys
from fastq.wire.history import COUNTERS
from tests.manual_clock import ManualClock
from tests.web.serving import serving

QUEUES = [f"tenant-{n:02d}" for n in range(80)]


def count(url: str, queue: str, done: int, failed: int) -> None:
    """Let a server have counted runs, two minutes ago."""
    counts = [0] * COUNTERS
    counts[:2] = done, failed
    with closing(open_broker(url)) as broker:
        broker.run(add_history(queue, int(time.time()) - 120, {"t": counts}))


@pytest.fixture
def tenants(url: str, db: Redis) -> str:
    """Fill more queues than a page once read the history of."""
    today = datetime.now(UTC)
    with Client(url) as client:
        for queue in QUEUES:
            client.enqueue("t", queue=queue)
            for key, ago, many in ((keys.processed, 0, 9), (keys.failed, 0, 3), (keys.processed, 1, 5)):
                db.set(key(queue, today - timedelta(days=ago)), many)
            db.set(keys.processed_total(queue), 14)
            count(url, queue, 6, 3)
    return url


def test_rows_and_totals_have_all_queues(tenants: str) -> None:
    with serving(FastqWeb(tenants, auth=None)) as served:
        page, past = served.get("/").text, served.get("/history").text
    assert page.count('<svg class="spark"') == len(QUEUES)
    assert "no runs" not in page
    assert f"<dt>Runs</dt><dd>{9 * len(QUEUES)}</dd>" in past
    assert len(re.findall(r'<a class="name" href="/history\?since=1h&amp;queue=tenant-\d\d">', past)) == len(QUEUES)


def test_days_that_are_over_and_the_last_minutes_are_read_once_in_a_while(tenants: str, db: Redis) -> None:
    asyncio.run(_look_again(tenants, db))


async def _look_again(url: str, db: Redis) -> None:
    inspector, clock = AsyncInspector(url), ManualClock()
    past = Past(clock.monotonic_s)
    queue, today = QUEUES[0], datetime.now(UTC)

    async def look() -> tuple[int, int, int]:
        infos = await inspector.get_queue_infos(QUEUES[:2])
        days = await past.days(inspector, infos)
        history = (await past.lately(inspector, infos))[queue]
        assert history is not None
        return days[queue][-2].processed, days[queue][-1].processed, history.total.processed

    assert await look() == (5, 9, 9)
    count(url, queue, 1, 0)
    db.set(keys.processed(queue, today), 10)
    assert await look() == (5, 10, 9)
    clock.advance(LATELY_KEPT_S)
    assert await look() == (5, 10, 10)
    db.set(keys.processed(queue, today - timedelta(days=1)), 6)
    assert (await look())[0] == 5
    clock.advance(DAYS_KEPT_S)
    assert (await look())[0] == 6
    await inspector.close()


def test_a_queue_that_no_fastq_server_has_counted_has_no_minutes(url: str, db: Redis) -> None:
    async def look() -> dict[str, RunHistory | None]:
        inspector = AsyncInspector(url)
        try:
            return await Past().lately(inspector, await inspector.get_queue_infos(["go", "calm", "gone"]))
        finally:
            await inspector.close()

    with Client(url) as client:
        client.enqueue("t", queue="go")
        client.enqueue("t", queue="calm")
    db.set(keys.failed("go", datetime.now(UTC)), 3)
    assert asyncio.run(look()) == {"go": None}

"""The main process: what must come before what."""

import asyncio
from typing import cast

import pytest
from redis import Redis

from fastq import AsyncClient, AsyncInspector, Task
from fastq.pool.main.protocol import EventKind
from fastq.server.actors.heartbeater import Heartbeater
from fastq.server.base.config import ServerConfig
from fastq.server.wiring.process import ProcessOptions, ServerProcess
from tests.broker.harness import until
from tests.pool.harness import run

APP = "tests.e2e.apps:mux"


def test_who_asks_hooks_has_stopped_before_the_hooks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a task might be judged without them, or a health check start their child anew."""
    seen: list[list[asyncio.Task[None] | None]] = []

    async def test() -> None:
        process = ServerProcess(ProcessOptions(APP, url, ServerConfig(concurrency=1)))
        stop = process.hooks.stop

        async def look_and_stop() -> None:
            seen.append([process.healthchecker._task, process.recoverer._task])
            await stop()

        monkeypatch.setattr(process.hooks, "stop", look_and_stop)

        def is_ready() -> None:
            assert process.healthchecker._task is not None
            assert process.recoverer._task is not None
            process.begin_shutdown()

        await process.run(is_ready)

    run(test())
    assert seen == [[None, None]]


def test_a_task_that_is_scheduled_wakes_the_forwarder_in_time(db: Redis, url: str) -> None:
    """Its own looks are an hour apart."""

    async def test() -> None:
        config = ServerConfig(concurrency=1, queues={"a": 1, "b": 1}, delayed_task_check_interval=3600)
        process = ServerProcess(ProcessOptions(APP, url, config))

        async def schedule() -> None:
            await until(lambda: process.subscriber.is_subscribed and process.forwarder.ticks > 0)
            async with AsyncClient(url) as client:
                await client.enqueue("ok", queue="b", process_in=1)
            await until(lambda: process.stats.counts[EventKind.DONE] == 1)
            process.begin_shutdown()

        scheduling: list[asyncio.Task[None]] = []
        await process.run(lambda: scheduling.append(asyncio.create_task(schedule())))
        await scheduling[0]

    run(test())


def test_the_history_of_a_run_without_faults_has_what_redis_has_counted(db: Redis, url: str) -> None:
    """What was not written before is written at the end; deleting the queue leaves none of it."""
    tasks = [*(Task("ok") for _ in range(20)), Task("fail", max_retry=0), Task("fail", max_retry=3)]

    async def test() -> None:
        async with AsyncClient(url) as client, AsyncInspector(url) as inspector:
            for is_kept in (True, False):
                await client.enqueue_many(tasks)
                config = ServerConfig(concurrency=1, history=is_kept)
                options = ProcessOptions(APP, url, config, idle_s=0)
                await ServerProcess(options).run(lambda: None)
            info = await inspector.get_queue_info("default")
            history = await inspector.run_history("default", 8 * 3600, by_type=True)
            await inspector.delete_queue("default", force=True)
        total = history.total
        assert (2 * total.processed, 2 * total.failed) == (info.processed_total, info.failed_total) == (44, 4)
        assert (total.retried, total.archived, total.lost) == (1, 1, 0)
        assert total.run.count == total.wait.count == 22
        assert {name: stats.processed for name, stats in history.types.items()} == {"fail": 2, "ok": 20}

    run(test())
    assert db.keys("*{default}*") == []


def test_a_server_is_shown_as_quiet_once_no_dequeue_is_under_way(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def beat(heartbeater: Heartbeater) -> None:
        beats = heartbeater.ticks
        heartbeater.wake()
        await until(lambda: heartbeater.ticks > beats)

    def published() -> bytes:
        return b"".join(cast("bytes", db.get(key)) for key in db.scan_iter("asynq:servers:*"))

    async def test() -> None:
        process = ServerProcess(ProcessOptions(APP, url, ServerConfig(concurrency=1)))
        may_end, end_fetching = asyncio.Event(), process.fetcher._end_fetching

        async def end_later() -> float:
            await may_end.wait()
            return await end_fetching()

        monkeypatch.setattr(process.fetcher, "_end_fetching", end_later)

        async def go_quiet() -> None:
            try:
                process.quiet()
                for _ in range(2):
                    await beat(process.heartbeater)
                assert b"active" in published()
                may_end.set()
                await until(lambda: b"stopped" in published())
            finally:
                may_end.set()
                process.begin_shutdown()

        going: list[asyncio.Task[None]] = []
        await process.run(lambda: going.append(asyncio.create_task(go_quiet())))
        await going[0]

    run(test())

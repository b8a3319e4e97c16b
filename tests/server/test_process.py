"""The main process: what must come before what."""

import asyncio

import pytest
from redis import Redis

from fastq import AsyncClient
from fastq.pool.protocol import EventKind
from fastq.server.config import ServerConfig
from fastq.server.process import ProcessOptions, ServerProcess
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

"""The main process: what must come before what."""

import asyncio

import pytest

from fastq.server.config import ServerConfig
from fastq.server.process import ProcessOptions, ServerProcess
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
            process.stop_soon()

        await process.run(is_ready)

    run(test())
    assert seen == [[None, None]]

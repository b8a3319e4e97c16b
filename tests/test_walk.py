"""The files that a task passes on its way; whoever follows it reads these. ARCHITECTURE.md tells the way."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client
from fastq.pool.main.protocol import EventKind
from fastq.server.base.config import ServerConfig
from fastq.server.base.timing import Timing
from fastq.server.wiring.process import ProcessOptions, ServerProcess
from tests.broker.harness import until
from tests.pool.harness import run
from tests.walked_app import FILE, Walk

ENQUEUE = {
    "client.py",
    "enqueueing/producer.py",
    "task.py",
    "common/encoding.py",
    "options.py",
    "info.py",
    "common/clock.py",
    "wire/keys.py",
    "broker/operation.py",
    "broker/operations/enqueue.py",
    "broker/transport/blocking.py",
    "broker/transport/exchange.py",
}
"""Beside these there are ``_ids.pyx``, ``_codec.pyx``, ``packing.pyx`` and ``enqueue.lua``."""
FETCH = {
    "server/actors/waker.py",
    "broker/transport/wait.py",
    "server/actors/fetcher.py",
    "server/actors/per_node.py",
    "server/inflight/uncertain.py",
    "broker/operations/dequeue.py",
    "broker/operations/lease.py",
}
RUN = {"server/inflight/processor.py", "server/base/relay.py", "pool/main/pool.py"}
ACK = {
    "server/actors/acker.py",
    "server/actors/syncer.py",
    "server/inflight/ack_writer.py",
    "server/inflight/ack_planner.py",
    "server/inflight/stall.py",
    "broker/operations/finish.py",
    "common/clock.py",
}
ASK = {
    "server/actors/actor.py",
    "server/base/outage.py",
    "server/base/commands.py",
    "wire/keys.py",
    "broker/operation.py",
    "broker/transport/aio.py",
    "broker/transport/exchange.py",
    "broker/transport/line.py",
}
"""What each actor passes that asks Redis for something."""
BESIDE = {
    *(f"pool/main/{name}.py" for name in ("supervisor", "seats", "timekeeper", "memory_watch", "step_watch", "census")),
    "pool/shared/processes.py",
    *("server/actors/beacon.py", "broker/operations/signs.py", "broker/transport/own_line.py"),
    "broker/transport/sentinel.py",
}
"""What the pool's clock may do meanwhile, and a sign of life."""
CHILD = {"pool/child/run.py", "pool/shared/control.py", "worker/child/handler_runner.py", "mux.py"}
"""Beside these there are the extensions ``_prioritizer``, ``_codec``, ``_processor``, ``tasks``, ``tally``,
``dispatcher``, ``child_queue``, ``ring``, ``slots``, ``work`` and ``packing``, ``dequeue.lua`` and ``done.lua``."""


def test_a_task_that_is_enqueued_passes_these_files(db: Redis, url: str) -> None:
    walk = Walk()
    with Client(url) as client:
        client.enqueue("t")  # connects, registers the queue, and looks for its limit
        client.enqueue("t")  # Redis learns the script
        walk.begin()
        try:
            client.enqueue("t", {"id": 7})
        finally:
            walk.end()
    assert walk.passed == ENQUEUE


def is_through(process: ServerProcess, tasks: int) -> bool:
    return process.stats.counts[EventKind.DONE] == tasks and not process.stats.in_flight


def test_a_task_that_is_run_and_acked_passes_these_files(
    db: Redis, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, walks = tmp_path / "child", [Walk() for _ in range(3)]
    monkeypatch.setenv(FILE, str(file))
    # Little else is done meanwhile, and nothing thrice.
    config = ServerConfig(concurrency=1, delayed_task_check_interval=3600, janitor_interval=3600)
    timing = Timing(heartbeat_interval_s=3600, recoverer_interval_s=3600, watchdog_interval_s=3600)

    async def test() -> None:
        process = ServerProcess(ProcessOptions("tests.walked_app:mux", url, config, timing=timing))

        async def work() -> None:
            with Client(url) as client:
                begun = (process.heartbeater, process.recoverer, process.forwarder, process.fetcher)
                await until(lambda: process.subscriber.is_subscribed and all(actor.ticks for actor in begun))
                for done, walk in enumerate([None, *walks, None], 1):
                    if walk:
                        walk.begin()
                    await asyncio.to_thread(client.enqueue, "t" if walk else "begin" if done == 1 else "end")
                    await until(partial(is_through, process, done))
                    if walk:
                        walk.end()
            process.begin_shutdown()

        working: list[asyncio.Task[None]] = []
        await process.run(lambda: working.append(asyncio.create_task(work())))
        await working[0]

    run(test())
    passed = set.intersection(*(walk.passed for walk in walks))
    assert passed - BESIDE == FETCH | RUN | ACK | ASK
    assert set(json.loads(file.read_text("utf-8"))) == CHILD


def test_architecture_tells_the_way_with_these_files() -> None:
    text = (Path(__file__).parent.parent / "ARCHITECTURE.md").read_text("utf-8")
    told = text.partition("**The way of one task**")[2].partition("\nEach state is")[0].replace("\n", " ")
    run = FETCH | RUN | ACK | ASK | CHILD
    assert [file for file in sorted(ENQUEUE | run) if file.rpartition("/")[2] not in told] == []
    assert f"{len(ENQUEUE)} modules and 3 extensions to enqueue it" in told
    assert f"{len(run)} and 11 to run and ack it" in told

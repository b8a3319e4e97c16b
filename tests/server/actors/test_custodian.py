"""The custodian: held tasks that are nowhere go back to their queue; a server that can do no work says so."""

import asyncio
import os
import signal
from typing import Any

import pytest
from redis import Redis

from fastq import Client, Task
from fastq.broker.operations.cancel import Cancellation
from fastq.pool.main.pool import ProcessPool
from fastq.pool.shared.event_kind import EventKind
from fastq.server.actors.acker import Acker
from fastq.server.actors.custodian import UNABLE_S, Custodian
from fastq.server.actors.syncer import Syncer
from fastq.server.base.config import ServerConfig
from fastq.server.base.timing import Timing
from fastq.server.inflight.processor import requeued
from fastq.server.wiring.presence import ServerStatus
from fastq.server.wiring.process import ProcessOptions, ServerProcess
from fastq.wire import keys
from tests.pool.harness import run
from tests.server.harness import Bench, logged, no_news, on_bench
from tests.waiting import until


class Site:
    """A custodian with an acker and a syncer, and a pool that has what ``has`` says."""

    def __init__(self, bench: Bench) -> None:
        self.syncer = Syncer(bench.writer, bench.in_flight)
        self.acker = Acker(bench.writer, bench.in_flight, lambda: False, no_news, self.syncer.wake_soon)
        self.has: set[object] = set()
        self.works = True
        self.told: list[bool] = []
        self.custodian = Custodian(
            bench.in_flight,
            lambda: self.has | self.acker.tasks(),
            self.syncer.write_soon,
            lambda: self.works,
            self.told.append,
            no_news,
        )


def test_a_held_task_that_is_nowhere_is_given_back_and_said_once(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        site = Site(bench)
        site.has.update(bench.hold("pooled"))
        bench.hold("lost-1", "lost-2")
        await site.custodian.tick()
        assert logged(caplog) == [], "it may have been on its way"
        await site.custodian.tick()
        (line,) = logged(caplog)
        assert line.endswith("lost track of 2 tasks in flight; requeueing them: lost-1 (default), lost-2 (default)")
        await site.custodian.tick()
        await site.syncer.tick()
        assert bench.in_flight_ids() == ["pooled"]
        assert bench.queue.places() == {"active": ["pooled"], "lease": ["pooled"], "pending": ["lost-2", "lost-1"]}
        await site.custodian.tick()
        assert len(logged(caplog)) == 1

    on_bench(db, url, test)


def test_what_is_about_to_be_written_is_not_taken_for_lost(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        site = Site(bench)
        waiting, failed, _ = bench.hold("waiting", "failed", "lost")
        site.acker.add([requeued(waiting)])
        bench.ends.add([requeued(failed)])
        seen: list[Any] = []
        run_many = bench.commands.run_many

        async def look(operations: Any) -> Any:
            for _ in range(2):
                await site.custodian.tick()
            seen.append([task.id for task in bench.ends.waiting])
            return await run_many(operations)

        bench.commands.run_many = look  # type: ignore[method-assign]  # while a write is under way
        await site.acker.tick()
        assert seen == [["failed", "lost"]]
        assert bench.in_flight_ids() == ["failed", "lost"]

    on_bench(db, url, test)


def test_a_server_whose_children_are_away_for_long_says_so_until_one_is_back(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        site = Site(bench)
        site.works = False
        await site.custodian.tick()
        bench.clock.advance(UNABLE_S - 1)
        await site.custodian.tick()
        site.works = True
        await site.custodian.tick()
        site.works = False
        await site.custodian.tick()
        bench.clock.advance(UNABLE_S - 1)
        await site.custodian.tick()
        assert site.told == [], "it was not for so long at a time"
        bench.clock.advance(1)
        for _ in range(2):
            await site.custodian.tick()
        assert site.told == [False]
        site.works = True
        await site.custodian.tick()
        assert site.told == [False, True]
        assert len(logged(caplog)) == 1

    on_bench(db, url, test)


def test_a_server_without_children_gives_its_tasks_back_is_shown_as_stopped_and_resumes(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.server.actors.custodian.UNABLE_S", 0.0)

    async def test() -> None:
        timing = Timing(heartbeat_interval_s=0.01)
        process = ServerProcess(ProcessOptions("tests.e2e.apps:mux", url, ServerConfig(concurrency=1), timing=timing))

        def status() -> str:
            return "stopped" if b"stopped" in process.presence()[0] else "active"

        async def scene() -> None:
            pool = process.pool
            assert isinstance(pool, ProcessPool)
            await until(lambda: process.custodian.ticks)
            assert status() == "active"
            (child,) = pool.child_states
            os.kill(child, signal.SIGSTOP)
            with Client(url) as client:
                client.enqueue_many([Task("ok"), Task("ok")])
            await until(lambda: process.tasks)
            os.kill(pool.preloader_pid, signal.SIGSTOP)
            os.kill(child, signal.SIGKILL)
            await until(lambda: status() == "stopped")
            assert process.presence.status is ServerStatus.ACTIVE, "nobody told it to stop"
            await until(lambda: not process.tasks)
            assert (db.llen(keys.pending("default")), db.zcard(keys.lease("default"))) == (2, 0)
            os.kill(pool.preloader_pid, signal.SIGCONT)
            await until(lambda: status() == "active")
            await until(lambda: process.stats.counts[EventKind.DONE] == 2)
            process.begin_shutdown()

        scenes: list[asyncio.Task[None]] = []
        await process.run(lambda: scenes.append(asyncio.create_task(scene())))
        await scenes[0]

    run(test())


def test_a_server_forgets_what_it_was_told_of_other_servers_tasks(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.server.inflight.cancellations.REMEMBER_S", 0.0)

    async def test() -> None:
        process = ServerProcess(ProcessOptions("tests.e2e.apps:mux", url, ServerConfig(concurrency=1)))
        process.early.keep(Cancellation("another's"))
        await process.custodian.tick()
        assert not process.early

    run(test())

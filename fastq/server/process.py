"""The main process of a server: wires the actors, starts and stops them in order.

Start: the pool first, since without an app there is nothing to serve; then heartbeater … janitor, in asynq's order.
Shutdown: stop fetching, give back what has not begun, let running handlers finish, requeue those that did not, flush,
take the server's name off the list.
"""

import asyncio
import logging
import time
from dataclasses import dataclass

from fastq.broker.aio import AsyncBroker
from fastq.broker.health import ping
from fastq.broker.lease import Owner
from fastq.broker.open import open_async_broker
from fastq.broker.presence import clear_server_state, write_result
from fastq.clock import Clock, SystemClock
from fastq.errors import BrokerError
from fastq.pool.config import PoolConfig
from fastq.pool.link import PoolStartError
from fastq.pool.protocol import Kind
from fastq.prioritizer import Prioritizer
from fastq.retry_delay import default_retry_delay
from fastq.server.acker import Acker, Result
from fastq.server.actor import Actor
from fastq.server.commands import Commands
from fastq.server.config import ServerConfig
from fastq.server.crew import Crew, CrewCallbacks
from fastq.server.fetcher import Fetcher
from fastq.server.forwarder import Forwarder
from fastq.server.healthchecker import Healthchecker
from fastq.server.heartbeater import Heartbeater
from fastq.server.held import HeldTask, HeldTasks
from fastq.server.janitor import Janitor
from fastq.server.presence import ServerStatus, Showcase, new_identity
from fastq.server.recoverer import Recoverer
from fastq.server.stall import StallWatch
from fastq.server.subscriber import Subscriber
from fastq.server.syncer import Syncer
from fastq.server.waker import Waker
from fastq.worker.runner import runner_argument

__all__ = ["ProcessOptions", "ServerProcess"]

MAX_WAKERS = 16
"""Above so many queues the rest are polled: each waker holds a connection."""
BURST_CHECK_S = 0.02

_log = logging.getLogger("fastq")


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Say what is served, from where, how; ``burst`` ends the server when its queues are empty."""

    app: str
    redis: str | None
    config: ServerConfig
    burst: bool = False
    connect_timeout_s: float = 30.0


class ServerProcess:
    """Be the main process of one server, on the running event loop."""

    def __init__(self, options: ProcessOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        config = self.config = options.config
        self._broker: AsyncBroker = open_async_broker(options.redis)
        self.commands = Commands(self._broker)
        self.held = HeldTasks()
        self.owner = Owner.draw()
        self.identity = new_identity()
        self.stall = StallWatch(self._clock)
        self.acker = Acker(self.commands, self.held, self.owner, self.stall, self._clock)
        callbacks = CrewCallbacks(self._finish, self._write_result, self._pool_failed, self._was_canceled)
        self.crew = Crew(pool_config(options), self.held, default_retry_delay, callbacks, self._clock)
        self.showcase = Showcase(self.identity, config, self.crew.pool.running, self._clock)
        self._failure: PoolStartError | None = None
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._writes: set[asyncio.Task[None]] = set()
        self._make_actors(config)

    def _make_actors(self, config: ServerConfig) -> None:
        queues = list(config.queues)
        clock, commands = self._clock, self.commands
        self.heartbeater = Heartbeater(
            self._broker, self.identity, self.showcase, self.held, self.owner, self.stall, self.crew.lose, clock
        )
        self.healthchecker = Healthchecker(commands, config.seconds("health_check_interval"), None)
        self.subscriber = Subscriber(self._broker, self.crew.cancel, clock)
        self.syncer = Syncer(self.acker, self.held, self.owner, clock)
        self.recoverer = Recoverer(commands, queues, default_retry_delay, clock)
        self.forwarder = Forwarder(commands, queues, config.seconds("delayed_task_check_interval"), clock)
        self.fetcher = Fetcher(
            commands,
            Prioritizer(config.queues, config.strict_priority),
            self.held,
            self.owner,
            lambda: self.crew.pool.free,
            self.crew.accept,
            config.seconds("task_check_interval"),
            clock,
        )
        self.wakers = {queue: Waker(self._broker, queue, self.fetcher.queue_has_tasks) for queue in queues[:MAX_WAKERS]}
        self.fetcher.wakers = self.wakers
        self.janitor = Janitor(commands, queues, config.seconds("janitor_interval"), config.janitor_batch_size, clock)

    @property
    def actors(self) -> list[Actor]:
        """Return the actors in the order in which they start."""
        return [
            self.heartbeater,
            self.healthchecker,
            self.subscriber,
            self.syncer,
            self.acker,
            self.recoverer,
            self.forwarder,
            self.fetcher,
            *self.wakers.values(),
            self.janitor,
        ]

    @property
    def where(self) -> str:
        """Return where Redis is, without any secret."""
        return f"Redis at {self._broker.transport.where}"

    def summary(self) -> str:
        """Return in a line what was done since the start."""
        counts = self.crew.counts
        done = counts[Kind.DONE] + counts[Kind.RESULT]
        rest = {kind: n for kind, n in counts.items() if kind not in (Kind.DONE, Kind.RESULT) and n}
        others = "".join(f", {n} {kind.name.lower().replace('_', ' ')}" for kind, n in rest.items())
        return f"{done} tasks done{others}; {len(self.held)} held"

    # Life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until ``stop_soon``; raise ``PoolStartError`` or ``BrokerError`` if it cannot begin or go on."""
        try:
            await self._wait_for_redis()
            await self.crew.start()
            self.showcase.slots = self.config.concurrency
            self.stall.start()
            for actor in self.actors:
                actor.start()
            await (self._until_drained() if self._options.burst else self._stopping.wait())
        finally:
            await self._shut_down()
        if self._failure is not None:
            raise self._failure

    def stop_soon(self) -> None:
        """Begin the shutdown; called again, skip the waiting."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def stop_fetching(self) -> None:
        """Take no more tasks, and finish those that are here; the server goes on showing itself."""
        self.showcase.status = ServerStatus.STOPPED
        await self.fetcher.stop()
        self.heartbeater.wake()

    async def _wait_for_redis(self) -> None:
        deadline_s = time.monotonic() + self._options.connect_timeout_s
        said_s = -10.0
        while True:
            try:
                await self._broker.run(ping())
                return
            except BrokerError as error:
                now_s = time.monotonic()
                if not error.transient or now_s >= deadline_s or self._stopping.is_set():
                    raise
                if now_s - said_s >= 3.0:
                    _log.warning("%s; trying again for %.0f s", error, deadline_s - now_s)
                    said_s = now_s
                await asyncio.sleep(0.5)

    async def _until_drained(self) -> None:
        """Wait until the queues are empty and nothing is held here; paused queues do not count."""
        while not self._stopping.is_set():
            if self.fetcher.all_resting and not len(self.held) and not self.acker.failed:
                return
            try:
                await asyncio.wait_for(self._stopping.wait(), BURST_CHECK_S)
            except TimeoutError:
                continue

    async def _shut_down(self) -> None:
        self.showcase.status = ServerStatus.CLOSED
        for actor in (self.fetcher, *self.wakers.values(), self.forwarder, self.recoverer, self.janitor):
            await actor.stop()
        self._finish(self.crew.give_back())
        await self._drain()
        await self.crew.pool.stop()
        await asyncio.gather(*self._writes, return_exceptions=True)
        for actor in (self.subscriber, self.healthchecker, self.syncer, self.acker):
            await actor.stop()
        await self._last_writes()
        await self.heartbeater.stop()
        self.stall.stop()
        await self._broker.run_many(clear_server_state(self.identity))
        await self._broker.close()

    async def _drain(self) -> None:
        """Let running handlers finish, for as long as the setting and a second signal allow."""
        draining = asyncio.ensure_future(self.crew.pool.drain(self.config.seconds("shutdown_timeout")))
        hurrying = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (draining, hurrying):
            waiting.cancel()
        await asyncio.gather(draining, hurrying, return_exceptions=True)

    async def _last_writes(self) -> None:
        try:
            await self.acker.flush()
            if self.acker.failed:
                await self.syncer.tick()
        except BrokerError as error:
            _log.error("%s", error)
        if self.acker.failed:
            _log.error(
                "the outcomes of %d tasks could not be written; they run again once their leases have ended",
                len(self.acker.failed),
            )

    # What actors and pool tell ----------------------------------------------------------------------------------

    def _finish(self, results: list[Result]) -> None:
        if results:
            self.acker.add(results, pool_is_dry=not self.crew.pool.pending)
            self.fetcher.wake()

    def _write_result(self, task: HeldTask, data: bytes) -> None:
        writing = asyncio.create_task(self._store(task, data))
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)

    async def _store(self, task: HeldTask, data: bytes) -> None:
        try:
            await self.commands.run(write_result(task.queue, task.id, self.owner, data))
        except BrokerError as error:
            _log.warning("an intermediate result of task %s was not written: %s", task.id, error)

    def _pool_failed(self, error: PoolStartError) -> None:
        self._failure = error
        self._stopping.set()
        self._hurry.set()

    def _was_canceled(self, task_id: str) -> bool:
        return self.subscriber.was_canceled(task_id)


def pool_config(options: ProcessOptions) -> PoolConfig:
    """Return the pool's part of a server's settings."""
    config = options.config
    hooks = {name: getattr(config, name) for name in ("error_handler", "is_failure", "retry_delay")}
    return PoolConfig(
        runner="fastq.worker.runner:load",
        argument=runner_argument(options.app, **hooks),
        processes=config.concurrency,
        start_method=config.start_method,
        timeout_grace=config.seconds("timeout_grace"),
        max_tasks_per_child=config.max_tasks_per_child,
        max_memory_per_child=config.max_memory_per_child,
        async_concurrency=config.async_concurrency,
        prefetch_time=config.seconds("prefetch_time"),
    )

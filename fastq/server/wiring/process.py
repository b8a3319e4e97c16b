"""The main process of a server: wires the actors, starts and stops them in order.

Start: the pool first, since without an app there is nothing to serve; then heartbeater … janitor, in asynq's order.
Shutdown: fetch no more, requeue the tasks that have not begun, let running handlers finish, requeue those that did not,
write the last acks, and delete the server's published data.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias

from fastq._prioritizer import Prioritizer
from fastq.broker.operations.control import ServerOrder
from fastq.broker.operations.lease import Owner
from fastq.broker.operations.presence import ServerIdentity, clear_server_state
from fastq.broker.operations.signs import withdraw_sign
from fastq.broker.transport.aio import AsyncBroker
from fastq.broker.transport.open import open_async_broker
from fastq.broker.transport.own_line import OwnLine
from fastq.broker.transport.wait import TaskWatch
from fastq.common.clock import Clock, SystemClock
from fastq.log.setup import log_text
from fastq.pool.main.pool import ForkServer, PoolConfig, ProcessPool
from fastq.pool.main.protocol import Pool, PoolStartError
from fastq.server.actors.acker import Acker
from fastq.server.actors.actor import Actor, stop_all
from fastq.server.actors.aggregation import Aggregation
from fastq.server.actors.archive_keeper import ArchiveKeeper
from fastq.server.actors.beacon import Beacon, OwnProcess
from fastq.server.actors.custodian import Custodian
from fastq.server.actors.fetcher import Fetcher
from fastq.server.actors.forwarder import Forwarder
from fastq.server.actors.healthchecker import Healthchecker
from fastq.server.actors.heartbeater import Heartbeater
from fastq.server.actors.historian import Historian
from fastq.server.actors.janitor import Janitor
from fastq.server.actors.lane_keeper import LaneKeeper
from fastq.server.actors.lost_tasks import LostTaskRules, LostTasks
from fastq.server.actors.reclaimer import Reclaimer
from fastq.server.actors.recoverer import Recoverer
from fastq.server.actors.subscriber import Subscriber, due_topic, order_topic
from fastq.server.actors.syncer import Syncer
from fastq.server.actors.waker import Waker
from fastq.server.actors.watchdog import Watchdog
from fastq.server.base.commands import Commands
from fastq.server.base.config import ServerConfig, seconds_of
from fastq.server.base.relay import Relay
from fastq.server.base.retry_delay import default_retry_delay
from fastq.server.base.this_process import ThisProcess
from fastq.server.base.timing import STANDARD, Timing
from fastq.server.children.aggregation_child import AggregationChild
from fastq.server.children.hook_child import HookChild
from fastq.server.children.reloader import Reloader
from fastq.server.inflight.ack_writer import AckWriter
from fastq.server.inflight.cancellations import EarlyCancellations
from fastq.server.inflight.checkpoint_writer import CheckpointWriter
from fastq.server.inflight.failed_attempts import FailedAttempts
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.processor import Processor
from fastq.server.inflight.result_writer import ResultWriter
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.task_log import TaskLog
from fastq.server.inflight.unknown import UnknownTypes
from fastq.server.wiring.connecting import check_rights, describe_redis, wait_for_redis
from fastq.server.wiring.countdown import GOODBYE_S, LAST_WRITES_S, Countdown, within
from fastq.server.wiring.destinations import log_unserved, refusal_of
from fastq.server.wiring.presence import ServerPresence, ServerStatus, new_identity
from fastq.wire import keys
from fastq.wire.attempts import server_name
from fastq.worker.shared.description import AppDescription
from fastq.worker.shared.requests import HANDLER_RUNNER, runner_argument

BURST_CHECK_S: Final = 0.02
LAST_WRITES_EVERY_S: Final = 0.1
LAST_TICK_S: Final = 1.0
"""How long to wait for the reply to the last dequeue before tasks that have not begun are requeued."""
FOREVER_S: Final = 1e9

_log = logging.getLogger("fastq")
_pool_log = logging.getLogger("fastq.pool")

MakeAggregationChild: TypeAlias = Callable[[ServerConfig, float, str, ForkServer], AggregationChild]


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """The app, Redis and settings of a server.

    The server ends once it has had nothing to do for ``idle_s`` (0: as soon as its queues are empty, None: never), or
    once it has run ``max_tasks`` tasks (0: any number). ``watches`` reloads the app when a Python file
    below the current directory changes.
    """

    app: str
    redis: str | None
    config: ServerConfig
    idle_s: float | None = None
    max_tasks: int = 0
    watches: bool = False
    connect_timeout_s: float = 30.0
    timing: Timing = STANDARD


class ServerProcess:
    """The main process of one server, on the running event loop."""

    where = ""
    """Which Redis the server is connected to."""
    load_s = 0.0
    """How long it took until all children were ready."""
    has_begun = False
    """Whether this server has begun to fetch."""
    has_finished = False
    """Whether this server ended because nothing was left to do, not because it was stopped."""
    _failure: PoolStartError | None = None

    def __init__(
        self,
        options: ProcessOptions,
        clock: Clock | None = None,
        *,
        identity: ServerIdentity | None = None,
        make_pool: Callable[[PoolConfig, ForkServer], Pool] = ProcessPool,
        own_process: OwnProcess | None = None,
        make_aggregation_child: MakeAggregationChild = AggregationChild,
    ) -> None:
        self._options = options
        config = self.config = options.config
        self._clock = clock or SystemClock()
        self.identity = identity or new_identity()
        self._own_process = own_process or ThisProcess()
        # The fetcher is made last. Other parts call it through these relays when there is room for a task, or a queue
        # has tasks.
        self._make_room, self._on_tasks = Relay[[]](), Relay[[str]]()
        notices, infos = (partial(log_text, _pool_log, level) for level in (logging.WARNING, logging.INFO))
        self.forks = ForkServer(pool_config(options), notices, infos)
        self.reloader = Reloader(self.forks, options.app, self._note_reload)
        self.hooks = HookChild(config, options.app, self.forks)
        self.pool = make_pool(self.forks.config, self.forks)
        self._broker: AsyncBroker = open_async_broker(options.redis, ask=self.hooks.credentials, in_one_loop=True)
        self.commands = Commands(self._broker, self._broker.transport.node_name_of)
        self.owner = Owner.draw()
        self.stall = StallWatch(self._clock, options.timing.stall_s)
        self.in_flight = InFlight.of(self.owner, self.stall, self._clock, options.timing)
        self.tasks, self.stats = self.in_flight.tasks, self.in_flight.stats
        self._make_writers()
        self._make_processor()
        self._make_watchers(options.timing, make_aggregation_child)
        self._make_fetcher()
        self._make_keepers()
        self.actors = self._in_order()
        self.watchdog = Watchdog(self.actors, options.timing, self.stats)
        self._logged_app = AppDescription()
        self.stopping = asyncio.Event()
        self._hurry = asyncio.Event()

    def _make_writers(self) -> None:
        """Make the writers of acks, results, progress, checkpoints and logs."""
        commands, clock = self.commands, self._clock
        name = server_name(self.identity.host, self.identity.pid)
        self.task_log = TaskLog(self.config.task_log, name, clock)
        self.ack_writer = AckWriter(commands, self.in_flight, self.task_log)
        self.syncer = Syncer(self.ack_writer, self.in_flight)
        self.acker = Acker(
            self.ack_writer, self.in_flight, lambda: not self.pool.pending, self._make_room, self.syncer.wake_soon
        )
        self.result_writer = ResultWriter(commands, self.owner)
        self.checkpoint_writer = CheckpointWriter(commands, self.in_flight, self.pool.note_saved)
        self.failed_attempts = FailedAttempts(commands, clock, name)

    def _make_processor(self) -> None:
        config, clock = self.config, self._clock
        self.early = EarlyCancellations(clock)
        self.processor = Processor(
            self.pool,
            config,
            self.in_flight,
            delay_rule=default_retry_delay,
            finish=self.acker.add,
            results=self.result_writer,
            checkpoints=self.checkpoint_writer,
            progress=self.ack_writer.progress,
            attempts=self.failed_attempts,
            early=self.early,
            commands=self.commands,
            unknown=UnknownTypes(config.unknown_tasks, self._broker, clock),
            judge=self.hooks.judge_failure if self.hooks.judges else None,
            make_room=self._make_room,
            failed=self._pool_failed,
        )
        self.presence = ServerPresence(self.identity, config, self.pool.running, self.pool.census, clock)

    def _make_watchers(self, timing: Timing, make_aggregation_child: MakeAggregationChild) -> None:
        """Make the actors that send heartbeats, listen, and look for due or lost tasks."""
        config, commands, clock, outage = self.config, self.commands, self._clock, self.stats.outage
        queues = list(config.queues)
        self.heartbeater = Heartbeater(self._broker, self.identity, self.presence, self.in_flight, self.processor.lose)
        self.healthchecker = Healthchecker(
            commands,
            seconds_of(config.health_check_interval),
            self.hooks.check_health if self.hooks.checks_health else None,
            outage,
        )
        check_s = seconds_of(config.delayed_task_check_interval)
        self.forwarder = Forwarder(commands, queues, check_s, clock, self.stats, self._on_tasks)
        self.lane_keeper = LaneKeeper(commands, queues, clock, self._on_tasks, outage)
        due = due_topic(queues, self.forwarder.note_due, self.lane_keeper, check_s)
        topics = order_topic(self.identity.server_id, self.obey), due
        self.subscriber = Subscriber(self._broker, self.processor.cancel, self.early, clock, topics, outage)
        child = make_aggregation_child(config, timing.aggregation_s, self._options.app, self.forks)
        self.aggregation = Aggregation(config, timing, commands, clock, child, self.stats)
        aggregates = config.group_aggregator is not None
        reclaimer = Reclaimer(commands, clock, self.lane_keeper.look_at, aggregates=aggregates)
        lost = _lost_tasks(self)
        self.recoverer = Recoverer(commands, queues, self.in_flight, lost, reclaimer.reclaim)
        self.beacon = _beacon(self, self._broker, lost, self._own_process)

    def _make_fetcher(self) -> None:
        self.watch = TaskWatch(self._broker.transport)
        # After a refusal by a replica, Redis' name may lead to another master. A former master that still runs does not
        # refuse wakers, which only read, so they must connect anew.
        self.stats.outage.on_replica = self.watch.renew
        self.wakers, self.bells = _wakers(self, keys.pending), _wakers(self, keys.bell)
        self.fetcher = Fetcher(
            self.commands,
            Prioritizer(self.config.queues, self.config.strict_priority),
            self.in_flight,
            self.processor,
            self.wakers,
            seconds_of(self.config.task_check_interval),
        )
        self.fetcher.hear(self.bells)
        self._make_room.connect(self.fetcher.note_room)
        self._on_tasks.connect(self.fetcher.queue_has_tasks)

    def _make_keepers(self) -> None:
        """Make the actors that keep archive, history and tasks in order."""
        config, commands, clock, outage = self.config, self.commands, self._clock, self.stats.outage
        self.archive_keeper = ArchiveKeeper(self._broker, config, clock)
        self.janitor = Janitor(commands, config, self.archive_keeper, clock, outage)
        self.custodian = Custodian(
            self.in_flight,
            lambda: self.processor.tasks() | self.acker.tasks(),
            self.syncer.write_soon,
            lambda: self.pool.can_work,
            self.presence.set_can_work,
            self.subscriber.forget_what_is_over,
        )
        self.historian = Historian(commands, self.stats, clock, self._options.timing.heartbeat_interval_s)

    def _in_order(self) -> list[Actor]:
        """Return the actors in the order in which they start."""
        return [
            self.heartbeater,
            self.healthchecker,
            self.subscriber,
            self.syncer,
            self.acker,
            self.recoverer,
            *([self.beacon] if self.config.takeover_after else ()),
            self.forwarder,
            self.fetcher,
            *(*self.wakers.values(), *self.bells.values(), self.lane_keeper),
            self.janitor,
            self.custodian,
            *self.aggregation.actors,
            *([self.historian] if self.config.history else ()),
        ]

    # Life -------------------------------------------------------------------------------------------------------

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until ``begin_shutdown``; raise ``PoolStartError`` or ``BrokerError`` if it cannot begin or go on.

        ``on_ready`` is called once the children are ready, Redis has answered, and fetching begins.
        """
        try:
            if await self._unless_stopped(self._begin()):
                on_ready()
                self._log_unserved()
                is_through = await self._unless_stopped(self._until_through())
                was_told = self.stopping.is_set() or self.presence.status is ServerStatus.QUIET
                self.has_finished = is_through and not was_told
        finally:
            await self._shut_down()
        if self._failure is not None:
            raise self._failure

    async def _begin(self) -> None:
        self.archive_keeper.make_directory()
        self.task_log.open()
        self.processor.max_tasks = self._options.max_tasks
        began_s = self._clock.monotonic_s()
        await self.pool.start(self.processor)
        self.load_s = self._clock.monotonic_s() - began_s
        if refusal := refusal_of(self._options.app, self.processor.app, self._options.redis):
            raise PoolStartError(refusal, is_misuse=True)
        await wait_for_redis(self._broker, self._options.connect_timeout_s)
        await check_rights(self._broker, self.config.queues)
        self.where = await describe_redis(self._broker)
        await self.archive_keeper.set_rules()
        self.presence.serve(self.processor.app)
        self._broker.transport.on_change(self._go_on_elsewhere)
        self.stall.start()
        for actor in (*self.actors, self.watchdog):
            actor.start()
        self.has_begun = True

    def _note_reload(self) -> None:
        """Publish what the new code serves; log which of its tasks this server does not serve, if that has changed."""
        self.presence.serve(self.processor.app)
        self._log_unserved()

    def _log_unserved(self) -> None:
        if (app := self.processor.app) != self._logged_app:
            self._logged_app = app
            log_unserved(self._options.app, app, self._options.redis, self.config.queues)

    def _go_on_elsewhere(self) -> None:
        """Continue with another master: wakers wait there, and failed actors try again at once."""
        self.watch.renew()
        self.stats.outage.try_again()

    async def _unless_stopped(self, work: Coroutine[Any, Any, object]) -> bool:
        """Do some work until it ends or the shutdown begins; return whether it ended."""
        working = asyncio.ensure_future(work)
        if was_done := await within(None, working, unless=self.stopping):
            working.result()
        return was_done

    def begin_shutdown(self) -> None:
        """Begin the shutdown; called again, skip the waiting."""
        if self.stopping.is_set():
            self._hurry.set()
        self.stopping.set()

    def shut_down_now(self) -> None:
        """Begin the shutdown, and skip the waiting."""
        self.stopping.set()
        self._hurry.set()

    def quiet(self) -> None:
        """Fetch no more tasks, and finish those in flight; the server stays published."""
        self.pool.announce_stop()
        self.pool.let_batches_go()
        self.fetcher.stop_fetching()
        self.presence.go_quiet(self.fetcher.quiet, self.heartbeater.wake)

    def obey(self, order: ServerOrder) -> None:
        """Follow an order that came through Redis; a repeated one changes nothing."""
        if order is ServerOrder.STOP and not self.stopping.is_set():
            _log.info(
                "ordered through Redis to stop: shutting down; running tasks have %g s to finish",
                seconds_of(self.config.shutdown_timeout),
            )
            self.begin_shutdown()
        elif order is ServerOrder.QUIET and self.presence.status is ServerStatus.ACTIVE:
            _log.info("ordered through Redis to go quiet: no longer fetching; finishing the tasks already taken")
            self.quiet()

    async def _until_through(self) -> None:
        """Wait until this server has done what it was started for; forever if that has no end.

        It is idle while the queues are empty and nothing is in flight here; paused queues do not count. A queue that
        was empty a while ago may have got tasks from a handler since, so all queues are asked once more.
        """
        idle_s = inf if self._options.idle_s is None else self._options.idle_s
        if idle_s == inf and not self._options.max_tasks:
            await self.stopping.wait()
            return
        taken_when_asked, asked_s = -1, 0.0
        while True:
            is_empty = not self.tasks and not self.in_flight.ends.waiting
            if is_empty and (self.processor.has_taken_all or self.presence.status is ServerStatus.QUIET):
                return  # nothing is in flight any more
            if self.processor.has_taken_all:
                self.pool.let_batches_go()
            if not is_empty or self.aggregation.is_busy or self.processor.taken != taken_when_asked:
                taken_when_asked = -1  # there is a task here, or one is about to be enqueued
            if is_empty and not self.aggregation.is_busy and self.fetcher.all_resting:
                now_s = self._clock.monotonic_s()
                if taken_when_asked < 0:
                    taken_when_asked, asked_s = self.processor.taken, now_s
                    self.fetcher.ask_all()
                elif now_s - asked_s >= idle_s:
                    return
            await asyncio.sleep(BURST_CHECK_S)

    async def _shut_down(self) -> None:
        countdown = Countdown(seconds_of(self.config.shutdown_timeout), self._hurry)
        self.pool.announce_stop()
        await self.reloader.stop()
        beats = self.heartbeater.ticks
        self.presence.stop()
        self.fetcher.stop_fetching()
        self.heartbeater.wake()
        await stop_all(*self.wakers.values(), *self.bells.values(), self.forwarder, self.recoverer, self.janitor)
        await self.watch.close()
        await countdown.wait(self.fetcher.quiet.wait(), LAST_TICK_S)
        self.acker.add(self.processor.withdraw())
        self.acker.keep_requeued()
        await countdown.wait(asyncio.gather(self.pool.drain(FOREVER_S), self.aggregation.drain(FOREVER_S)))
        await self.watchdog.stop()
        await asyncio.gather(self.pool.stop(), self.aggregation.stop(LAST_TICK_S))

        def answers() -> bool:
            # False in an outage, and until a heartbeat has ended since the shutdown began. On a cluster, the outage may
            # be that of one node, so there the last heartbeat must have failed, too.
            is_away = self.stats.outage and not (self.commands.node_name_of and self.heartbeater.is_answered)
            return not is_away and self.heartbeater.ticks > beats

        def left_s() -> float:
            return countdown.last_writes_s(answers())

        await self.processor.questions.settle(0.0 if self._hurry.is_set() else left_s())
        await self.healthchecker.stop()  # it asks the hook child, which ends now
        await self.hooks.stop()
        await self.forks.stop()
        await stop_all(self.subscriber)
        await self._write_what_is_left(left_s())
        last_s = LAST_WRITES_S if answers() else GOODBYE_S  # asked now: stopping an actor clears its failures
        await asyncio.gather(self.heartbeater.finish(last_s), self.historian.finish(last_s))
        await stop_all(*self.actors)
        self.stall.stop()
        await within(last_s, self._say_goodbye())
        await within(LAST_WRITES_S, self._broker.close())

    async def _write_what_is_left(self, seconds: float) -> None:
        """Write all unsaved ends while there is time; log the ends that are left."""
        await self.fetcher.finish(seconds / 4)
        self.acker.release()
        await within(seconds, self._last_writes(seconds / 4))
        if unwritten := len(self.tasks):
            _log.error(
                "could not save the outcome of %d tasks; unless Redis saved it although its reply was lost, "
                "they count as lost when their leases expire, and a recoverer takes them",
                unwritten,
            )

    async def _say_goodbye(self) -> None:
        """Write the rest of the history, and delete the published data."""
        rest = (self.historian.tick(),) if self.config.history else ()
        # If ends could not be written, the sign stays: other servers then take the tasks within seconds, as after a
        # death.
        withdrawn = () if self.tasks or not self.config.takeover_after else withdraw_sign(self.owner)
        cleared = self._broker.run_many((*clear_server_state(self.identity), *withdrawn))
        await asyncio.gather(cleared, *rest, return_exceptions=True)

    async def _last_writes(self, each_s: float) -> None:
        """Write all unsaved ends, again and again while Redis refuses them."""
        for actor in (self.syncer, self.acker):
            await actor.finish(each_s)
        await self.result_writer.settle()
        await self.failed_attempts.settle()
        await self.acker.flush()
        await self.ack_writer.progress.stop()
        while self.in_flight.ends.waiting or self.syncer.is_writing:
            await self.syncer.tick()
            await asyncio.sleep(LAST_WRITES_EVERY_S)
        await self.ack_writer.inboxes.settle()

    def _pool_failed(self, error: PoolStartError) -> None:
        self._failure = error
        self.shut_down_now()


def _lost_tasks(server: ServerProcess) -> LostTasks:
    config, hooks = server.config, server.hooks
    judge = hooks.judge_lost if hooks.judges else None
    rules = LostTaskRules(default_retry_delay, config.max_lost, judge, server.processor.tally)
    return LostTasks(server.commands, rules, server.in_flight.clock, server.stats)


def _wakers(server: ServerProcess, key_of: Callable[[str], str]) -> dict[str, Waker]:
    servers, outage = (lambda: server.heartbeater.servers), server.stats.outage
    return {
        queue: Waker(server.watch, queue, key_of, server._on_tasks, servers, outage) for queue in server.config.queues
    }


def _beacon(server: ServerProcess, broker: AsyncBroker, lost: LostTasks, own_process: OwnProcess) -> Beacon:
    identity = server.identity
    return Beacon(
        OwnLine(broker.transport, keys.signs()),
        server.commands,
        list(server.config.queues),
        f"{identity.host}:{identity.pid}:{identity.server_id}",
        own_process,
        server.in_flight,
        takeover_s=seconds_of(server.config.takeover_after),
        lost=lost,
        tell_servers=server.heartbeater.note_servers,
    )


def pool_config(options: ProcessOptions) -> PoolConfig:
    """Return the settings of the pool for a server's options."""
    config = options.config
    hooks = {name: getattr(config, name) for name in ("error_handler", "is_failure", "retry_delay")}
    return PoolConfig(
        runner=HANDLER_RUNNER,
        name=options.app,
        argument=runner_argument(
            options.app,
            log=(config.log_level, config.log_format, config.log_tracebacks),
            aggregator=None if config.group_aggregator is None else str(config.group_aggregator),
            health_check=None if config.health_check is None else str(config.health_check),
            threads=config.threads > 1,
            **hooks,
        ),
        processes=config.concurrency,
        devices=config.devices,
        start_method=config.start_method,
        start_timeout=seconds_of(config.start_timeout),
        start_patience=seconds_of(config.start_timeout),
        timeout_grace=seconds_of(config.timeout_grace),
        max_tasks_per_child=config.max_tasks_per_child,
        max_memory_per_child=config.max_memory_per_child,
        memory_limit=config.memory_limit,
        async_concurrency=config.async_concurrency,
        threads=config.threads,
        prefetch_time=seconds_of(config.prefetch_time),
    )

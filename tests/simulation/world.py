"""A run: producers, servers, Redis and all that fails, in one thread and on one clock, from one seed."""

import asyncio
import hashlib
import logging
import marshal
import os
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import cache, partial
from itertools import count
from random import Random
from typing import Any, Final
from uuid import uuid4

from redis import utils

from fastq import AsyncClient
from fastq.broker.operations.presence import ServerIdentity
from fastq.errors import BrokerError, DuplicateTaskError, FastqError, TaskIDConflictError
from fastq.pool.main.protocol import Event, EventKind, Submission
from fastq.server.base.config import ServerConfig
from fastq.server.base.this_process import ProcessFacts
from fastq.server.wiring.process import ProcessOptions, ServerProcess
from fastq.wire.codec import decode_task_message
from tests.simulation.actors import await_results, inspect
from tests.simulation.choice import WITH_LANES
from tests.simulation.combiner import SimulatedCombiner
from tests.simulation.faults import REDIS, REFUSED, Fault, draw_faults
from tests.simulation.happenings import Collected, Placed, Remembered, Saved, Wrote
from tests.simulation.judge import Answered, Began, Ended, Freed, History, Sent, Struck
from tests.simulation.keyspace import QUEUES, Keyspace
from tests.simulation.lanes import LANES, LimitWatch, fate_in_lane, note_rest, use_lanes
from tests.simulation.loop import OUTSIDE, Loop, Machine, elapsed_s
from tests.simulation.network import Network
from tests.simulation.page import Page
from tests.simulation.pool import HANGS_S, Fate, SimulatedPool, draw_fate
from tests.simulation.producers import GROUP, group_tasks, produce_blocking, schedule
from tests.simulation.remembered import remembered
from tests.simulation.rules import judge_all
from tests.simulation.sites import Site
from tests.simulation.size import Size

SERVERS: Final = ("server-1", "server-2", "server-3")
PRODUCER: Final = "producer"
ACTORS: Final = {
    "client": await_results,
    "inspector": inspect,
    "grouper": group_tasks,
    "blocking": produce_blocking,
    "scheduler-1": schedule,
    "scheduler-2": schedule,
}
GROUPS: Final[dict[str, Any]] = {"group_aggregator": "simulated:combine", "group_grace_period": 5, "group_max_size": 6}
RATE: Final = 3.0
"""Tasks a second."""
DRAIN_S: Final = 900.0
SUPERVISOR_S: Final = 2.0
NO_REFERENCES: Final = 2
"""The version of marshal whose bytes depend on nothing but values."""
GRAVES: Final[list[object]] = []
"""What was left in the middle: collected, its coroutines would run their ``finally``."""

Report = dict[str, Any]

# Each connection reads the version of redis-py from a file.
utils.get_lib_version = cache(utils.get_lib_version)
utils.get_lib_version()


class LogLines(logging.Handler):
    """The log of all machines, as a part of the trace."""

    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell("log", record.name, record.levelname, self.format(record))


class SimulatedProcess:
    """A process of a host."""

    def __init__(self, host: str, pid: int) -> None:
        self.facts = ProcessFacts(host, "boot", "", pid, "")

    def is_gone(self, other: ProcessFacts) -> bool | None:
        """A host has one at a time."""
        return other.pid != self.facts.pid if other.host == self.facts.host else None


class World:
    """A seed and all that follows from it; ``faults`` in place of the drawn ones, to leave some out."""

    def __init__(self, seed: int, size: Size, page: Page, site: Site, faults: list[Fault] | None = None) -> None:
        self.seed, self.size, self._site, self.url = seed, size, site, site.url
        page.seed(seed)
        random.seed(seed)
        os.getpid = lambda: 1  # it is in the names of schedulers
        self.loop = Loop(page)
        page.switch(True)
        self._told: list[tuple[int, str, str, tuple[object, ...]]] = []
        self._hash = hashlib.sha256()
        self.network = Network(seed, self.loop, site, self.tell)
        self.history = History()
        self.keyspace = Keyspace(site, LANES if site.has_lanes else ())
        self.actors = ACTORS | {"laner": use_lanes} if site.has_lanes else ACTORS
        self.limits = LimitWatch(self) if site.has_lanes else None
        site.begin(self.network, self.history)
        machines = [*SERVERS, PRODUCER, *self.actors]
        self.faults = faults_of(seed, size, site, machines) if faults is None else faults
        self.loop.set_exception_handler(self._raised)
        self.queues = list(QUEUES)
        self.queue_of: dict[str, str] = {}
        self.is_produced = self.are_limits_final = False
        self.machines: dict[str, Machine] = {}
        self._serving: dict[str, ServerProcess] = {}
        self._pools: list[SimulatedPool] = []
        self._pids = count(1)
        self._work: list[asyncio.Task[None]] = []
        self._attempts: defaultdict[str, int] = defaultdict(int)

    def tell(self, kind: str, who: object, *what: object) -> None:
        """Write a line of the trace."""
        one: Any = (self.loop.now_ns, kind, str(who), what)
        self._hash.update(marshal.dumps(one, NO_REFERENCES))
        self._told.append(one)

    @property
    def story(self) -> list[str]:
        """The trace, in lines."""
        told = [(f"{elapsed_s(at_ns):.6f} {kind} {who}", map(repr, what)) for at_ns, kind, who, what in self._told]
        return [f"{head} {' '.join(words)}" for head, words in told]

    def _raised(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what a callback has raised for a broken promise: nothing handles it."""
        del loop
        if "handle" in context:
            self.history.raised.append(repr(context.get("exception")))

    @property
    def now_s(self) -> float:
        return self.loop.elapsed_s

    # Machines -----------------------------------------------------------------------------------------------------

    def _start(self, name: str, work: Callable[[Machine], Coroutine[Any, Any, None]]) -> None:
        machine = self.machines[name] = Machine(name)
        machine.ahead_ns = int(Random(f"{self.seed} {name} clock").uniform(-0.5, 0.5) * 1e9)
        self._work.append(self.loop.create_task(work(machine), context=machine.context))

    async def _serve(self, machine: Machine) -> None:
        """Be a server under a supervisor, which starts it again when it ends by an error."""
        while True:
            config = ServerConfig(concurrency=4, queues=QUEUES, **GROUPS)
            server = ServerProcess(
                ProcessOptions("simulated:app", self.url, config),
                identity=ServerIdentity(machine.name, 1, str(uuid4())),
                own_process=SimulatedProcess(machine.name, next(self._pids)),
                make_pool=lambda config, forks: self._pool(machine),
                make_aggregation_child=lambda *_: SimulatedCombiner(Random(f"{self.seed} {machine} combiner")),
            )
            self._serving[machine.name] = server
            try:
                await server.run(lambda: self.tell("ready", machine))
            except FastqError as error:
                self.tell("ends", machine, str(error))
                await asyncio.sleep(SUPERVISOR_S)
            else:
                return

    def _pool(self, machine: Machine) -> SimulatedPool:
        self._pools.append(SimulatedPool(4, self._fate_of, self._note_run(machine), batch=(0, 3)[self.seed % 2]))
        return self._pools[-1]

    def _fate_of(self, submission: Submission) -> Fate:
        task: Any = submission.key
        self._attempts[task.id] += 1
        of_task = Random(f"{self.seed} {task.id}")
        nth = self._attempts[task.id]
        fate = draw_fate(of_task, Random(f"{self.seed} {task.id} {nth}"), f"{name_of(task)} {nth}")
        fate = fate._replace(takes_s=min(fate.takes_s, self.size.longest_s)) if fate.takes_s != HANGS_S else fate
        return fate_in_lane(fate, Random(f"{self.seed} {task.id} {nth} lane")) if task.view.group_key else fate

    def _note_run(self, machine: Machine) -> Callable[[str, Submission, Event], None]:
        told: dict[Submission, str] = {}
        states: dict[tuple[Submission, int], str] = {}

        def note(what: str, submission: Submission, event: Event) -> None:
            task: Any = submission.key
            name, data, note = name_of(task), event.data.decode(errors="replace"), self.history.note
            self.tell("handler", machine, what, name, event.kind.name, event.data)
            match what:
                case "begins":
                    state = decode_task_message(task.view.data).headers.get("fastq-checkpoint", "")
                    told[submission] = ""
                    self._note_made(task)
                    owner, _ = self._lease(task, machine)
                    note(Began(self.now_s, name, machine.name, task.view.retried, owner, state))
                case "ends":
                    result = data if event.kind is EventKind.RESULT else told.pop(submission, "")
                    owner, left_s = self._lease(task, machine)
                    kind = note_rest(self, name, event) or event.kind.name
                    note(Ended(self.now_s, name, machine.name, kind, owner, left_s, result))
                case "tells":
                    if event.kind is EventKind.WRITTEN:
                        told[submission] = data
                    states[submission, event.ran_ns] = data
                    self.history.others.append(Wrote(self.now_s, name, event.kind.name, data))
                case "saved":
                    self.history.others.append(Saved(self.now_s, name, states[submission, event.ran_ns]))

        return note

    def _note_made(self, task: Any) -> None:
        """Note the first run of a task that a scheduler or an aggregator has made."""
        if task.view.type == "work" or task.id in self.history.sent:
            return
        message = decode_task_message(task.view.data)
        self.queue_of[task.id] = task.queue
        self.history.note(Sent(self.now_s, task.id, self.now_s, message.retry, "", message.retention > 0))
        self.history.note(Answered(self.now_s, task.id, True))
        if task.view.type == "batch":
            self.history.others.append(Collected(self.now_s, task.id, tuple(message.payload.decode().split())))

    def _lease(self, task: Any, machine: Machine) -> tuple[str, float]:
        """Return whose a lease is, and how long it still lasts."""
        mark, until_s = self.keyspace.lease(task.queue, task.id)
        is_own = mark == self._serving[machine.name].owner.fraction
        owner = "" if mark is None else machine.name if is_own else f"{mark:.6f}"
        return owner, until_s - self.loop.wall_ns() / 1e9

    async def _produce(self, machine: Machine) -> None:
        draw = Random(f"{self.seed} producer")
        client = AsyncClient(self.url, timeout=10)
        for number in range(self.size.tasks):
            await asyncio.sleep(draw.expovariate(RATE) + self.size.calm_before(number, self.size.tasks))
            await self._enqueue(client, f"t{number:04}", draw)
        await client.close()

    async def _enqueue(self, client: AsyncClient, task_id: str, draw: Random) -> None:
        lock = f"lock-{draw.randrange(5)}" if draw.random() < 0.1 else ""
        delay_s = draw.uniform(0.1, 20) if draw.random() < 0.2 else 0.0
        max_retry = min(draw.choice((0, 1, 2)), self.size.retries)
        retention = 86_400 if draw.random() < 0.5 else 0
        options: dict[str, Any] = {"queue": draw.choice(list(QUEUES)), "max_retry": max_retry, "retention": retention}
        options |= {"process_in": delay_s} if delay_s else {}
        options |= {"unique": 3_600} if lock else {}
        options |= {"timeout": draw.uniform(10, 30)} if draw.random() < 0.3 else {}
        self.queue_of[task_id] = options["queue"]
        payload = (options["queue"] + lock if lock else task_id).encode()
        self.history.note(
            Sent(self.now_s, task_id, self.now_s + delay_s, max_retry, payload.decode() if lock else "", retention > 0)
        )
        await self.send(client, task_id, payload, options)

    async def send(self, client: AsyncClient, task_id: str, payload: bytes, options: dict[str, Any]) -> None:
        """Enqueue a task, again and again until it is known whether Redis has it."""
        may_be_there = False
        while True:
            try:
                await client.enqueue("work", payload, task_id=task_id, **options)
            except (TaskIDConflictError, DuplicateTaskError) as error:
                # Of an id that was sent before: an earlier try was carried out, and its reply was lost.
                is_there = may_be_there and (isinstance(error, TaskIDConflictError) or await self._is_known(task_id))
                self.tell("answer", task_id, type(error).__name__, is_there)
                self.history.note(Answered(self.now_s, task_id, is_there))
                return
            except BrokerError as error:
                self.tell("no answer", task_id, str(error), error.maybe_applied)
                may_be_there |= error.maybe_applied
                if may_be_there and not options["retention"]:
                    return  # a second try may be a second task, as the first may have run and gone
                await asyncio.sleep(0.5)
            else:
                self.tell("answer", task_id, "acknowledged")
                self.history.note(Answered(self.now_s, task_id, True))
                return

    async def _is_known(self, task_id: str) -> bool:
        """Look behind the client: an own lock refuses the second try of a task."""
        places = self.keyspace.places()
        return task_id in places or bool(self.history.runs.get(task_id))

    # Faults -------------------------------------------------------------------------------------------------------

    async def _strike(self, fault: Fault) -> None:
        await asyncio.sleep(fault.begins_s - self.now_s)
        machine = self.machines.get(fault.who)
        if fault.kind in ("stop", "kill") and (
            machine is None or machine.is_still or machine.is_dead or fault.who not in SERVERS
        ):
            return
        if not self._site.may_strike(fault):
            return
        self.tell("fault", fault.who, fault.kind, fault.lasts_s)
        struck = self._site.struck_by(fault)
        self.history.note(Struck(self.now_s, self.now_s + fault.lasts_s, struck, fault.kind))
        self.network.faults.append(fault)
        self._begin(fault, machine)
        await asyncio.sleep(fault.lasts_s)
        self.network.faults.remove(fault)
        self._end(fault, machine)
        self.tell("fault over", fault.who, fault.kind)

    def _begin(self, fault: Fault, machine: Machine | None) -> None:
        match fault.kind:
            case "stop" if machine:
                machine.is_still = True
            case "kill" if machine:
                machine.is_dead = True
                self.network.cut(machine)
                self._work.append(self.loop.create_task(self._free(fault), context=OUTSIDE))
            case "cut" if machine:
                self.network.cut(machine)
            case "clock" if machine:
                machine.ahead_ns += int(fault.amount * 1e9)
            case "restart":
                self.network.cut(None)
                self._site.ask_each("SCRIPT", "FLUSH")
            case "forget scripts":
                self._site.ask_each("SCRIPT", "FLUSH")
            case "oom":
                self._site.ask_each("CONFIG", "SET", "maxmemory", "1")
            case "no replicas":
                self._site.ask_each("CONFIG", "SET", "min-replicas-to-write", "9")
            case "refuse":
                self._site.ask_each("ACL", "SETUSER", "default", f"-{refused(fault)}")
            case _:
                self._site.strike(fault)

    async def _free(self, fault: Fault) -> None:
        """Wait until a dead server has no lease any more."""
        at_s, mark = self.now_s, self._serving[fault.who].owner.fraction
        leases = [f"asynq:{{{queue}}}:lease" for queue in QUEUES]
        while any(float(score) % 1 == mark for key in leases for score in self.keyspace.scores(key)):
            await asyncio.sleep(0.5)
        self.history.note(Freed(self.now_s, fault.who, at_s))

    def _end(self, fault: Fault, machine: Machine | None) -> None:
        match fault.kind:
            case "stop" if machine:
                self.loop.resume(machine)
            case "kill":
                self._start(fault.who, self._serve)
            case "oom" if not self.network.fault(REDIS, "oom"):
                self._site.ask_each("CONFIG", "SET", "maxmemory", "0")
            case "no replicas" if not self.network.fault(REDIS, "no replicas"):
                self._site.ask_each("CONFIG", "SET", "min-replicas-to-write", "0")
            case "refuse":
                self._site.ask_each("ACL", "SETUSER", "default", "+@all")
            case _:
                self._site.heal(fault)

    # The run ------------------------------------------------------------------------------------------------------

    def _are_ended(self) -> bool:
        if self.keyspace.has_group(GROUP) or self.keyspace.has_again():
            return False
        return self.history.are_ended(self.keyspace.places())

    def _note_remembered(self) -> None:
        """Note the tasks that servers still know."""
        but = [self, self.loop, self.network, self._site, self.history, *self.machines.values(), *self._pools]
        for name, server in self._serving.items():
            for task_id, way in sorted(remembered(server, self.history.sent, but).items()):
                self.history.others.append(Remembered(self.now_s, task_id, name, way))

    async def _run(self) -> None:
        for name in SERVERS:
            self._start(name, self._serve)
        self._start(PRODUCER, self._produce)
        producing = self._work[-1]
        for name, act in self.actors.items():
            self._start(name, partial(act, self))
        acting = self._work[len(self._work) - len(self.actors) :]
        await asyncio.gather(*(self._strike(fault) for fault in self.faults))
        while not producing.done():
            await asyncio.sleep(1.0)
        producing.result()
        self.is_produced = True
        until_s = self.now_s + DRAIN_S
        while self.now_s < until_s and not all(one.done() for one in acting):
            await asyncio.sleep(1.0)
        self.history.stuck = [name for name, one in zip(self.actors, acting, strict=True) if not one.done()]
        for one in acting:
            if one.done():
                one.result()
        while self.now_s < until_s and not self._are_ended():
            await asyncio.sleep(5.0)
        if self.limits:
            await self.limits.settle()
        self._note_remembered()
        for server in self._serving.values():
            server.begin_shutdown()
        await asyncio.wait(self._work, timeout=60.0)  # of dead servers it never ends
        self.history.places = self.keyspace.places()
        self.history.left = self.keyspace.left()
        self.history.others += self.keyspace.counts()

    def run(self) -> Report:
        """Let it happen; return what was seen, and the broken promises."""
        logger = logging.getLogger("fastq")
        logger.handlers[:], logger.propagate = [LogLines(self.tell)], False
        logger.setLevel(logging.INFO)
        running = self.loop.create_task(self._run(), context=OUTSIDE)
        self.loop.run_until_complete(running)
        GRAVES.append((self, asyncio.all_tasks(self.loop)))
        history = self.history
        runs = sum(map(len, history.runs.values()))
        return {
            "seed": self.seed,
            "site": self._site.name + WITH_LANES * self._site.has_lanes,
            "broken": judge_all(history),
            "trace": self._hash.hexdigest()[:16],
            "simulated_s": round(self.now_s, 1),
            "steps": self.loop.steps,
            "acknowledged": len(history.acknowledged),
            "runs": runs,
            "faults": len(history.struck),
            "rolled back": len(history.rolled_back),
            "leases": sum(isinstance(one, Placed) and one.is_taken for one in history.lanes),
        }


def faults_of(seed: int, size: Size, site: Site, machines: list[str]) -> list[Fault]:
    """Draw the faults of a run: those of all sites, and those of its own."""
    within_s, number = size.tasks / RATE + 20, Random(f"{seed} count").choice(size.counts)
    drawn = draw_faults(seed, machines, within_s, number) + site.draw_faults(seed, within_s)
    return sorted(one.cut_at(size.longest_s) for one in drawn)


def name_of(task: Any) -> str:
    """Return what the history calls a task: of those that are submitted under one id, each by its payload."""
    payload = decode_task_message(task.view.data).payload.decode()
    return payload if payload.startswith(f"{task.id}#") else task.id


def refused(fault: Fault) -> str:
    """Return the command that a user may not call for a while."""
    return REFUSED[int(fault.amount * len(REFUSED))]

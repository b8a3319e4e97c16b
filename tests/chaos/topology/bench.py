"""A run from its beginning to its end: a site, those who work on it, one fault after another, and the books."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from redis.exceptions import RedisError

from fastq.broker.transport import embedded
from fastq.inspector import Inspector
from fastq.terminal.interruption import Interruption
from tests.chaos.topology.books import Books, Fault, Move, read_acks, read_runs
from tests.chaos.topology.check import Verdict, Violation, check, problems_of
from tests.chaos.topology.faults import SCENARIOS
from tests.chaos.topology.network import network
from tests.chaos.topology.node import Sampler
from tests.chaos.topology.parties import Go, Producers, Workers, go_on
from tests.chaos.topology.sites import Cluster, SentinelSite, Shard

_STEP_S: Final = 0.05
_PATIENCE_S: Final = 120.0
_CALM_S: Final = 3.0
_TELL_S: Final = 15.0
_STATES: Final = {
    "pending": "LRANGE",
    "active": "LRANGE",
    "lease": "ZRANGE",
    "scheduled": "ZRANGE",
    "retry": "ZRANGE",
    "archived": "ZRANGE",
}


@dataclass(frozen=True)
class Options:
    """What a run is asked to do; ``left_s`` is the time from the last fault until nothing may be left."""

    kind: str
    seed: int
    minutes: float
    faults: list[str]
    wait_replicas: int = 0
    rounds: int = 0
    workers: int = 2
    with_go: bool = True
    left_s: float = 180.0
    keep: Path | None = None


class Bench:
    """All that a run has started, which its stack ends; it is the stage of the faults."""

    def __init__(
        self, options: Options, interruption: Interruption, say: Callable[[str], None], stack: ExitStack
    ) -> None:
        self._options = options
        self._interruption = interruption
        self._say = say
        self.chance = Random(options.seed)
        self.moves: list[Move] = []
        self._faults: list[Fault] = []
        self._observed: list[Violation] = []
        if options.keep is not None:
            options.keep.mkdir(parents=True)
        place = options.keep or Path(stack.enter_context(TemporaryDirectory(prefix="fastq-topology-")))
        net = stack.enter_context(network())
        kind = {"sentinel": SentinelSite, "cluster": Cluster}[options.kind]
        self.site = kind(embedded.server_program(), place, net)
        stack.callback(self.site.stop)
        self.site.start(self.wait)
        self._samplers = {node.name: Sampler(node) for node in self.site.nodes}
        for sampler in self._samplers.values():
            stack.callback(sampler.stop)
        self._workers = Workers(self.site, place, options.workers)
        stack.callback(self._workers.kill)
        self._go: Go | None = None
        go = go_on(self.site) if options.with_go else "not asked for"
        if isinstance(go, Go):
            self._go = go
            stack.callback(go.close)
        else:
            say(f"without Go: {go}")
        self._acks = place / "acks"
        self._producers = Producers(self.site, self._acks, options.wait_replicas, options.seed)
        stack.callback(self._producers.halt)

    # The stage --------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return time.time()

    def rest(self, seconds: float) -> None:
        self._interruption.wait(seconds)

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so; a site that does not get there is the bench's failure, not fastq's."""
        until_s = time.monotonic() + _PATIENCE_S
        while not is_so():
            if time.monotonic() > until_s:
                raise TimeoutError(f"waited {_PATIENCE_S:g} s in vain: {what}")
            self._interruption.wait(_STEP_S)

    def _shards(self) -> list[Shard]:
        found: list[Shard] = []

        def look() -> bool:
            found[:] = self.site.shards() if self.site.is_whole() else []
            return bool(found)

        self.wait(look, "the site is whole")
        return found

    def await_promotion(self) -> None:
        replica = self.shard.replica
        self.wait(lambda: replica.replication().get("role") == "master", f"{replica.name} is promoted")
        self.fault.promoted = self.now()

    # The run ----------------------------------------------------------------------------------------------------

    def run(self) -> Verdict:
        """Strike until the time is over, let all be worked off, and check."""
        self.wait(self._workers.are_ready, "the workers are ready")
        self._producers.start(self._go)
        until_s, rounds = time.monotonic() + 60 * self._options.minutes, 0
        self.rest(_CALM_S)
        while (time.monotonic() < until_s) if not self._options.rounds else rounds < self._options.rounds:
            rounds += 1
            names = list(self._options.faults)
            self.chance.shuffle(names)
            for name in names:
                if time.monotonic() < until_s:
                    self._strike(name)
        self._say(f"the last fault is over; within {self._options.left_s:g} s nothing may be left")
        self._producers.stop()
        left = self._settle()
        self._observed += self._examined()
        self._observed += [Violation("alive", text) for text in self._workers.stop()]
        return self._verdict(left)

    def _strike(self, name: str) -> None:
        scenario = SCENARIOS[name]
        self.shard: Shard = self.chance.choice([shard for shard in self._shards() if shard.queues])
        self.fault = Fault(scenario.title, self.shard.master.name, self.shard.queues, scenario.repeats, self.now())
        self._faults.append(self.fault)
        try:
            scenario.do(self)
            self.wait(self.site.is_whole, f"the site is whole again after {scenario.title}")
        finally:
            self.fault.ended = self.now()
        took_s = self.fault.ended - self.fault.began
        switched = f"promoted after {self.fault.promoted - self.fault.began:.1f} s, " if self.fault.promoted else ""
        errors = ", ".join(f"{number} x {kind}" for kind, number in self._producers.errors.most_common(3))
        self._say(
            f"{scenario.title} ({self.fault.node}): {switched}whole after {took_s:.1f} s;"
            f" {self._producers.acked} enqueues acknowledged so far{f', {errors}' if errors else ''}"
        )
        self.rest(_CALM_S)

    def _settle(self) -> dict[str, str]:
        """Wait until nothing is left; return what is left after the time allowed."""
        began_s, told_s, empty = time.monotonic(), 0.0, 0
        while empty < 2:  # a task that moves while it is looked for might be seen nowhere
            self.rest(0.5)
            try:
                left = self._left()
            except (RedisError, OSError) as error:
                left = {"any task": f"perhaps: {error}"}
            took_s = time.monotonic() - began_s
            empty = 0 if left else empty + 1
            if left and took_s > self._options.left_s:
                return left
            if left and took_s > told_s + _TELL_S:
                told_s = took_s
                some = ", ".join(f"{id} ({state})" for id, state in list(left.items())[:3])
                self._say(f"left after {took_s:.0f} s: {len(left)} tasks, {some}")
        self._say(f"all was worked off {time.monotonic() - began_s:.1f} s after the last fault")
        return {}

    def _examined(self) -> list[Violation]:
        """Let the doctor look at every task and key; the workers still serve their queues."""
        with Inspector(self.site.url) as inspector:
            found = problems_of(inspector.examine(limit=None).findings)
        self._say(f"the doctor found {len(found)} problems")
        return found

    def _left(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for shard in self._shards():
            with shard.master.client() as client:
                for queue in shard.queues:
                    for state, command in _STATES.items():
                        ids = client.execute_command(command, f"asynq:{{{queue}}}:{state}", 0, -1)
                        found.update(dict.fromkeys(ids, state))
        return found

    def _verdict(self, left: dict[str, str]) -> Verdict:
        runs_of_go = self._go.runs() if self._go is not None else []
        books = Books(
            acks=read_acks(self._acks),
            runs=[*read_runs(self._workers.ledger, "fastq"), *runs_of_go],
            tried=frozenset(self._producers.tried),
            passages=self.site.network.passages,
            samples={name: sampler.samples for name, sampler in self._samplers.items()},
            moves=self.moves,
            faults=self._faults,
            left=left,
            wait_replicas=self._options.wait_replicas,
            refusals=self._go.refusals() if self._go is not None else [],
        )
        return check(books, self._observed)

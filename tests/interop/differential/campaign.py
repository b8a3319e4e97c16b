"""Runs sequences on both sides, step by step, and counts what was reached."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from redis import Redis

from tests.interop.differential.comparison import OUTCOME, Pair
from tests.interop.differential.fastq_side import FastqSide
from tests.interop.differential.generator import Reached, Steps
from tests.interop.differential.go_side import GoSide
from tests.interop.differential.goal import NOTHING, OK, Goal
from tests.interop.differential.intended import Intended, Step
from tests.interop.differential.operation import Operation, Outcome
from tests.interop.differential.state import State, state_of
from tests.interop.peer import GoPeer
from tests.keyspace import Cells, Difference, Place, Window
from tests.redis_servers import RedisServer, redis_server


class UnequalError(AssertionError):
    """Raised when the sides differ; names the operations up to the first difference, and the difference."""


class Chooser(Protocol):
    """Make the steps of sequences; one step is one operation, or several that do not concern each other."""

    goals: Sequence[Goal]
    reached: Reached

    def missing(self) -> Mapping[Goal, float]: ...

    def count(self, name: str, ending: str) -> None: ...

    def sequence(self) -> Steps: ...

    def coin(self) -> bool: ...


class Campaign:
    """Both sides, the chooser of the operations, and the findings."""

    def __init__(self, chooser: Chooser, sides: tuple[GoSide, FastqSide], pair: Pair) -> None:
        self.generator = chooser
        self.intended = Intended()
        self.sequences = 0
        self.asyncs = 0
        self.go, self.fastq = sides
        self.pair = pair
        self._before: Cells = {}

    def run_until_all_is_reached(self, limit: int) -> None:
        """Run sequences until every goal was reached often enough, or the limit of their number."""
        while self.generator.missing() and self.sequences < limit:
            self.run_sequence()

    def run_sequence(self) -> None:
        """Begin with empty databases, and end with no task in a handler."""
        self.pair.theirs.flushall()
        self.pair.ours.flushall()
        self._before = {}
        is_async = self.generator.coin()
        self.go.renew_clients()
        self.fastq.begin_sequence(is_async=is_async)
        self.sequences += 1
        self.asyncs += is_async
        steps, done, start_s = self.generator.sequence(), list[Operation](), time.time()
        with suppress(StopIteration):
            operations = next(steps)
            while True:
                operations = steps.send(self._step(operations, done, start_s))

    def _step(self, operations: Sequence[Operation], done: list[Operation], start_s: float) -> State:
        done += operations
        self.pair.run([command for operation in operations for command in operation.before])
        outcomes = list(zip(self.go.apply(operations), self.fastq.apply(operations), strict=True))
        differences, cells = self.pair.compare(Window(start_s, time.time()))
        left = dict[Place, Difference]()
        for operation, (go, ours) in zip(operations, outcomes, strict=True):
            mine = {place: value for place, value in differences.items() if operation.concerns(place, operations)}
            if go != ours:
                mine[OUTCOME] = Difference(str(go), str(ours))
            left |= self.intended.unexplained(Step(operation, str(ours), self._before), mine)
            differences = {place: value for place, value in differences.items() if place not in mine}
        left |= differences
        if left:
            lines = [*map(str, done), *(f"  {place}: Go {go!r}, fastq {ours!r}" for place, (go, ours) in left.items())]
            raise UnequalError(f"sequence {self.sequences}, step {len(done)} differs:\n" + "\n".join(lines))
        self._before, state = cells, state_of(cells)
        for operation, (_, ours) in zip(operations, outcomes, strict=True):
            self.generator.count(operation.name, _ending(operation, ours, state))
            if operation.method == "delete_queue" and not ours.error:
                # Clients remember the queues that they made known, Go's for good; new ones make them known again.
                self.go.renew_clients()
                self.fastq.renew_clients()
        return state


def _ending(operation: Operation, outcome: Outcome, state: State) -> str:
    if late := state.keys & set(operation.gone):
        raise AssertionError(f"{operation}: still there on both sides: {late}")
    return NOTHING if outcome == Outcome(NOTHING) else outcome.error or OK


@contextmanager
def campaign(chooser: Chooser, peer_binary: Path) -> Iterator[Campaign]:
    """Start two Redis servers (what is published reaches all databases of one) and the peer."""
    with ExitStack() as stack:
        servers: list[RedisServer] = [stack.enter_context(redis_server()) for _ in "gf"]
        theirs, ours = (stack.enter_context(_client(server)) for server in servers)
        # Go would collect its few megabytes hundreds of times.
        peer = stack.enter_context(GoPeer(peer_binary, GOGC="800"))
        go = GoSide(peer, Path(servers[0].socket_path))
        fastq = stack.enter_context(FastqSide(ours, servers[1].url, theirs))
        yield Campaign(chooser, (go, fastq), Pair(theirs, ours))


def _client(server: RedisServer) -> Redis:
    """Return a client with one connection, which it need not look for at each command."""
    return Redis(unix_socket_path=server.socket_path, single_connection_client=True)

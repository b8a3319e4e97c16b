"""Runs sequences on both sides, step by step, and counts what was reached."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import Redis

from tests.interop.differential.comparison import Pair
from tests.interop.differential.fastq_side import FastqSide
from tests.interop.differential.generator import Generator
from tests.interop.differential.go_side import GoSide
from tests.interop.differential.goal import NOTHING, OK
from tests.interop.differential.intended import Intended, Step
from tests.interop.differential.operation import BEGIN, TEND, Operation, Outcome
from tests.interop.differential.state import State, state_of
from tests.interop.peer import GoPeer
from tests.keyspace import Cells, Window
from tests.redis_servers import RedisServer, redis_server

__all__ = ["Campaign", "UnequalError", "campaign"]

STEPS = 40


class UnequalError(AssertionError):
    """Tell the operations of a sequence up to the first after which the sides differ, and how they do."""


class Campaign:
    """Hold both sides, the generator, and what was found."""

    def __init__(self, seed: int, sides: tuple[GoSide, FastqSide], pair: Pair) -> None:
        self.generator = Generator(seed)
        self.intended = Intended()
        self.sequences = 0
        self.go, self.fastq = sides
        self.pair = pair

    def run_until_all_is_reached(self, limit: int) -> None:
        """Run sequences until every goal was reached often enough, or the limit of their number."""
        while self.generator.missing() and self.sequences < limit:
            self.run_sequence()

    def run_sequence(self) -> None:
        """Begin with empty databases, and end with no task in a handler."""
        self.pair.theirs.flushall()
        self.pair.ours.flushall()
        self.go.renew_clients()
        self.fastq.begin_sequence(is_async=self.generator.coin())
        self.sequences += 1
        state, done = State(), list[Operation]()
        self._before: Cells = {}
        window = Window(time.time(), 0)
        for _ in range(STEPS):
            state = self._step(self.generator.next(state), done, window)
        if last := self.generator.last(state):
            self._step(last, done, window)

    def _step(self, operation: Operation, done: list[Operation], window: Window) -> State:
        done.append(operation)
        self.pair.run(operation.before)
        outcomes = (self.go.apply(operation), self.fastq.apply(operation))
        differences, cells = self.pair.compare(window._replace(end_s=time.time()), outcomes)
        left = self.intended.unexplained(Step(operation, str(outcomes[1]), self._before), differences)
        self._before = cells
        if left:
            lines = [*map(str, done), *(f"  {place}: Go {go!r}, fastq {ours!r}" for place, (go, ours) in left.items())]
            raise UnequalError(f"sequence {self.sequences}, step {len(done)} differs:\n" + "\n".join(lines))
        if operation.method == "delete_queue" and not outcomes[1].error:
            # Clients remember the queues that they made known, Go's for good; new ones make them known again.
            self.go.renew_clients()
            self.fastq.renew_clients()
        state = state_of(cells)
        self.generator.reached[operation.name, _ending(operation, outcomes[1], state)] += 1
        return state


def _ending(operation: Operation, outcome: Outcome, state: State) -> str:
    if operation.method == BEGIN and outcome.value == "None":
        return NOTHING
    if late := state.keys & set(operation.gone):
        raise AssertionError(f"{operation}: still there on both sides: {late}")
    if operation.method == TEND and not operation.gone:
        return NOTHING
    return outcome.error or OK


@contextmanager
def campaign(seed: int, peer_binary: Path) -> Iterator[Campaign]:
    """Start two Redis servers (what is published reaches all databases of one) and the peer."""
    with ExitStack() as stack:
        servers: list[RedisServer] = [stack.enter_context(redis_server()) for _ in "gf"]
        theirs, ours = (stack.enter_context(_client(server)) for server in servers)
        go = GoSide(stack.enter_context(GoPeer(peer_binary)), Path(servers[0].socket_path))
        fastq = stack.enter_context(FastqSide(ours, servers[1].url, theirs))
        yield Campaign(seed, (go, fastq), Pair(theirs, ours))


def _client(server: RedisServer) -> Redis:
    return server.client()

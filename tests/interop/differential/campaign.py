"""Runs sequences on both sides, step by step, and counts what was reached."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import Redis

from tests.interop.differential.comparison import Intended, Pair
from tests.interop.differential.fastq_side import FastqSide
from tests.interop.differential.generator import Generator
from tests.interop.differential.go_side import GoSide
from tests.interop.differential.goals import OK
from tests.interop.differential.operation import BEGIN, Operation, Outcome
from tests.interop.differential.state import State, state_of
from tests.interop.peer import GoPeer
from tests.keyspace import Window
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
        self.fastq.begin_sequence()
        self.sequences += 1
        state, done = State(), list[Operation]()
        window = Window(time.time(), 0)
        for _ in range(STEPS):
            state = self._step(self.generator.next(state), done, window)
        if last := self.generator.last(state):
            self._step(last, done, window)

    def _step(self, operation: Operation, done: list[Operation], window: Window) -> State:
        done.append(operation)
        outcomes = (self.go.apply(operation), self.fastq.apply(operation))
        self.generator.reached[operation.name, _ending(operation, outcomes[1])] += 1
        differences, cells = self.pair.compare(window._replace(end_s=time.time()), outcomes)
        left = self.intended.unexplained(operation, differences)
        if left:
            lines = [*map(str, done), *(f"  {place}: Go {go!r}, fastq {ours!r}" for place, (go, ours) in left.items())]
            raise UnequalError(f"sequence {self.sequences}, step {len(done)} differs:\n" + "\n".join(lines))
        if operation.method == "delete_queue" and not outcomes[1].error:
            # Clients remember the queues that they made known, Go's for good; new ones make them known again.
            self.go.renew_clients()
            self.fastq.renew_clients()
        return state_of(cells)


def _ending(operation: Operation, outcome: Outcome) -> str:
    if operation.method == BEGIN and outcome.value == "None":
        return "nothing"
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

"""A fetcher, a stand-in for the pool that it works for, and queues for it to empty."""

from collections.abc import Iterable, Mapping

from fastq._prioritizer import Prioritizer
from fastq.broker.operations.lease import Leased
from fastq.server.actors.fetcher import Fetcher
from fastq.server.actors.waker import Waker
from fastq.wire import keys
from fastq.wire.codec import view_task_message
from tests.broker.harness import QUEUE, QueueBench
from tests.server.harness import Bench


class Pool:
    """A fake pool: its room, and the tasks that came in, by queue."""

    def __init__(self, bench: Bench, room: int = 500) -> None:
        self.bench = bench
        self.room = room
        self.taken: list[tuple[str, str]] = []
        self.asked_s: list[float] = []

    def idle(self, *, only_async: bool) -> int:
        return self.room

    def are_coroutines(self, messages: Iterable[bytes]) -> bool:
        return False

    def accept(self, queue: str, leased: Leased, asked_s: float = 0.0) -> None:
        self.asked_s.append(asked_s)
        for task in leased.tasks:
            self.taken.append((queue, task.id))
            self.bench.tasks.add(queue, view_task_message(task.message), asked_s)

    @property
    def ids(self) -> list[str]:
        return [task_id for _, task_id in self.taken]


def fetcher(bench: Bench, pool: Pool, queues: Mapping[str, int] | None = None, *, strict: bool = False) -> Fetcher:
    """Return a fetcher without wakers."""
    prioritizer = Prioritizer(queues or {QUEUE: 1}, strict, seed=1)
    return Fetcher(bench.commands, prioritizer, bench.in_flight, pool, {}, 1.0)


def fetcher_and_wakers(bench: Bench, pool: Pool, *queues: str, servers: int = 1) -> tuple[Fetcher, dict[str, Waker]]:
    """Return a fetcher of some queues, else of the bench's, and a waker for each of them."""
    wakers: dict[str, Waker] = {}
    prioritizer = Prioritizer(dict.fromkeys(queues or (QUEUE,), 1), seed=1)
    made = Fetcher(bench.commands, prioritizer, bench.in_flight, pool, wakers, 1.0)
    for queue in queues or (QUEUE,):
        wakers[queue] = Waker(bench.watch, queue, keys.pending, made.queue_has_tasks, lambda: servers, bench.outage)
    return made, wakers


def fill(bench: Bench, queue: str, count: int) -> None:
    QueueBench(bench.db, queue=queue).pend(*(f"{queue}-{number:03d}" for number in range(count)))

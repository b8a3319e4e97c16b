"""How much of their rate other masters keep while one is silent: ``python -m tests.chaos.topology.silence``.

A cluster of three masters with two queues each, two ``fastq-worker`` for all of them, and for each queue a thread with
the ``Client`` and a coroutine with the ``AsyncClient`` that all share. Each enqueues so many tasks a second, far less
than a machine can do, so that waits are seen and not the CPU. Then a master gets SIGSTOP. What counts are the other
masters' queues, in windows of some seconds before and while. Exit code 1 if a median falls below 0.9 of the one before,
or a task that was acknowledged has not run in the end.
"""

import argparse
import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from fastq import AsyncClient, BrokerError, Client
from tests.broker.clusters import Cluster
from tests.chaos.topology.books import read_runs
from tests.chaos.topology.parties import Workers
from tests.redis_servers import redis_cluster, silent

KEPT: Final = 0.9
_PAYLOAD: Final = b'{"for_ns": 5000000}'
_WINDOW_S: Final = 2.5
_WARM_S: Final = 5.0
_LEFT_S: Final = 120.0
_CONFIG: Final = {"cluster-node-timeout": "2000", "cluster-require-full-coverage": "no"}


class Event(NamedTuple):
    """A task that was acknowledged to a client, or that a worker began."""

    at_s: float
    queue: str


class Producers:
    """Callers at a fixed rate, one for each queue and kind of client; they make up for no call that took long."""

    def __init__(self, url: str, queues: Sequence[str], each_s: float) -> None:
        self._url, self._queues, self._each_s = url, queues, each_s
        self._halt = threading.Event()
        self.acks: dict[str, list[Event]] = {"Client": [], "AsyncClient": []}
        self.queue_of: dict[str, str] = {}
        self.errors = 0

    def start(self) -> None:
        self._client = Client(self._url)
        bodies: list[Callable[[], None]] = [lambda: asyncio.run(self._all_async())]
        bodies += [lambda queue=queue: self._blocking(queue) for queue in self._queues]  # type: ignore[misc] # mypy#8993
        self._threads = [threading.Thread(target=body, daemon=True) for body in bodies]
        for thread in self._threads:
            thread.start()

    def _note(self, kind: str, queue: str, task_id: str) -> None:
        self.queue_of[task_id] = queue
        self.acks[kind].append(Event(time.time(), queue))

    def _blocking(self, queue: str) -> None:
        while not self._halt.wait(self._each_s):
            try:
                self._note("Client", queue, self._client.enqueue("job", _PAYLOAD, queue=queue).id)
            except BrokerError:
                self.errors += 1

    async def _all_async(self) -> None:
        async def one(client: AsyncClient, queue: str) -> None:
            while not self._halt.is_set():
                try:
                    self._note("AsyncClient", queue, (await client.enqueue("job", _PAYLOAD, queue=queue)).id)
                except BrokerError:
                    self.errors += 1
                await asyncio.sleep(self._each_s)

        async with AsyncClient(self._url) as client:
            await asyncio.gather(*(one(client, queue) for queue in self._queues))

    def stop(self) -> None:
        self._halt.set()
        for thread in self._threads:
            thread.join(60)
        self._client.close()


class Figures(NamedTuple):
    """The rates of one kind of event, by windows."""

    before: float
    during: float
    worst: float
    pause_s: float

    @property
    def ratio(self) -> float:
        return self.during / self.before


def figures(events: Sequence[Event], queues: Sequence[str], span: tuple[float, float, float]) -> Figures:
    """Return the rates of some queues; ``span`` is when the look begins, when the silence does, and when it ends."""
    began_s, stopped_s, ended_s = span
    times = sorted(event.at_s for event in events if event.queue in queues)

    def windows(first: float, last: float) -> list[float]:
        count = int((last - first) / _WINDOW_S)
        starts = [first + _WINDOW_S * number for number in range(count)]
        return [sum(start <= at < start + _WINDOW_S for at in times) / _WINDOW_S for start in starts]

    within = [stopped_s, *(at for at in times if stopped_s < at < ended_s), ended_s]
    pause_s = max(later - earlier for earlier, later in pairwise(within))
    during = windows(stopped_s, ended_s)
    return Figures(median(windows(began_s, stopped_s)), median(during), min(during), pause_s)


def measure(rate: float, seconds: float, place: Path) -> tuple[dict[str, Figures], int, int]:
    """Return the figures of the others, how many tasks were acknowledged in all, and how many of them never ran."""
    with redis_cluster(config=_CONFIG) as nodes, ExitStack() as stack:
        cluster = Cluster(nodes)
        queues = {node.port: cluster.queues_on(node, 2) for node in nodes}
        names = [queue for some in queues.values() for queue in some]
        site: Any = SimpleNamespace(url=cluster.url, queues=names)
        workers = Workers(site, place, 2)
        stack.callback(workers.kill)
        _wait(workers.are_ready)
        producers = Producers(cluster.url, names, 1 / rate)
        producers.start()
        stack.callback(producers.stop)
        time.sleep(_WARM_S)
        began_s = time.time()
        time.sleep(seconds)
        stopped_s = time.time()
        with silent(nodes[0]):
            time.sleep(seconds)
            ended_s = time.time()
        producers.stop()
        acked = set(producers.queue_of)
        _wait(lambda: acked <= {run.id for run in read_runs(workers.ledger, "fastq")})
        runs = read_runs(workers.ledger, "fastq")
        sys.stdout.writelines(f"{line}\n" for line in workers.stop())
    begun = [Event(run.began, producers.queue_of[run.id]) for run in runs if run.id in acked]
    others = [queue for queue in names if queue not in queues[nodes[0].port]]
    span = (began_s, stopped_s, ended_s)
    found = {name: figures(events, others, span) for name, events in {**producers.acks, "workers": begun}.items()}
    return found, len(acked), len(acked - {run.id for run in runs})


def _wait(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, or the patience is over."""
    until_s = time.monotonic() + _LEFT_S
    while not is_so() and time.monotonic() < until_s:
        time.sleep(0.2)


def main(arguments: list[str]) -> int:
    """Measure, print a table, and return the exit code."""
    parser = argparse.ArgumentParser("python -m tests.chaos.topology.silence")
    parser.add_argument("--rate", type=float, default=10.0, help="tasks a second of each caller (10)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of silence, and of the look before (20)")
    given = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="fastq-silence-") as place:
        found, acked, lost = measure(given.rate, given.seconds, Path(place))
    out = sys.stdout.write
    out("| queues of the other two masters | before, 1/s | while, 1/s | ratio | worst window | longest pause, s |\n")
    out("|---|---|---|---|---|---|\n")
    for name, one in found.items():
        rates = f"{one.before:.1f} | {one.during:.1f} | {one.ratio:.2f} | {one.worst:.1f}"
        out(f"| {name} | {rates} | {one.pause_s:.2f} |\n")
    out(f"{acked} tasks were acknowledged, {lost} of them never ran\n")
    return int(lost > 0 or any(one.ratio < KEPT for one in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The demo from start to end; whatever happens, its processes are ended and its data is removed."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fastq._version import __version__
from fastq.broker.operations.health import server_version
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.embedded import EmbeddedRedis
from fastq.broker.transport.open import open_broker
from fastq.client import Client
from fastq.demo.audit import audit
from fastq.demo.books import Books
from fastq.demo.figures import measure
from fastq.demo.findings import QueueCounts, find, read_counts
from fastq.demo.pages import Pages
from fastq.demo.shift import Shift
from fastq.demo.summary import print_summary
from fastq.demo.sweep import sweep
from fastq.demo.worker import Worker
from fastq.demo.workload import WEIGHTS, Workload
from fastq.terminal.interruption import Interrupted, Interruption
from fastq.terminal.screen import Screen, grouped

_PREFIX: Final = "demo:"
"""The prefix of the queues in a Redis that other programs may use."""


class QueuesInUseError(Exception):
    """Raised when the queues of the demo contain tasks at its start; the demo does not change these tasks."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The number of tasks, the seed, the number of children; ``redis`` is a URL, or None for a private server.

    With ``web`` the web UI shows the demo, and stays after the end until Ctrl-C.
    """

    tasks: int
    seed: int
    concurrency: int
    redis: str | None = None
    web: bool = False


def run_demo(options: DemoOptions, screen: Screen, interruption: Interruption) -> bool:
    """Run the demo; return whether all tasks are accounted for."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="fastq-demo-")))
        url = options.redis or stack.enter_context(EmbeddedRedis()).url
        prefix = _PREFIX if options.redis else ""
        weights = {f"{prefix}{queue}": weight for queue, weight in WEIGHTS.items()}
        broker = open_broker(url)
        stack.callback(broker.close)
        client = stack.enter_context(Client(url))
        interruption.check()
        _say_where(screen, broker, options)
        before = _counts_of_empty(broker, list(weights))
        pages = stack.enter_context(Pages(url)) if options.web else None
        if pages:
            screen.say(f"The web UI: {pages.address}", bold=True)
        books, workload = Books(), Workload(options.tasks, options.seed, list(weights))
        if options.redis:
            stack.callback(sweep, broker, books, list(weights))
        _enqueue(screen, books, client, workload, interruption)
        worker = Worker(weights, options.concurrency, url, directory)
        screen.say(screen.paint("  $ ", dim=True) + screen.paint(worker.command, bold=True))
        screen.say()
        with worker:
            Shift(broker, worker, books, screen, interruption).work_off(workload, client, weights, before)
            worker.stop()
        screen.say()
        findings = find(broker, books, worker.ledger, interruption.check)
        result = audit(books, before, findings)
        print_summary(screen, books, result, measure(books, findings.runs), weights)
        if pages:
            screen.say(f"The web UI goes on at {pages.address} until Ctrl-C.", bold=True)
            with suppress(Interrupted):
                interruption.wait(math.inf)
    return not result.faults


def _say_where(screen: Screen, broker: BlockingBroker, options: DemoOptions) -> None:
    redis = broker.run(server_version()) or "Redis"
    where = "your Redis, queues demo:*" if options.redis else "private, on a Unix socket"
    screen.say(f"fastq {__version__} on {redis} ({where})", bold=True)


def _counts_of_empty(broker: BlockingBroker, queues: Sequence[str]) -> Mapping[str, QueueCounts]:
    """Return the counters; refuse queues that contain tasks."""
    counts = read_counts(broker, queues)
    held = {queue: count.unfinished + count.completed + count.archived for queue, count in counts.items()}
    if any(held.values()):
        which = ", ".join(f"{queue} holds {grouped(number)}" for queue, number in held.items() if number)
        raise QueuesInUseError(
            f"the demo's queues are in use: {which} tasks. Another demo may be running. If one was "
            "killed, remove its queues: `fastq queue rm --force QUEUE`"
        )
    return counts


def _enqueue(screen: Screen, books: Books, client: Client, workload: Workload, interruption: Interruption) -> None:
    start_s = time.monotonic()
    for _ in books.enqueue(client, workload.first_wave()):
        interruption.check()
    seconds = time.monotonic() - start_s
    screen.say(
        f"Made and enqueued {grouped(len(books.by_id))} tasks in {seconds:.1f} s, {grouped(books.refused)} duplicates "
        f"were refused; {workload.late} more follow later. Starting the worker:"
    )

"""Fill Redis with a million tasks and 100 000 groups, and time what the inspector and the command make Redis do.

An operation is a row of commands and script calls, the same each time. It is repeated, and of each call the fastest
time counts, as Redis itself measures it: what else the machine does only adds to it. The slowest call of each operation
is printed; then that of each command of ``fastq``, run as a process, with its time and its memory. Exit 1 if one is
above 5 ms.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from redis import Redis

from benchmarks.bigdata_commands import Limits, measure_commands
from benchmarks.bigdata_keyspace import ID_FORMAT, NOW_NS, QUEUE, SAMPLE_ID, Size, prepare
from fastq.broker.operation import Flow, Operation
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import open_broker
from fastq.errors import BrokerError
from fastq.inspector import actions, bulk
from fastq.inspector.driver import Driver
from fastq.inspector.queues import QueueMethods
from fastq.inspector.tasks import Listing, TaskMethods
from tests.redis_servers import RedisServer, redis_server

LIMIT_US = 5_000


class Case(NamedTuple):
    """Name what is timed, and how the keyspace is made for it; one that changes it has it made anew each time."""

    name: str
    prepare: str
    flow: Callable[[], Flow[object]]
    changes: bool = True


def page(state: str, number: int, size: int = 100) -> Callable[[], Flow[object]]:
    return lambda: Listing.of(QUEUE, state, None).page(number, size, NOW_NS)


def all_ids_and_some_tasks(state: str) -> Callable[[], Flow[object]]:
    """Do what ``iter_tasks`` does, for the first 10 000 tasks."""

    def flow() -> Flow[None]:
        listing = Listing.of(QUEUE, state, None)
        ids = yield from listing.ids()
        for piece in listing.pieces(ids[:10_000], 1000):
            yield from listing.read(piece, NOW_NS)

    return flow


def everything(verb: Callable[..., Flow[object]], state: str, *more: Any) -> Callable[[], Flow[object]]:
    return lambda: verb(QUEUE, state, "group-0" if state == "aggregating" else None, *more)


def flow(definition: Any, *args: object) -> Flow[object]:
    """Return the flow that a method of the inspectors is."""
    found: Flow[object] = definition.flow(Driver(), *args)
    return found


def cases(size: Size) -> list[Case]:
    """List what is timed."""
    middle = ID_FORMAT % (size.tasks // 2)
    last_page = size.tasks * 4 // 10 // 100
    return [
        Case("get_queue_info", "mixed", lambda: flow(QueueMethods.get_queue_info, QUEUE), False),
        Case("groups", "mixed", lambda: flow(QueueMethods.groups, QUEUE), False),
        Case("history, 90 days", "mixed", lambda: flow(QueueMethods.history, QUEUE, 90), False),
        Case("get_task_info", "mixed", lambda: flow(TaskMethods.get_task_info, QUEUE, SAMPLE_ID), False),
        Case("list_pending_tasks, first page", "mixed", page("pending", 1), False),
        Case("list_pending_tasks, middle", "mixed", page("pending", last_page // 2), False),
        Case("list_completed_tasks, middle", "mixed", page("completed", last_page // 4), False),
        Case("list_pending_tasks, 10 000", "mixed", page("pending", 2, 10_000), False),
        Case("iter_tasks, pending", "mixed", all_ids_and_some_tasks("pending"), False),
        Case("iter_tasks, completed", "mixed", all_ids_and_some_tasks("completed"), False),
        Case("delete_task, middle of pending", "pending", lambda: actions.delete(QUEUE, middle)),
        Case("archive_task, middle of pending", "pending", lambda: actions.archive(QUEUE, middle, NOW_NS)),
        Case("delete_all_pending_tasks", "pending", everything(bulk.delete_all_tasks, "pending")),
        Case("archive_all_pending_tasks", "pending", everything(bulk.archive_all_tasks, "pending", NOW_NS)),
        Case("run_all_scheduled_tasks", "scheduled", everything(bulk.run_all_tasks, "scheduled", NOW_NS)),
        Case("archive_all_scheduled_tasks", "scheduled", everything(bulk.archive_all_tasks, "scheduled", NOW_NS)),
        Case("delete_all_completed_tasks", "completed", everything(bulk.delete_all_tasks, "completed")),
        Case("delete_all_aggregating_tasks", "one group", everything(bulk.delete_all_tasks, "aggregating")),
        Case("run_all_aggregating_tasks", "one group", everything(bulk.run_all_tasks, "aggregating", NOW_NS)),
        Case("archive_all_aggregating_tasks", "one group", everything(bulk.archive_all_tasks, "aggregating", NOW_NS)),
        Case("delete_queue, force", "mixed", lambda: bulk.delete_queue(QUEUE, NOW_NS, force=True)),
    ]


class Stopwatch:
    """Drive flows one operation at a time, and ask Redis after each how long it held Redis."""

    def __init__(self, broker: BlockingBroker) -> None:
        self._broker = broker
        self._info: Operation[bytes] = Operation("INFO", (), ("commandstats",), idempotent=True)
        self._stats = b""

    def time(self, flow: Flow[object]) -> list[tuple[int, str]]:
        """Return microseconds and name of each operation."""
        timed: list[tuple[int, str]] = []
        self._stats = self._broker.run(self._info)
        try:
            step = next(flow)
            while True:
                if isinstance(step, tuple):
                    step = flow.send([self._run(operation, timed) for operation in step])
                else:
                    assert isinstance(step, Operation)
                    step = flow.send(self._run(step, timed))
        except StopIteration:
            return timed

    def _run(self, operation: Operation[Any], timed: list[tuple[int, str]]) -> Any:
        command = "eval(?:sha)?" if operation.script else operation.name.lower()
        before = self._held_us(command)
        result = self._broker.run_many((operation,))[0]
        assert not isinstance(result, BrokerError), result
        self._stats = self._broker.run(self._info)
        timed.append((self._held_us(command) - before, operation.name))
        return result

    def _held_us(self, command: str) -> int:
        """Read how long commands have held Redis, as it said last: nobody else asks it for anything."""
        return sum(map(int, re.findall(rb"cmdstat_%s:calls=\d+,usec=(\d+)" % command.encode(), self._stats)))


class Measured(NamedTuple):
    """The slowest call of an operation in microseconds, its name, and how many calls there were."""

    us: int
    name: str
    calls: int


def measure(db: Redis, url: str, size: Size, wanted: str, repeats: int) -> Iterator[tuple[Case, Measured]]:
    """Give the slowest call of each case, of each call the fastest of its repeats."""
    stopwatch = Stopwatch(open_broker(url))
    there = ""
    for case in cases(size):
        if wanted not in case.name:
            continue
        runs = []
        for _ in range(repeats):
            if there != case.prepare:
                prepare(db, case.prepare, size)
                there = case.prepare
            runs.append(stopwatch.time(case.flow()))
            if case.changes:
                there = ""
        fastest = [min(call for call in calls if call) for calls in zip_longest(*runs)]
        us, name = max(fastest)
        yield case, Measured(us, name, len(fastest))


def main(arguments: Sequence[str] | None = None) -> int:
    """Time all cases, print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="what has this in its name: a case, or 'fastq …'")
    given = parser.parse_args(arguments)
    size = Size(given.tasks, given.groups)
    print(f"{size.tasks:,} tasks, {size.groups:,} groups; of each call the fastest of {given.repeats} repeats")
    with redis_server() as server:
        over = time_inspector(server, size, given.only, given.repeats)
        over += time_commands(server, size, given.only, given.repeats)
    print(f"above {LIMIT_US / 1000:.0f} ms: {', '.join(over) or 'none'}")
    return 1 if over else 0


def time_inspector(server: RedisServer, size: Size, wanted: str, repeats: int) -> list[str]:
    """Print a line for each case, and return those above the limit."""
    print(f"{'operation':<34}{'slowest call':>12}  {'which':<24}{'calls':>8}")
    over = []
    with server.client() as db:
        for case, found in measure(db, server.url, size, wanted, repeats):
            print(f"{case.name:<34}{found.us / 1000:>9.2f} ms  {found.name:<24}{found.calls:>8,}", flush=True)
            over += [case.name] if found.us > LIMIT_US else []
    return over


def time_commands(server: RedisServer, size: Size, wanted: str, repeats: int) -> list[str]:
    """Print a line for each command, and return those above the limit."""
    print(f"{'command':<66}{'slowest call':>12}  {'which':<24}{'time':>10}{'memory':>10}")
    over = []
    for words, run in measure_commands(server, size, wanted, Limits(repeats, LIMIT_US)):
        print(f"{words:<66}{run}", flush=True)
        over += [words] if run.us > LIMIT_US else []
    return over


if __name__ == "__main__":
    sys.exit(main())

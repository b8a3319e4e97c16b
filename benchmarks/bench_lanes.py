"""What lanes cost Redis, in microseconds a task: its own count of the time in EVALSHA, the least of many.

Run as ``python -m benchmarks.bench_lanes``. Beside the table: 100 000 tasks, 99 % behind one full tenant; and 100 000
lanes with a task each.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from statistics import median
from typing import Any

from fastq._ids import new_task_ids
from fastq.broker.operations.dequeue import Taken, dequeue, take
from fastq.broker.operations.enqueue import EnqueueBatch, NewTask, enqueue_operations
from fastq.broker.operations.finish import Done, done
from fastq.broker.operations.lease import Leased, Owner
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import open_broker
from fastq.common.states import TaskState
from fastq.wire import keys
from fastq.wire.codec import TaskMessage, encode_task_message, view_task_message
from tests.redis_servers import redis_server

QUEUE = "default"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_NS = int(NOW.timestamp()) * 1_000_000_000
SCORE = Owner.draw().score(NOW.timestamp())
REPEATS = 25
MANY = 100_000


class Bench:
    """A queue on a Redis of its own."""

    def __init__(self, db: Any, broker: BlockingBroker) -> None:
        self.db, self.broker = db, broker

    def us(self) -> tuple[int, int]:
        """Return the microseconds in EVALSHA since the last reset, and the number of calls."""
        found = self.db.info("commandstats").get("cmdstat_evalsha", {"usec": 0, "calls": 0})
        return found["usec"], found["calls"]

    def cpu_us(self) -> float:
        """Return the CPU time that the main thread of Redis has used."""
        used = self.db.info("cpu")
        return 1e6 * float(used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"])

    def cost(self, prepare: Callable[[], Any], work: Callable[[Any], Any], size: int) -> float:
        """Return the least cost of a task in many repeats."""
        least = float("inf")
        for repeat in range(REPEATS + 1):
            self.db.flushdb()
            ready = prepare()
            self.db.config_resetstat()
            work(ready)
            if repeat:  # the first sends the text of the script, by EVAL
                least = min(least, self.us()[0] / size)
        return least

    def put(self, lanes: Sequence[str]) -> None:
        """Enqueue a task into each of these lanes; "" for pending."""
        ids = new_task_ids(len(lanes))
        for at in range(0, len(ids), 500):
            some = list(zip(ids[at : at + 500], lanes[at : at + 500], strict=True))
            tasks = [NewTask(one, message(one, lane), group=lane) for one, lane in some]
            in_lane = bool(some[0][1])
            state = TaskState.AGGREGATING if in_lane else TaskState.PENDING
            self.broker.run_many(enqueue_operations([EnqueueBatch(QUEUE, state, tasks, NOW_NS, in_lane)], ()))

    def limit(self, rule: str) -> None:
        """Set the rule of all lanes."""
        self.db.hset(keys.limits(QUEUE), "*", rule)

    def take(self, count: int) -> Taken:
        """Take tasks."""
        taken = self.broker.run(take(QUEUE, count, SCORE))
        assert isinstance(taken, Taken)
        return taken

    def done(self, leased: Leased) -> None:
        """Finish tasks."""
        lanes = [view_task_message(one).group_key for one in leased.messages]
        self.broker.run(done(QUEUE, [Done(one.decode()) for one in leased.ids], NOW, lanes=lanes))


def message(task_id: str, lane: str) -> bytes:
    """Return an encoded message with a payload of 100 bytes."""
    return encode_task_message(
        TaskMessage(type="bench:noop", payload=bytes(100), id=task_id, queue=QUEUE, group_key=lane)
    )


def table(bench: Bench) -> None:
    """Print what a task costs at 100 and 500 a call."""
    for size in (100, 500):
        plain = [""] * size

        def taken_of(lanes: Sequence[str], size: int = size) -> Leased:
            bench.limit("1000:1:100000:1")
            bench.put(lanes)
            return bench.take(size).leased

        print(f"{size:4} enqueue, plain      {bench.cost(lambda: None, lambda _: bench.put(plain), size):6.2f}")  # noqa: B023
        dequeued = bench.cost(
            lambda: bench.put(plain),  # noqa: B023
            lambda _: bench.broker.run(dequeue(QUEUE, size, SCORE)),  # noqa: B023
            size,
        )
        print(f"{size:4} dequeue, plain      {dequeued:6.2f}")
        for count in (1, 10, 100):
            lanes = [f"t{n % count}" for n in range(size)]
            cost = bench.cost(lambda: bench.limit("0:0:1:1"), lambda _: bench.put(lanes), size)  # noqa: B023
            print(f"{size:4} enqueue, {count:3} lanes  {cost:6.2f}")
            for rule in ("0:0:1:1", "1000:1:100000:1"):

                def fill(rule: str = rule, lanes: Sequence[str] = lanes) -> None:
                    bench.limit(rule)
                    for _ in range(4):
                        bench.put(lanes)

                cost = bench.cost(fill, lambda _: bench.take(size), size)  # noqa: B023
                print(f"{size:4} take, {count:3} lanes, {rule:16} {cost:6.2f}")
            cost = bench.cost(lambda: taken_of(lanes), bench.done, size)  # noqa: B023
            print(f"{size:4} done, {count:3} lanes     {cost:6.2f}")


def hot_tenant(bench: Bench) -> None:
    """Print how the others fare behind a tenant that is full."""
    bench.db.flushdb()
    bench.limit("10:0:1:1")
    bench.put(["hot" if n % 100 else f"cold{n // 100 % 100}" for n in range(MANY)])
    bench.db.config_resetstat()
    calls = cold = 0
    while cold < MANY // 100 and calls < 2000:
        leased = bench.take(100).leased
        calls += 1
        others = Leased.of(task for task in leased.tasks if b"cold" in task.message)
        cold += others.size
        if others.size:
            bench.done(others)
    print(f"hot tenant: {cold} others taken and done in {calls} calls, {bench.us()[0] / max(1, cold):.2f} us each")
    print(f"a call that finds only the full lane: {least_us(bench, 50):.1f} us")


def least_us(bench: Bench, repeats: int) -> float:
    """Return the least cost of a take."""
    costs = []
    for _ in range(repeats):
        bench.db.config_resetstat()
        bench.take(100)
        costs.append(bench.us()[0])
    return min(costs)


def many_lanes(bench: Bench) -> None:
    """Print the longest call among very many lanes, taken from until they are full, and looked at again."""
    bench.db.flushdb()
    bench.limit("1:100:1000:1")
    bench.put([f"t{n}" for n in range(MANY)] * 2)
    wall, cpu = [], []
    for _ in range(100):
        bench.db.config_resetstat()
        before = bench.cpu_us()
        bench.take(500)
        cpu.append(bench.cpu_us() - before)
        wall.append(bench.us()[0])
    print(f"{MANY} lanes, 100 takes of 500, ms of CPU: {median(cpu) / 1000:.2f}, the longest {max(cpu) / 1000:.2f}")
    print(f"by Redis' clock, waits for a core included: {median(wall) / 1000:.2f}, {max(wall) / 1000:.2f}")


def main() -> None:
    """Run all."""
    with redis_server() as server, closing(open_broker(server.url)) as broker:
        bench = Bench(server.client(), broker)
        table(bench)
        hot_tenant(bench)
        many_lanes(bench)


if __name__ == "__main__":
    main()

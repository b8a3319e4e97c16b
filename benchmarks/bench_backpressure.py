"""Stream any number of tasks through a Redis that has room for few of them: ``enqueue_many(..., max_pending=)``.

``python -m benchmarks.bench_backpressure --tasks 10_000_000 --max-pending 50_000`` starts a Redis that holds at most
``--redis-memory`` MB, a process that enqueues, and one that takes ``--rate`` tasks a second off the queue. It prints
the memory of both ten times on the way: it should be as flat at the end as after the first tenth. Exit 1 if a task is
missing. More may be taken than there are: a chunk whose reply is lost and whose tasks are gone is enqueued again.
"""

import argparse
import subprocess
import sys
import time
from typing import Final

from redis import Redis

from fastq.pool.shared.processes import rss_of
from tests.redis_servers import RedisServer, redis_server

A_TRIP: Final = 2000
PENDING: Final = "asynq:{default}:pending"
PRODUCER: Final = """
import sys
from fastq import Client, Task

url, count, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Client(url) as client:
    results = client.enqueue_many((Task("t", b"x" * 100) for _ in range(count)), max_pending=most)
print(results.enqueued)
"""
TAKE: Final = """
local ids = redis.call("RPOP", KEYS[1], ARGV[2])
if not ids then return 0 end
for at, id in ipairs(ids) do ids[at] = ARGV[1] .. id end
return redis.call("UNLINK", unpack(ids))
"""


def drain(db: Redis, producer: "subprocess.Popen[str]", server: RedisServer, count: int, rate: int) -> int:
    """Take all tasks until the producer has ended; return how many were taken."""
    take = db.register_script(TAKE)
    taken = told = longest = 0
    began_s = time.monotonic()
    print("   tasks  seconds  longest queue  producer MB  Redis MB", flush=True)
    while taken < count:
        longest = max(longest, int(db.llen(PENDING)))
        some = int(take([PENDING], ["asynq:{default}:t:", A_TRIP]))
        taken += some
        if not taken:
            began_s = time.monotonic()
        if not some:
            if producer.poll() is not None and not db.llen(PENDING):
                break
            time.sleep(0.01)
        time.sleep(max(0.0, began_s + taken / rate - time.monotonic()))
        if taken >= told + count // 10:
            told += count // 10
            mb = rss_of(producer.pid) / 1e6, rss_of(server.process.pid) / 1e6
            print(f"{taken:8} {time.monotonic() - began_s:8.0f} {longest:14} {mb[0]:12.1f} {mb[1]:9.1f}", flush=True)
    return taken


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--max-pending", type=int, default=50_000)
    parser.add_argument("--rate", type=int, default=20_000, help="tasks a second that are taken")
    parser.add_argument("--redis-memory", type=int, default=64, help="MB that Redis may use at most")
    args = parser.parse_args()
    with redis_server(config={"maxmemory": f"{args.redis_memory}mb"}) as server, server.client() as db:
        command = [sys.executable, "-c", PRODUCER, server.url, str(args.tasks), str(args.max_pending)]
        producer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            taken = drain(db, producer, server, args.tasks, args.rate)
        finally:
            if producer.poll() is None and sys.exc_info()[0] is not None:
                producer.kill()
            enqueued, _ = producer.communicate()
    done = enqueued.strip() or "not all"
    print(f"enqueued {done}, taken {taken} of {args.tasks}; the producer's exit code is {producer.returncode}")
    return int(taken < args.tasks or producer.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())

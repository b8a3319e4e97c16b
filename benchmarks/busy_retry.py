"""A worker that throttles as sidekiq-throttled does: it fetches a job, finds it throttled, and pushes it back.

``python -m benchmarks.busy_retry URL full|tokens REST_S``. Eight threads, each BRPOP, a script that asks the limit, and
LPUSH if it says no. With REST_S, all threads leave the queue alone for so long after a throttled job (its
``cooldown_period``). A job is ``key/number``; one that may start runs until the worker ends. Written for the benchmark;
nothing of sidekiq-throttled is in it.
"""

import sys
import threading
import time
from typing import Any, Final

from redis import Redis

QUEUE: Final = "queue"
STARTED: Final = "started"
THREADS: Final = 8
ASKS: Final = {
    # At most two at once of each key; a place that nobody gives back ends after an hour.
    "full": """
local now = tonumber(ARGV[2])
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now)
if redis.call("ZCARD", KEYS[1]) >= 2 then return 0 end
redis.call("ZADD", KEYS[1], now + 3600, ARGV[1])
return 1""",
    # One of each key in ten minutes.
    "tokens": """
if redis.call("LLEN", KEYS[1]) >= 1 then return 0 end
redis.call("LPUSH", KEYS[1], ARGV[2])
redis.call("EXPIRE", KEYS[1], 600)
return 1""",
}


def work(url: str, limit: str, rest_s: float, rests: list[float]) -> None:
    """Run jobs, in one thread."""
    db: Any = Redis.from_url(url, decode_responses=True)
    may_start = db.register_script(ASKS[limit])
    while True:
        time.sleep(max(0.0, rests[0] - time.monotonic()))
        popped = db.brpop([QUEUE], timeout=2)
        if popped is None:
            continue
        job = popped[1]
        key = job.partition("/")[0]
        if may_start(keys=[f"{limit}:{key}"], args=[job, time.time()]):
            db.sadd(STARTED, job)
            time.sleep(3600)
        else:
            db.lpush(QUEUE, job)
            rests[0] = time.monotonic() + rest_s


def main(url: str, limit: str, rest_s: str) -> None:
    """Run all threads until the process is killed."""
    rests = [0.0]
    for _ in range(THREADS):
        threading.Thread(target=work, args=(url, limit, float(rest_s), rests), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])

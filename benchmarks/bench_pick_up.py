"""What an idle server takes to begin a task and to tell its result, beside a bare loop of BRPOP.

``python -m benchmarks.bench_pick_up [--before DIR] [--loops asyncio,uvloop] [--rounds 9] [--samples 150] [--json F]``.
Each round gives every tree, and this one on each of the loops, a server of three queues on a Redis of their own, and
the loop of BRPOP one run. Times are those of whole processes, so keep the machine quiet; CPU of the main process, with
the write of the end, holds where it is busy.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import redis

from benchmarks.bench_latency import brpop_latencies_ms, latencies_ms, pause, worker
from benchmarks.bench_turn import Side, show, sides
from benchmarks.fleet import used_s
from fastq import Client, Task
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server

SETTLE_S = 2.0


def quantiles(what: str, found: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile of milliseconds, in microseconds."""
    in_order = sorted(found)
    return {
        f"{what} p50, us": 1e3 * in_order[len(found) // 2],
        f"{what} p99, us": 1e3 * in_order[len(found) * 99 // 100],
    }


def result_ms(client: Client) -> float:
    """Return the milliseconds from the submission of a task to its result."""
    pause()
    began_s = time.perf_counter()
    client.submit(Task("bench:noop")).result()
    return 1e3 * (time.perf_counter() - began_s)


def measure(server: RedisServer, side: Side, samples: int) -> Mapping[str, float]:
    """Return the figures of one server."""
    with redis.Redis(port=server.port) as db, Client(server.tcp_url) as client:
        db.flushall()
        with worker(server, settings=side.flags, tree=side.tree) as pid:
            client.submit(Task("bench:noop")).result()
            time.sleep(SETTLE_S)
            used = used_s(pid)
            found = quantiles("pick-up", latencies_ms(client, db, count=samples))
            found["main us/task"] = 1e6 * (used_s(pid) - used) / samples
            found |= quantiles("result", [result_ms(client) for _ in range(samples)])
        return found | quantiles("BRPOP", brpop_latencies_ms(db, server.port, samples))


def main() -> None:
    """Measure by turns, and print medians and ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    parser.add_argument("--loops", default="asyncio", help="asyncio, uvloop or both")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--samples", type=int, default=150)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    taking_turns = sides(options.before, options.loops)
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in taking_turns}
    with redis_server(free_port()) as server:
        for _ in range(options.rounds):
            for name, side in taking_turns.items():
                found[name].append(measure(server, side, options.samples))
    show(f"{options.samples} tasks a round, {options.rounds} rounds, load {os.getloadavg()[0]:.0f}", found)
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()

"""One server on all cores of a machine, and two beside each other: where the main process is the wall.

``python -m benchmarks.bench_cores``: for each number of children, tasks a second of no-ops and of handlers that use
0.2 and 1 ms of CPU, the share of what as many bare processes could do, and how busy the main process and Redis are: 1
is a core. The last row of each kind has the children in two servers.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from benchmarks.bench_real_work import loops_a_ms
from benchmarks.fleet import Cost, filled, running
from fastq import Task
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server

APP = "benchmarks.real_work_app:mux"
KINDS_MS = (0.0, 0.2, 1.0)
BARE_NOOPS = 100_000
"""About how many no-ops a second one child does; only the number of tasks follows from it."""


def counts_of(cores: int) -> list[int]:
    """Return the numbers of children: 2, 4, 8, ... and two fewer than the cores, which main process and Redis have."""
    return sorted({*(1 << power for power in range(1, 7) if 1 << power < cores - 2), max(2, cores - 2)})


def measure(server: RedisServer, ms: float, loops: int, children: int, servers: int, seconds: float) -> str:
    """Drain a queue of tasks of one kind; return a row of the table."""
    ideal = children * 1000 / ms if ms else min(children, 3) * BARE_NOOPS
    count = round(ideal * seconds)
    tasks = (Task("bench:spin" if ms else "bench:noop", str(loops).encode()) for _ in range(count))
    with filled(server, tasks) as fleet, running(server, app=APP, children=children // servers, count=servers) as run:
        before = [worker.cost() for worker in run]
        took_s = fleet.drain_s(count)
        costs = [worker.cost().since(was) for worker, was in zip(run, before, strict=True)]
    share = f"{count / took_s / ideal:.2f}" if ms else "-"
    kind = f"{ms:g} ms" if ms else "no-op"
    return f"| {kind} | {servers} | {children} | {count / took_s:,.0f} | {share} | {busy(costs, took_s)} |"


def busy(costs: Sequence[Cost], took_s: float) -> str:
    """Return how busy the main process (the busiest, if there are two) and Redis were."""
    main_s, redis_s = max(cost.main_s for cost in costs), costs[0].redis_s
    return f"{main_s / took_s:.2f} | {redis_s / took_s:.2f}"


def main() -> int:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_cores")
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long a row may take (%(default)s)")
    asked = parser.parse_args()
    cores = os.cpu_count() or 1
    sys.stdout.write(f"{cores} cores, load {os.getloadavg()[0]:.1f}\n\n")
    sys.stdout.write("| task | servers | children | tasks a second | of bare processes | main | Redis |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    loops = loops_a_ms()
    with redis_server(port=free_port()) as server:
        for ms in KINDS_MS:
            for children, servers in [*((each, 1) for each in counts_of(cores)), (max(2, cores - 2), 2)]:
                sys.stdout.write(measure(server, ms, round(ms * loops), children, servers, asked.seconds) + "\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

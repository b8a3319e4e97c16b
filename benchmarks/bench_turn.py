"""What a turn of the main process costs: read the rings, write the ends, fetch, give the tasks to children.

``python -m benchmarks.bench_turn [--before DIR] [--loops asyncio,uvloop] [--rounds 9] [--seconds 3] [--ms 0,0.2,1,5]``.
Each round gives every tree, and this one on each of the loops, a server with a full queue for some seconds. A turn is a
write of ends. CPU is what the scheduler has counted, so it holds where the machine is busy. Ratios are those to the
first column. ``--counts`` shows what the loop does in a turn, ``--calls`` what the system is asked for, by strace.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.bench_real_work import loops_a_ms
from benchmarks.bench_worker import ROOT
from benchmarks.fleet import Fleet, Worker, filled, running
from fastq import Task
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server

WARM_UP_S: Final = 1.0
SYSTEM_CALL: Final = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)


def turns(fleet: Fleet) -> int:
    """Return how many writes of ends Redis has seen: each adds to the counters of the day and of all days."""
    return int(fleet.db.info("commandstats").get("cmdstat_incrby", {"calls": 0})["calls"]) // 2


def tasks_of(ms: float, seconds: float) -> Iterator[Task]:
    """Yield more tasks than two children do in so many seconds."""
    payload = b"%d" % round(ms * loops_a_ms()) if ms else bytes(100)
    for _ in range(round(2500 * (seconds + WARM_UP_S) / ms) if ms else round(200_000 * (seconds + WARM_UP_S))):
        yield Task("bench:spin" if ms else "bench:noop", payload)


def window(fleet: Fleet, worker: Worker, seconds: float) -> dict[str, float]:
    """Return what some seconds of work cost: CPU of main process and Redis in us a turn and a task."""
    fleet.db.delete("asynq:{default}:paused")
    time.sleep(WARM_UP_S)
    cost, made, done = worker.cost(), turns(fleet), fleet.processed()
    time.sleep(seconds)
    used, made, done = worker.cost().since(cost), turns(fleet) - made, fleet.processed() - done
    return {
        "turns/s": made / seconds,
        "tasks/s": done / seconds,
        "main us/turn": 1e6 * used.main_s / made,
        "main us/task": 1e6 * used.main_s / done,
        "Redis us/task": 1e6 * used.redis_s / done,
        "children us/task": 1e6 * used.children_s / done,
    }


def system_calls(fleet: Fleet, worker: Worker, seconds: float) -> dict[str, float]:
    """Return how often the system is asked for what in a turn."""
    fleet.db.delete("asynq:{default}:paused")
    time.sleep(WARM_UP_S)
    with tempfile.NamedTemporaryFile("r") as told:
        made = turns(fleet)
        command = ["timeout", "-s", "INT", str(seconds), "strace", "-c", "-o", told.name, "-p", str(worker.pid)]
        subprocess.run(command, check=False, capture_output=True)
        made = turns(fleet) - made
        return {name: int(count) / made for count, name in SYSTEM_CALL.findall(told.read())}


def counts(file: Path) -> dict[str, float]:
    """Return what the loop did in a turn, between the first and the last line of counts."""
    first, *_, last = (Counter(json.loads(line)) for line in file.read_text().splitlines()[2:])
    last.subtract(first)
    return {name: count / last["turns"] for name, count in last.items() if name not in ("turns", "told")}


class Side(NamedTuple):
    """A built tree, and what is set for its server."""

    tree: Path
    flags: tuple[str, ...] = ()


def sides(before: Path | None, loops: str) -> dict[str, Side]:
    """Return what takes turns, by name."""
    old = {"before": Side(before)} if before else {}
    return old | {loop: Side(ROOT, ("--loop", loop)) for loop in loops.split(",")}


def measure(server: RedisServer, side: Side, ms: float, options: argparse.Namespace) -> Mapping[str, float]:
    """Return the figures of one server."""
    with tempfile.TemporaryDirectory() as directory:
        file, module = Path(directory, "counts"), "fastq.cli.worker"
        if options.counts:
            os.environ["COUNTS"], module = str(file), "benchmarks.counted_worker"
        with (
            filled(server, tasks_of(ms, options.seconds)) as fleet,
            running(server, *side.flags, app="real_work_app:mux", tree=side.tree, module=module) as (worker,),
        ):
            if options.calls:
                return system_calls(fleet, worker, options.seconds)
            found = window(fleet, worker, options.seconds)
        return counts(file) if options.counts else found


def main() -> None:
    """Measure by turns, and print medians and ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    parser.add_argument("--loops", default="asyncio", help="asyncio, uvloop or both")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--ms", default="0.2,1,5", help="0 for no-ops")
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    taking_turns = sides(options.before, options.loops)
    with redis_server(free_port()) as server:
        for ms in map(float, options.ms.split(",")):
            found: dict[str, list[Mapping[str, float]]] = {name: [] for name in taking_turns}
            for _ in range(options.rounds):
                for name, side in taking_turns.items():
                    found[name].append(measure(server, side, ms, options))
            show(f"handlers of {ms:g} ms, {options.rounds} rounds, load {os.getloadavg()[0]:.0f}", found)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps({"ms": ms, **found}) + "\n")


def show(title: str, found: Mapping[str, list[Mapping[str, float]]]) -> None:
    """Print the medians of each tree, and the median of the ratios round by round."""
    print(f"\n{title}: {', '.join(found)}")
    for what in sorted({what for rounds in found.values() for one in rounds for what in one}):
        columns = [[one.get(what, 0.0) for one in rounds] for rounds in found.values()]
        line = "".join(f"{statistics.median(column):12,.1f}" for column in columns)
        for column in columns[1:] if all(columns[0]) else ():
            line += f"   x {statistics.median(b / a for a, b in zip(columns[0], column, strict=True)):.2f}"
        print(f"  {what:<18}{line}", flush=True)


if __name__ == "__main__":
    main()

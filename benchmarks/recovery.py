"""``python -m benchmarks.recovery``: how soon a dead server's tasks run again, and whether a living one loses any.

Servers work on tasks of 0.2 s, which write down each begin and end in a file. ``supervisor`` kills the one server and
starts it again at once; ``neighbors`` and ``peers`` kill one of several and leave the rest to the others, which have
the same host name or (by ``unshare``, as root) each its own; ``freeze`` stops all main processes of such peers but one,
each for a while.

Each second run is held against what is known of the first. ``in hand``: its server was killed before the run had ended.
``unwritten``: it had ended, and its task was still active in Redis when its server, stopped for a moment, was killed,
so its end had not been written. ``frozen``: the same of a server that stood still. All others are unexplained.

``lanes`` is another program behind the same door: limits, turns and places while servers are killed.
"""

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import recovery_lanes
from fastq import Client, Task
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import wait_until

ROOT: Final = Path(__file__).parents[1]
BACKLOG: Final = 40
WITHIN_S: Final = 150.0
HOW: Final = "lanes: kill; kill servers that are each on a host of its own (as root); or stop for ever, not kill"
KINDS: Final = ("supervisor", "neighbors", "peers", "freeze", "lanes")


class Run(NamedTuple):
    """One run of a task; ``ended_s`` is 0 if it did not end."""

    server: str
    began_s: float
    ended_s: float


class Strike(NamedTuple):
    """A server that was struck, until when, and which tasks were active when it could write no more."""

    server: str
    at_s: float
    until_s: float
    active: frozenset[str]


class Site:
    """Servers on one Redis, the tasks that they are given, and what they tell."""

    def __init__(self, redis: RedisServer, directory: Path, kind: str) -> None:
        self._redis, self._directory, self._kind = redis, directory, kind
        path = directory / "ledger"
        path.touch()
        self._ledger, self._unended = path.open(), ""
        self._runs: defaultdict[str, list[Run]] = defaultdict(list)
        self._running: defaultdict[str, set[str]] = defaultdict(set)
        self.db: Any = redis.client()
        self._client = Client(redis.tcp_url)
        self.sent: list[str] = []
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0

    def start(self) -> str:
        """Start a server, and return its name."""
        name = f"s{self._started}"
        self._started += 1
        worker = [sys.executable, "-m", "fastq.cli.worker", "benchmarks.recovery_app:mux", "--redis"]
        worker += [self._redis.tcp_url, "--concurrency", "2", "--log-format", "json"]
        host = f"host-{name}"
        apart = ["unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh"]
        variables = {**os.environ, "BENCH_LEDGER": self._ledger.name, "BENCH_SERVER": name}
        with (self._directory / "log").open("ab") as log:
            self.servers[name] = subprocess.Popen(
                [*(apart if self._kind in ("peers", "freeze") else ()), *worker], cwd=ROOT, env=variables, stderr=log
            )
        return name

    def feed(self) -> None:
        """Keep tasks waiting."""
        if (lacking := BACKLOG - self.db.llen("asynq:{default}:pending")) > 0:
            tasks = [Task("bench:told", task_id=f"t{len(self.sent) + n}") for n in range(lacking)]
            self._client.enqueue_many(tasks)
            self.sent += [f"t{len(self.sent) + n}" for n in range(lacking)]

    def runs(self) -> dict[str, list[Run]]:
        """Return the runs of each task, by their begin."""
        # A line that crosses a page of the file can be read when only its first part is there.
        *lines, self._unended = (self._unended + self._ledger.read()).split("\n")
        for line in lines:
            what, task_id, server, at_ns = line.split()
            of_task, at_s = self._runs[task_id], int(at_ns) / 1e9
            if what == "began":
                of_task.append(Run(server, at_s, 0.0))
                self._running[server].add(task_id)
                continue
            nth = max(n for n, run in enumerate(of_task) if run.server == server)
            of_task[nth] = of_task[nth]._replace(ended_s=at_s)
            self._running[server].discard(task_id)
        return self._runs

    def running(self, server: str) -> set[str]:
        """Return the tasks whose run is under way in a server."""
        self.runs()
        return self._running[server]

    def have_worked(self) -> bool:
        """Return whether all servers have begun a task."""
        self.runs()
        return all(server in self._running for server in self.servers)

    def active(self) -> frozenset[str]:
        """Return the tasks that Redis has as active."""
        return frozenset(one.decode() for one in self.db.lrange("asynq:{default}:active", 0, -1))

    def was_lost(self, task_id: str) -> bool:
        """Return whether a task was lost before."""
        return bool(self.db.hget(f"asynq:{{default}}:t:{task_id}", "lost"))

    def wait(self, is_so: Any, what: str) -> None:
        """Wait, and keep tasks waiting meanwhile."""

        def fed() -> bool:
            self.feed()
            return bool(is_so())

        try:
            wait_until(fed, WITHIN_S)
        except AssertionError as error:
            raise SystemExit(f"{what}: not within {WITHIN_S:.0f} s\n{self.log()}") from error

    def log(self) -> str:
        """Return what the servers have logged."""
        return (self._directory / "log").read_text()

    def stop(self) -> None:
        """Let all tasks run, and stop the servers."""
        places = [f"asynq:{{default}}:{name}" for name in ("pending", "active", "retry")]
        wait_until(lambda: not self.db.exists(*places), WITHIN_S)
        self.kill()

    def close(self) -> None:
        """Close what this has opened."""
        self._client.close()
        self._ledger.close()
        self.db.close()

    def kill(self) -> None:
        """End what is left of the servers."""
        for server in self.servers.values():
            server.send_signal(signal.SIGCONT)
            server.terminate()
        for server in self.servers.values():
            server.wait()


@contextmanager
def site_of(kind: str) -> Iterator[Site]:
    """Make a site."""
    with redis_server(free_port()) as redis, tempfile.TemporaryDirectory() as directory:
        site = Site(redis, Path(directory), kind)
        try:
            yield site
        finally:
            site.kill()
            site.close()


def kill_one(site: Site, kind: str) -> tuple[Strike, float]:
    """Kill a server; return the strike, and the seconds until the last task that it had in hand ran again.

    Tasks that were lost before are left out: they wait as for a retry.
    """
    victim = random.choice(list(site.servers))
    site.wait(lambda: site.running(victim), f"{victim} runs no task")
    time.sleep(random.uniform(0, 1))
    process = site.servers.pop(victim)
    process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{process.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    at_s = time.monotonic()
    strike = Strike(victim, at_s, at_s, site.active())  # it writes no more, and nobody takes yet
    process.kill()
    process.wait()
    if kind == "supervisor":
        site.start()
    orphans = {one for one in site.running(victim) if not site.was_lost(one)}

    def again() -> list[float]:
        runs = site.runs()
        return [after for one in orphans for after in [runs[one][-1].began_s] if after > at_s]

    site.wait(lambda: len(again()) == len(orphans), f"orphans of {victim} do not run")
    took_s = max(again(), default=at_s) - at_s
    if kind != "supervisor":
        site.start()
        site.wait(site.have_worked, "not all servers work")
    return strike, took_s


def freeze_some(site: Site, least_s: float, most_s: float) -> list[Strike]:
    """Let all main processes but one stand still for a while, each for its own."""
    victims = random.sample(list(site.servers), max(1, len(site.servers) - 1))
    site.wait(lambda: any(map(site.running, victims)), "no server works")
    began, until, strikes = {}, {}, []
    for victim in victims:
        site.servers[victim].send_signal(signal.SIGSTOP)
        began[victim] = time.monotonic()
        until[victim] = began[victim] + random.uniform(least_s, most_s)
    while until:
        site.feed()
        for victim in [one for one, end_s in until.items() if time.monotonic() >= end_s]:
            del until[victim]
            active = site.active()
            site.servers[victim].send_signal(signal.SIGCONT)
            strikes.append(Strike(victim, began[victim], time.monotonic(), active))
        time.sleep(0.1)
    return strikes


def explain(site: Site, strikes: Sequence[Strike]) -> tuple[int, Counter[str], list[str]]:
    """Return how many tasks were lost, how many second runs there are of each kind, and the unexplained ones."""
    by_server = defaultdict(list)
    for strike in strikes:
        by_server[strike.server].append(strike)
    runs, kinds, odd = site.runs(), Counter[str](), []
    for task_id, of_task in runs.items():
        for before, after in pairwise(of_task):
            kind = "unexplained"
            for strike in by_server[before.server]:
                if before.began_s <= strike.until_s and strike.until_s > strike.at_s:
                    kind = "frozen" if after.began_s > strike.at_s else kind
                elif not before.ended_s or before.ended_s > strike.at_s:
                    kind = "in hand"
                elif task_id in strike.active:
                    kind = "unwritten"
            kinds[kind] += 1
            if kind == "unexplained":
                odd.append(f"{task_id}: {of_task}, {by_server[before.server]}")
    lost = sum(not any(run.ended_s for run in runs.get(one, ())) for one in site.sent)
    return lost, kinds, odd


def main(arguments: Sequence[str] | None = None) -> int:
    """Strike as often as told, and print what became of it; return the exit status."""
    parser = argparse.ArgumentParser("benchmarks.recovery", description="How soon a dead server's tasks run again.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--servers", type=int, default=4, help="but one under a supervisor")
    parser.add_argument("--seconds", type=float, nargs=2, default=(1.0, 10.0), help="how long a freeze lasts")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no other round after this time")
    parser.add_argument("--log", type=Path, help="write what the servers have logged here")
    parser.add_argument("--behind", type=int, default=100_000, help="lanes: tasks that wait in one of them")
    parser.add_argument("--how", choices=("near", "apart", "mute"), default="near", help=HOW)
    options = parser.parse_args(arguments)
    if options.kind == "lanes":
        return recovery_lanes.run(options.servers, options.rounds, options.behind, options.log, options.how)
    ends_s = time.monotonic() + 60 * options.minutes
    strikes: list[Strike] = []
    took: list[float] = []
    with site_of(options.kind) as site:
        for _ in range(1 if options.kind == "supervisor" else options.servers):
            site.start()
        site.wait(site.have_worked, "not all servers work")
        while len(strikes) < options.rounds and time.monotonic() < ends_s:
            if options.kind == "freeze":
                strikes += freeze_some(site, *options.seconds)
            else:
                strike, took_s = kill_one(site, options.kind)
                strikes.append(strike)
                took += [took_s] if took_s else []
            print(f"\r{len(strikes)} strikes", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        site.stop()
        lost, kinds, odd = explain(site, strikes)
        if options.log:
            options.log.write_text(site.log())
    print(f"load {os.getloadavg()[0]:.0f}, nice {os.nice(0)}; ", end="")
    print(f"{options.kind}: {len(strikes)} strikes, {len(site.sent)} tasks, lost {lost}, second runs {dict(kinds)}")
    if took:
        median = statistics.median(took)
        print(f"last orphan again: median {median:.2f} s, {min(took):.2f} to {max(took):.2f} s")
    print(*odd, sep="\n")
    return 1 if lost or odd else 0


if __name__ == "__main__":
    sys.exit(main())

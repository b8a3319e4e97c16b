"""Lanes while servers are killed: ``python -m benchmarks.recovery lanes``.

fastq servers run the tasks of lanes, which fastq and Go enqueue, and share another queue with real Go servers. Every
three seconds one of all is killed by SIGKILL, and replaced. MONITOR tells what ran when; see ``lanes_account``.
"""

import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.lanes_account import BIG, EACH, PLAIN, SINGLE, WHOLE, Account, Rule
from fastq import Client, Inspector, Task
from tests.interop.build import build_peer
from tests.interop.peer import SECOND_NS, GoPeer
from tests.interop.records import GoTask, PeerError
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import wait_until

ROOT: Final = Path(__file__).parents[1]
EVERY_S: Final = 3.0
GO_SERVERS: Final = 2
PLACES: Final = 8
BACKLOG: Final = 12
QUEUE: Final = "lanes"
OTHER: Final = "other"
KIND: Final = "bench:told"
ALONE: Final = ("j", "k", "l", "m")
RULES: Final = {
    EACH: Rule(2),
    "p:*": Rule(5),
    "rated": Rule(4, interval_s=0.1, burst=3),
    **dict.fromkeys(ALONE, Rule(1)),
    BIG: Rule(),
    WHOLE: Rule(40),
}
FED: Final = ("p:a", "p:b", "p:c", "p:d", "x", "y", "rated", *ALONE, PLAIN)
IDLE_S: Final = 6.0
IDLE_AFTER_DEATH_S: Final = 130.0
SETTLE_S: Final = 300.0
AHEAD_S: Final = 0.005
"""By so much the times of two lines of MONITOR may differ from what the scripts read."""


class Site:
    """Servers on one Redis, and two producers."""

    def __init__(self, redis: RedisServer, stack: ExitStack, log: Path, how: str) -> None:
        self._redis, self._stack, self._log = redis, stack, log
        self._apart, self._is_mute = how == "apart", how == "mute"
        self._hosts = 0
        self._stopped: list[subprocess.Popen[bytes]] = []
        self.db: Any = redis.client()
        self._client = stack.enter_context(Client(redis.url))
        self._binary = build_peer(flags=())
        self._go = self._peer()
        self.servers: list[subprocess.Popen[bytes] | GoPeer] = []
        self.sent: set[str] = set()
        stack.callback(self._stop)

    def limit(self) -> None:
        """Set the limits."""
        for lane, rule in RULES.items():
            rate = f"{round(1 / rule.interval_s)}/s" if rule.interval_s else None
            self._client.set_limit(QUEUE, lane or None, concurrency=rule.most or None, rate=rate, burst=rule.burst)

    def _peer(self) -> GoPeer:
        peer = self._stack.enter_context(GoPeer(self._binary))
        peer.request("connect", socket=self._redis.socket_path)
        return peer

    def start(self, *, is_go: bool) -> None:
        """Start a server of either kind."""
        if is_go:
            peer = self._peer()
            soon = {"task_check_ns": SECOND_NS // 10, "delayed_task_check_ns": SECOND_NS, "retry_delay_ns": SECOND_NS}
            peer.request("server_start", name="go", queues={OTHER: 1}, concurrency=4, **soon)
            self.servers.append(peer)
            return
        worker = [sys.executable, "-m", "fastq.cli.worker", "benchmarks.recovery_app:mux", "--redis", self._redis.url]
        worker += ["--queues", f"{QUEUE}=9,{OTHER}=1", "--concurrency", "1", "--threads", str(PLACES)]
        if self._apart:
            self._hosts += 1
            own = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
            worker = [*own, "sh", "-c", f'hostname host-{self._hosts} && exec "$@"', "sh", *worker]
        variables = {**os.environ, "BENCH_LEDGER": os.devnull, "BENCH_SERVER": "any"}
        with self._log.open("ab") as log:
            self.servers.append(subprocess.Popen(worker, cwd=ROOT, env=variables, stderr=log))

    def kill_one(self) -> None:
        """Kill a server, and start another one of its kind."""
        victim = self.servers.pop(random.randrange(len(self.servers)))
        is_stopped = self._is_mute and not isinstance(victim, GoPeer)
        os.kill(victim.pid, signal.SIGSTOP if is_stopped else signal.SIGKILL)
        if isinstance(victim, GoPeer):
            victim.close()
        elif is_stopped:
            self._stopped.append(victim)
        else:
            victim.wait()
        self.start(is_go=isinstance(victim, GoPeer))

    def put(self, lane: str, count: int, *, by_go: bool = False) -> None:
        """Enqueue tasks into a lane, or into the other queue."""
        queue = OTHER if lane == OTHER else QUEUE
        ids = [f"{lane}/{len(self.sent) + n}" for n in range(count)]
        group = "" if lane in (PLAIN, OTHER) else lane
        if by_go:
            script = b'{"do": "sleep", "for_ns": 200000000}'
            options: Any = {"queue": queue, "max_retry": 100, **({"group": group} if group else {})}
            done: list[Any] = [
                *self._go.enqueue_many(GoTask(KIND, script, None, options | {"task_id": i}) for i in ids)
            ]
        else:
            put = [Task(KIND, task_id=one, queue=queue, max_retry=100, lane=group or None) for one in ids]
            done = [*self._client.enqueue_many(put)]
        if failed := [one for one in done if isinstance(one, Exception | PeerError)]:
            raise SystemExit(f"not enqueued: {failed[0]}")
        self.sent.update(ids)

    def feed(self, *, by_go: bool) -> None:
        """Keep tasks waiting in the lanes and in the other queue."""
        for lane in FED:
            key = f"asynq:{{{QUEUE}}}:g:{lane}"
            there = self.db.llen(f"asynq:{{{QUEUE}}}:pending") if lane == PLAIN else self.db.zcard(key)
            if there < BACKLOG // 2:
                self.put(lane, BACKLOG - there, by_go=by_go)
        if self.db.llen(f"asynq:{{{OTHER}}}:pending") < BACKLOG // 2:
            self.put(OTHER, BACKLOG, by_go=by_go)

    def drop_big(self) -> None:
        """Delete what waits in the lane that is too long to be worked off."""
        with closing(Inspector(self._redis.url)) as inspector:
            inspector.delete_all_tasks(QUEUE, "aggregating", group=BIG)

    def left(self) -> int:
        """Return how many tasks there are."""
        prefixes = [f"asynq:{{{queue}}}:" for queue in (QUEUE, OTHER)]
        lists = [self.db.llen(prefix + name) for prefix in prefixes for name in ("pending", "active")]
        sets = [self.db.zcard(prefix + "retry") for prefix in prefixes]
        sets += [self.db.zcard(key) for key in self.db.keys(f"asynq:{{{QUEUE}}}:g:*")]
        return int(sum(lists) + sum(sets))

    def places(self) -> int:
        """Return how many places of lanes and pools are taken."""
        return sum(self.db.scard(key) for key in self.db.keys(f"asynq:{{{QUEUE}}}:h:*"))

    def archived(self) -> int:
        """Return how many tasks of both queues were given up."""
        return sum(self.db.zcard(f"asynq:{{{queue}}}:archived") for queue in (QUEUE, OTHER))

    def _stop(self) -> None:
        for victim in self._stopped:
            victim.kill()
            victim.wait()
        for server in self.servers:
            if not isinstance(server, GoPeer):
                server.kill() if self._apart else server.terminate()  # unshare passes on no other signal
                server.wait()


def listen(redis: RedisServer, into: Path, stack: ExitStack) -> None:
    """Write what MONITOR tells into a file, until the end."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(redis.socket_path)
    line.sendall(b"MONITOR\r\n")

    def copy() -> None:
        with into.open("wb") as file:
            while data := line.recv(1 << 20):
                file.write(data)

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()

    def end() -> None:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        thread.join()
        line.close()

    stack.callback(end)


def work(site: Site, servers: int, rounds: int) -> None:
    """Feed and kill, then let all be worked off."""
    for number in range(servers + GO_SERVERS):
        site.start(is_go=number >= servers)
    wait_until(lambda: site.db.zcard("asynq:servers") == servers + GO_SERVERS, SETTLE_S)
    began_s = time.monotonic()
    for number in range(rounds):
        site.put(f"{SINGLE}{number}", 1)
        while time.monotonic() < began_s + (number + 1) * EVERY_S:
            site.feed(by_go=random.random() < 0.5)
            time.sleep(0.05)
        site.kill_one()
        print(f"\r{number + 1} kills", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    site.drop_big()
    ended_s = time.monotonic()
    wait_until(lambda: not site.left(), SETTLE_S)
    print(f"all was done {time.monotonic() - ended_s:.0f} s after the last kill")


def judge(site: Site, account: Account) -> list[str]:
    """Print what was seen, and return what should not have been."""
    lanes = {name: one for name, one in account.levels.items() if name not in (WHOLE, PLAIN) and name[-2:] != ":*"}
    levels = {name or "queue": one for name, one in account.levels.items() if one.rule.most and SINGLE not in name}
    print("most at once (limit):", *(f"{name} {one.peak} ({one.rule.most})," for name, one in levels.items()))
    idle, idler = max((one.idle, name) for name, one in lanes.items())
    without, waiter = max((one.without_start, name) for name, one in lanes.items())
    print(f"longest time that a lane idled with work and free places: {idle:.2f} s ({idler}); ", end="")
    print(f"without a start: {without:.2f} s ({waiter})")
    ahead = max(one.ahead for one in lanes.values())
    print(f"most that a start was ahead of its rate: {1000 * ahead:.2f} ms")
    before = [one.big_before for name, one in lanes.items() if name.startswith(SINGLE)]
    print(
        f"single tasks: {len(before)}; calls that took {BIG} before: {statistics.mean(before):.2f}, most {max(before)}"
    )
    print(f"places left: {site.places()}; archived: {site.archived()}")
    wrong = account.exceeded()
    wrong += [f"idled {idle:.1f} s"] if idle > IDLE_S else []
    wrong += [f"no start for {without:.1f} s"] if without > IDLE_AFTER_DEATH_S else []
    wrong += [f"{ahead:.4f} s ahead of the rate"] if ahead > AHEAD_S else []
    wrong += [f"{max(before)} calls took of {BIG} before a single task"] if max(before) > 1 else []
    wrong += ["places or archived tasks are left"] if site.places() or site.archived() else []
    return wrong


def run(servers: int, rounds: int, behind: int, log: Path | None, how: str) -> int:
    """Run, and print what became of it; return the exit status."""
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server(free_port()))
        told = redis.directory / "monitor"
        site = Site(redis, stack, log or redis.directory / "workers", how)
        site.limit()
        site.put(BIG, behind)
        site.sent.clear()
        with ExitStack() as listening:
            listen(redis, told, listening)
            work(site, servers, rounds)
        account = Account(QUEUE, RULES, {BIG: behind})
        with told.open(errors="replace") as lines:
            for line in lines:
                account.hear(line)
        started = sum(one.starts for one in account.levels.values())
        lost = {one for one in site.sent - account.done if not one.startswith(f"{OTHER}/")}
        print(f"load {os.getloadavg()[0]:.0f}, nice {os.nice(0)}; {servers} fastq, {GO_SERVERS} Go servers, ", end="")
        print({"apart": "each on a host of its own, ", "mute": "stopped, not killed, "}.get(how, ""), end="")
        print(f"{rounds} kills, {behind} tasks in {BIG}; sent {len(site.sent)}, starts {started}, lost {len(lost)}")
        wrong = judge(site, account) + [f"lost: {one}" for one in sorted(lost)[:5]]
    print(*wrong, sep="\n")
    return 1 if wrong else 0

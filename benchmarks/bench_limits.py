"""Limits under load: how soon hanging handlers are gone, what they and leaking ones cost the others, how stops go.

``pytest benchmarks/bench_limits.py -o addopts= -s`` prints tables; FASTQ_BENCH_CALLS=2000 makes the leak a long one,
FASTQ_BENCH_ROUNDS sets how often each side is run.
Ratios are of one run, the sides in turn.
"""

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from benchmarks.interleave import interleaved
from benchmarks.limit_apps import LEAK, is_running
from fastq import Client, Task
from fastq.broker.scripts import SCRIPTS
from fastq.wire.codec import decode_task_message
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S, GRACE_S = 1.0, 0.5
KINDS = {
    "hang:spin": "while True: pass",
    "hang:sleep": "time.sleep",
    "hang:c-loop": "a C loop that holds the GIL",
    "hang:deaf": "swallows the soft signal",
    "hang:grandchildren": "with grandchildren",
    "hang:async-sleep": "a coroutine that waits",
    "hang:async-block": "blocks its event loop",
    "hang:async-spin": "blocks it in C",
    "hang:async-deaf": "swallows CancelledError",
}
PER_KIND = 3
LOAD_S = 3.0
ROUNDS = int(os.environ.get("FASTQ_BENCH_ROUNDS", "3"))
CALLS = int(os.environ.get("FASTQ_BENCH_CALLS", "100"))
LEAK_LIMIT = 300 << 20


@dataclass
class Site:
    """A Redis, a client, and the directory in which handlers leave word."""

    server: RedisServer
    db: Any
    client: Client
    directory: Path

    def journal(self, what: str) -> list[list[str]]:
        """Return the lines that begin with a word, split."""
        with suppress(FileNotFoundError):
            text = (self.directory / "journal").read_text()
            lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may be under way
            return [line.split()[1:] for line in lines if line.startswith(f"{what} ")]
        return []

    def clear(self) -> None:
        """Forget everything."""
        self.db.flushall()
        for path in self.directory.iterdir():
            path.unlink()

    def count(self, key: str, queue: str = "default") -> int:
        """Return a counter of a queue."""
        return int(self.db.get(f"asynq:{{{queue}}}:{key}") or 0)

    @contextmanager
    def worker(self, concurrency: int, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run ``fastq-worker`` until the end of the block, unless it has been told before."""
        command = [sys.executable, "-m", "fastq.cli.worker", "benchmarks.limit_apps:mux", "--log-level", "error"]
        settings = ["--redis", self.server.tcp_url, "--concurrency", str(concurrency), *flags]
        environment = {**os.environ, "BENCH_DIR": str(self.directory)}
        process = subprocess.Popen([*command, *settings], cwd=ROOT, env=environment)
        try:
            wait_until(lambda: bool(self.db.zcard("asynq:servers")), 30.0)
            yield process
        finally:
            process.terminate()
            process.wait()


@pytest.fixture
def site(tcp_server: RedisServer, tmp_path: Path) -> Iterator[Site]:
    """Give an empty Redis and an empty directory."""
    with redis.Redis(port=tcp_server.port) as db, Client(tcp_server.tcp_url) as client:
        made = Site(tcp_server, db, client, tmp_path)
        made.clear()
        yield made


# Hanging handlers ---------------------------------------------------------------------------------------------------


class Undertaker:
    """Note how long handlers of a kind were there, with all processes of theirs."""

    def __init__(self, site: Site, kind: str) -> None:
        self._site = site
        self._kind = kind
        self.took_s: dict[str, float] = {}
        self.pids: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Undertaker":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.look()

    def look(self) -> None:
        """Look once."""
        ended = {task_id: float(at) for kind, task_id, at in self._site.journal("ended") if kind == self._kind}
        for kind, task_id, began_s, _, *pids in self._site.journal("began"):
            if kind != self._kind or task_id in self.took_s:
                continue
            self.pids |= set(map(int, pids[1:]))
            if task_id in ended:
                self.took_s[task_id] = ended[task_id] - float(began_s)
            elif not any(map(is_running, map(int, pids))):
                self.took_s[task_id] = time.monotonic() - float(began_s)


def hang(site: Site, kinds: Sequence[str], at_once: int, is_over: Callable[[], bool]) -> int:
    """Keep so many hanging tasks under way until it is over; return how many there were."""
    sent = 0
    while True:
        over = is_over()
        ended = site.db.zcard("asynq:{default}:archived")
        if over and ended == sent:
            return sent
        while not over and sent - ended < at_once:
            site.client.enqueue(Task(kinds[sent % len(kinds)], timeout=TIMEOUT_S, max_retry=0))
            sent += 1
        time.sleep(0.01)


def hang_as(site: Site, kind: str) -> tuple[list[float], int, int]:
    """Let handlers of a kind hang, two at a time on three slots, other work on the rest.

    Return how long each was there, how many processes of theirs are left, and how many handlers were live at once.
    """
    site.clear()
    # One coroutine a child: more would make more slots than children.
    with site.worker(3, "--timeout-grace", str(GRACE_S), "--async-concurrency", "1"), Undertaker(site, kind) as seen:
        site.client.enqueue_many(Task("work:counted", queue="default") for _ in range(300))
        count = hang(site, [kind], 2, lambda: len(seen.took_s) >= PER_KIND)
        wait_until(lambda: len(seen.took_s) == count, 10.0)
    most = max(int(live) for _, _, _, live, *_ in site.journal("began"))
    return list(seen.took_s.values()), sum(map(is_running, seen.pids)), most


def test_hanging_handlers_are_gone_in_time(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Let every kind hang in its turn."""
    lines = []
    for kind, name in KINDS.items():
        took_s, left, most = hang_as(site, kind)
        lines.append(f"  {name:<30}{len(took_s):>4}{min(took_s):>8.2f}{max(took_s):>8.2f}{left:>11}{most:>13}")
    with capsys.disabled():
        limit = TIMEOUT_S + GRACE_S + 0.5
        print(f"\nhanging handlers, timeout {TIMEOUT_S} s, grace {GRACE_S} s: to be gone by {limit} s")
        print(f"  {'kind':<30}{'':>4}{'s, min':>8}{'max':>8}{'left over':>11}{'live, of 3':>13}")
        print("\n".join(lines))


def rate_of_load(site: Site, at_once: int) -> tuple[float, float]:
    """Return how many tasks of the load are done a second beside so many hanging handlers.

    And the share of two slots' time that they spend in handlers, whatever else the processors are at.
    """
    before, began_s = site.count("processed", "load"), time.monotonic()

    def is_over() -> bool:
        return time.monotonic() > began_s + LOAD_S

    if at_once:
        hang(site, ["hang:spin", "hang:c-loop", "hang:deaf"], at_once, is_over)
    while not is_over():
        time.sleep(0.01)
    seconds = time.monotonic() - began_s
    rate = (site.count("processed", "load") - before) / seconds
    ran = [(float(began), float(ended)) for began, ended, _ in site.journal("ran")]
    return rate, sum(ended - began for began, ended in ran if began_s < ended < began_s + seconds) / (2 * seconds)


def test_hanging_handlers_leave_the_others_their_share(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Compare the rate of 5 ms tasks beside two hanging handlers with that beside two outside processes that spin."""
    shares: dict[str, list[tuple[float, float]]] = {"outside": [], "hanging": []}

    def fill() -> None:
        site.clear()
        site.client.enqueue_many(Task("work:5ms", queue="load") for _ in range(20_000))

    def beside_hangs() -> float:
        fill()
        with site.worker(4, "--timeout-grace", str(GRACE_S), "--queues", "default=10,load=1"):
            shares["hanging"].append(rate_of_load(site, 2))
        return shares["hanging"][-1][0]

    def beside_spinners() -> float:
        fill()
        # Started by a handler, since Linux shares the processors out among sessions first: theirs is to be the same.
        site.client.enqueue(Task("spinners"))
        with site.worker(2, "--queues", "default=10,load=1"):
            wait_until(lambda: site.count("processed") == 1, 30.0)
            shares["outside"].append(rate_of_load(site, 0))
        return shares["outside"][-1][0]

    sides = {"beside 2 outside spinners": beside_spinners, "beside 2 hanging handlers": beside_hangs}
    result = interleaved(sides, ROUNDS)
    with capsys.disabled():
        print(result.table("5 ms tasks on two free slots", "tasks/s", "beside 2 outside spinners"))
        outside, hanging = (statistics.median(share for _, share in runs) for runs in shares.values())
        print(f"  time in handlers, of the two slots': {outside:.1%} beside spinners, {hanging:.1%} beside hangs")


# Memory -------------------------------------------------------------------------------------------------------------


def run_calls(site: Site, kind: str) -> tuple[float, float, float]:
    """Return calls a second, the share of the slots' time that was spent in handlers, and the largest child in MB."""
    site.clear()
    site.db.set("asynq:{default}:paused", 1)
    site.client.enqueue_many(Task(kind) for _ in range(CALLS))
    with site.worker(2, "--max-memory-per-child", str(LEAK_LIMIT), "--task-check-interval", "0.01"):
        began_s = time.perf_counter()
        site.db.delete("asynq:{default}:paused")
        while site.count("processed") < CALLS:
            time.sleep(0.005)
        seconds = time.perf_counter() - began_s
    assert site.count("failed") == 0
    ran = site.journal("ran")
    inside_s = sum(float(ended) - float(began) for began, ended, _ in ran)
    return CALLS / seconds, inside_s / (2 * seconds), max(int(kb) for _, _, kb in ran) / 1024


def test_leaking_handlers_are_bounded_and_cost_little(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Compare 20 ms handlers that keep 10 MB a call under a limit of 300 MB with the same that give it back."""
    found: dict[str, list[tuple[float, float, float]]] = {"memory:free": [], "memory:leak": []}

    def rate(kind: str) -> float:
        found[kind].append(run_calls(site, kind))
        return found[kind][-1][0]

    sides = {"frees": lambda: rate("memory:free"), "leaks": lambda: rate("memory:leak")}
    result = interleaved(sides, ROUNDS)
    with capsys.disabled():
        print(result.table(f"20 ms handlers with 10 MB a call, {CALLS} calls, 2 children", "tasks/s", "frees"))
        for kind, runs in found.items():
            inside = statistics.median(share for _, share, _ in runs)
            peak = max(peak for _, _, peak in runs)
            print(f"  {kind}: {inside:.1%} of the slots' time in handlers; largest child {peak:.0f} MB")
        print(f"  limit {LEAK_LIMIT >> 20} MB, and one task's {LEAK >> 20} MB")


# Stops --------------------------------------------------------------------------------------------------------------


class Monitor:
    """Hear when Redis is asked for tasks, by its own clock."""

    def __init__(self, site: Site) -> None:
        self.asked_s: list[float] = []
        self._sha = SCRIPTS["dequeue"].sha
        database: Any = redis.Redis(port=site.server.port)
        self._connection = database.monitor()
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> "Monitor":
        self._connection.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join()
        self._connection.__exit__(None, None, None)

    def _listen(self) -> None:
        for heard in self._connection.listen():
            if self._sha in heard["command"]:
                self.asked_s.append(heard["time"])
            if "the end" in heard["command"]:
                return


def order_of_pending(site: Site) -> list[int]:
    """Return the numbers of the pending tasks, next one first, after a look at their messages."""
    ids = [task_id.decode() for task_id in site.db.lrange("asynq:{default}:pending", 0, -1)[::-1]]
    for task_id in ids[:100]:
        message = decode_task_message(site.db.hget(f"asynq:{{default}}:t:{task_id}", "msg"))
        assert (message.retried, message.error_msg) == (0, "")
    return [int(task_id) for task_id in ids]


def stop_under_load(site: Site, kind: str, shutdown_s: float) -> tuple[float, float, int]:
    """Return the seconds until the last fetch and until the end after SIGTERM, and how many tasks went back."""
    site.clear()
    site.client.enqueue_many(Task(kind, task_id=f"{number:06}", timeout=60) for number in range(20_000))
    with site.worker(2, "--shutdown-timeout", str(shutdown_s)) as process, Monitor(site) as monitor:
        wait_until(lambda: site.journal("began") or site.count("processed") > 500, 30.0)
        time.sleep(0.5)
        held = site.db.llen("asynq:{default}:active")
        told_s = time.time()
        process.send_signal(signal.SIGTERM)
        assert process.wait(shutdown_s + 30) == 0
        ended_s = time.time()
        site.db.echo("the end")
    pending = order_of_pending(site)
    assert pending == sorted(pending), "they are not in their old order"
    assert len(pending) + site.count("processed") == 20_000
    assert [site.db.zcard("asynq:{default}:lease"), site.count("failed")] == [0, 0]
    return max(0.0, max(monitor.asked_s) - told_s), ended_s - told_s, held


def test_a_stop_under_load(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Stop a busy worker whose handlers end, or do not."""
    lines = []
    for kind, name in (("work:5ms", "5 ms tasks"), ("hang:sleep", "time.sleep"), ("hang:c-loop", "C loops")):
        found = [stop_under_load(site, kind, 2.0) for _ in range(ROUNDS)]
        fetch, end, held = (max(column) for column in zip(*found, strict=True))
        lines.append(f"  {name:<20}{1e3 * fetch:>14.0f}{end:>12.2f}{held:>8}")
    with capsys.disabled():
        print(f"\nSIGTERM under load, shutdown_timeout 2 s, worst of {ROUNDS}; all went back in their old order")
        print(f"  {'handlers':<20}{'last fetch, ms':>14}{'exit, s':>12}{'held':>8}")
        print("\n".join(lines))

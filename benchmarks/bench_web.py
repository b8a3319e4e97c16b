"""Serve a million tasks, 100 queues and 100 000 groups with ``fastq web``, and measure what its pages cost.

Each page is asked for several times: its fastest time, its size, and the Redis commands that were above 5 ms each time
(one that the machine delayed was so once). Then the commands a second with no viewer of a page, with one,
and with 50; the memory of the process; and in Chromium with a CPU four times slower the largest contentful paint, and
when the page handles the first key. Exit 1 if a budget is exceeded.
"""

import argparse
import gzip
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from redis import Redis

from benchmarks.bigdata_keyspace import QUEUE, SAMPLE_ID, Size, fill, prepare
from fastq import Client, Task
from tests.redis_servers import redis_server
from tests.web.chromium import launch

SLOW_US = 5_000
LIMIT_S = 60.0
PAGE_KB, PAGE_MS, RSS_MB, FACTOR, SHOWN_MS = 30.0, 100.0, 80.0, 1.2, 1_000.0
STATIC = Path(__file__).parents[1] / "fastq" / "web" / "static"
LIST = f"/queues/{QUEUE}"
PAGES = {
    "queues": "/",
    "pending": f"{LIST}/pending",
    "deep page": f"{LIST}/pending?page=12000",
    "retry": f"{LIST}/retry",
    "completed": f"{LIST}/completed",
    "groups": f"{LIST}/aggregating",
    "task": f"{LIST}/tasks/{SAMPLE_ID}",
    "search form": "/search",
    "find": f"/find?id={SAMPLE_ID}",
    "servers": "/servers",
    "schedulers": "/schedulers",
    "jobs": "/jobs",
    "redis": "/redis",
    "search": "/search?q=error:TimeoutErrorWALK",
    "doctor": "/doctor",
    "v1 queues": "/api/v1/queues",
    "v1 groups": f"/api/v1{LIST}/groups",
    "v1 tasks": f"/api/v1{LIST}/pending?size=1000",
    "api queues": "/api/queues",
    "api stats": "/api/queue_stats",
    "api groups": f"/api{LIST}/groups",
    "api tasks": f"/api{LIST}/pending_tasks?size=1000",
}
UNTIMED = {"search", "doctor"}
"""They wait a moment for what they look for, and go on for a while."""
REST_S = 6.0
ENDED_S = 20.0
"""Then the searches have ended, whose pages nobody looks at."""
EXAMPLES = 3
LONG = re.compile(r"\b1[78]\d{8}(\d{9})?\b")
"""Times differ from walk to walk, other numbers in commands do not."""
WATCHED = {"queues", "pending", "retry", "task", "groups", "servers", "redis"}
VIEWERS = (0, 1, 50)
MOST_MS = 1_000.0
FEW = 12
KEY = """
const timer = setInterval(() => {
  if (document.activeElement?.type === "search") { window.handled = performance.now(); clearInterval(timer); return; }
  document.body?.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true, cancelable: true}));
}, 5);
"""
PAINT = """() => new Promise((done) => new PerformanceObserver((list) => done(list.getEntries().at(-1).startTime))
  .observe({type: "largest-contentful-paint", buffered: true}))"""


@dataclass
class Budget:
    """What was measured, and whether all of it is within its budget."""

    is_kept: bool = True

    def say(self, what: str, value: float, most: float, unit: str) -> None:
        """Print a value beside its budget."""
        self.is_kept &= value <= most
        print(f"{what:34} {value:9.1f} {unit:4} of {most:7.1f}{'' if value <= most else '   EXCEEDED'}", flush=True)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--queues", type=int, default=100)
    parser.add_argument("--walks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each number of viewers")
    given = parser.parse_args()
    budget = Budget()
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        db = stack.enter_context(redis.client())
        prepare(db, "mixed", Size(given.tasks, given.groups))
        with Client(redis.url) as client:
            for n in range(given.queues - 1):
                client.enqueue_many([Task("t", str(m)) for m in range(10)], queue=f"q{n:03}")
        port, process = stack.enter_context(fastq_web(redis.url))
        walk(budget, db, port, given.walks)
        time.sleep(ENDED_S)
        follow(budget, db, port, given.seconds)
        budget.say("memory of the process", rss_mb(process), RSS_MB, "MB")
        for name in ("app.js", "app.css"):
            size = len(gzip.compress((STATIC / name).read_bytes(), mtime=0)) / 1e3
            budget.say(f"{name}, gzip", size, 35.0 if name == "app.js" else 12.0, "kB")
        show(budget, port)
        fill(db, "archived", given.tasks, first=10 * given.tasks)
        find_few(budget, db, port)
        delete_all(budget, db, port)
    return 0 if budget.is_kept else 1


@contextmanager
def fastq_web(url: str) -> Iterator[tuple[int, int]]:
    """Run the command; gives its port and its process id."""
    command = [str(Path(sys.executable).parent / "fastq"), "web", "--port", "0", "--redis", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = re.match(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
            assert said is not None
            yield int(said[1]), process.pid
        finally:
            process.terminate()


def get(port: int, path: str) -> bytes:
    """Ask for a page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        assert reply.status in (200, 303), (path, reply.status)
        return reply.read()
    finally:
        connection.close()


def walk(budget: Budget, db: Redis, port: int, walks: int) -> None:
    """Ask for all pages, and print what each takes."""
    db.config_set("slowlog-log-slower-than", SLOW_US)
    db.config_set("slowlog-max-len", 10_000)
    for name, path in PAGES.items():
        slow, taken, body = [], [], b""
        for walk_number in range(walks):
            db.slowlog_reset()
            began_s = time.perf_counter()
            body = get(port, path.replace("WALK", str(walk_number)))
            taken.append(1e3 * (time.perf_counter() - began_s))
            if name in UNTIMED:
                time.sleep(REST_S)
            slow.append({LONG.sub("#", str(entry["command"])) for entry in db.slowlog_get(10_000)})
        if name not in UNTIMED:
            budget.say(f"{name}: time, fastest of {walks}", min(taken), PAGE_MS, "ms")
        if not path.startswith("/api"):
            budget.say(f"{name}: size, gzip", len(gzip.compress(body)) / 1e3, PAGE_KB, "kB")
        always = set.intersection(*slow)
        budget.say(f"{name}: commands above 5 ms", len(always), 0, "")
        for command in sorted(always)[:EXAMPLES]:
            print(f"    {command[:160]}")


def follow(budget: Budget, db: Redis, port: int, seconds: float) -> None:
    """Count the commands with viewers of a page."""
    rates = {}
    for viewers in VIEWERS:
        streams = [open_stream(port, "/queues/q000/pending") for _ in range(viewers)]
        time.sleep(2.0)  # until the poller runs, or has ended
        before = calls(db)
        time.sleep(seconds)
        rates[viewers] = (calls(db) - before) / seconds
        for stream in streams:
            stream.shutdown(socket.SHUT_RDWR)

    budget.say("commands a second, no viewer", rates[0], 0.2, "")
    print(f"{'commands a second, one viewer':34} {rates[1]:9.1f}")
    budget.say("commands a second, 50 viewers", rates[50], FACTOR * rates[1], "")


def open_stream(port: int, page: str) -> socket.socket:
    """Look at a page, and read what comes in a thread of its own; gives the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    connection.request("GET", f"/events?of={quote(page)}")
    reply = connection.getresponse()
    assert reply.status == 200

    def read() -> None:
        try:
            while reply.readline():
                pass
        except (OSError, ValueError, AttributeError):
            return  # it was shut down

    threading.Thread(target=read, daemon=True).start()
    assert connection.sock is not None
    return connection.sock


def calls(db: Redis) -> int:
    """Return the number of commands so far, without those that count them."""
    stats: dict[str, Any] = db.info("commandstats")
    return sum(of["calls"] for name, of in stats.items() if name not in ("cmdstat_info", "cmdstat_slowlog|get"))


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def show(budget: Budget, port: int) -> None:
    """Open pages in Chromium, as on a slow machine."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, launch(playwright) as browser, browser.new_context() as context:
        for name in sorted(WATCHED):
            painted, handled = [], []
            for _ in range(3):
                page = context.new_page()
                context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 4})
                page.add_init_script(KEY)
                page.goto(f"http://127.0.0.1:{port}{PAGES[name]}", wait_until="load")
                painted.append(page.evaluate(PAINT))
                while (at := page.evaluate("window.handled")) is None:
                    page.wait_for_timeout(20)
                handled.append(at)
                page.close()
            budget.say(f"{name}: LCP at CPU x 4", min(painted), SHOWN_MS, "ms")
            budget.say(f"{name}: first key handled", min(handled), SHOWN_MS, "ms")


def ask(port: int, method: str, path: str) -> dict[str, Any]:
    """Ask the API."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(method, f"/api/v1{path}")
        reply = connection.getresponse()
        assert reply.status in (200, 202), (path, reply.status)
        told: dict[str, Any] = json.loads(reply.read())
        return told
    finally:
        connection.close()


class Waits:
    """The longest wait for a page of others, and for progress, while something goes on."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.page_ms = self.progress_s = 0.0
        self._told: Any = None
        self._since_s = time.perf_counter()

    def note(self, told: Any) -> None:
        """Note how far it is, and ask for a page."""
        began_s = time.perf_counter()
        if told != self._told:
            self._told, self._since_s = told, began_s
        self.progress_s = max(self.progress_s, began_s - self._since_s)
        get(self._port, "/servers")
        self.page_ms = max(self.page_ms, 1e3 * (time.perf_counter() - began_s))
        time.sleep(0.1)

    def say(self, budget: Budget, what: str) -> None:
        """Print them."""
        budget.say(f"{what}: longest wait for a page", self.page_ms, MOST_MS, "ms")
        budget.say(f"{what}: longest without progress", self.progress_s, 1.0, "s")


def find_few(budget: Budget, db: Redis, port: int) -> None:
    """Search for twelve tasks among all."""
    fill(db, "archived", FEW, first=10**11, error="NeedleError: 7")
    waits, began_s = Waits(port), time.perf_counter()
    while (told := ask(port, "GET", "/search?q=error:NeedleError"))["state"] == "running":
        waits.note(told["looked"])
    print(f"search: {told['found']} found among {told['looked']:,} in {time.perf_counter() - began_s:.1f} s")
    budget.say("search: not found", FEW - told["found"], 0, "")
    waits.say(budget, "search")


def delete_all(budget: Budget, db: Redis, port: int) -> None:
    """Delete all archived tasks, and stop it once."""
    for name in ("delete all, stopped", "delete all"):
        stops = name != "delete all"
        key = f"asynq:{{{QUEUE}}}:archived"
        there, waits, began_s = db.zcard(key), Waits(port), time.perf_counter()
        told = ask(port, "POST", f"{LIST}/archived/delete-all")
        while told["state"] == "running":
            if stops and told["done"] >= there // 5:
                stops = ask(port, "POST", f"/jobs/{told['id']}/stop")["state"] == "running"
            waits.note(told["done"])
            told = ask(port, "GET", f"/jobs/{told['id']}")
        print(f"{name}: {told['state']}, {told['done']:,} of {there:,} in {time.perf_counter() - began_s:.1f} s")
        budget.say(f"{name}: tasks not accounted for", abs(there - db.zcard(key) - told["done"]), 0, "")
        waits.say(budget, name)


if __name__ == "__main__":
    sys.exit(main())

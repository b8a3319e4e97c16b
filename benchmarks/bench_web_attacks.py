"""Attack ``fastq web`` in ways that once stopped it, and measure how long a viewer's pages take meanwhile.

For each attack a process of ``fastq web``, a viewer who asks for small pages ten times a second, and the attackers. It
prints how long the viewer waits, and the highest memory of the process. Exit 1 if a page is not there, or if one of a
hundred takes longer than 200 ms. The figures are those of the machine's load, which is printed, too: compare with
``nothing``.
"""

import argparse
import base64
import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import quote

from fastq import Client
from fastq.web.access import User
from fastq.web.auth import new_user_line
from tests.redis_servers import redis_server

MOST_MS: Final = 200.0
MOST_MB: Final = 400.0
EVERY_S: Final = 0.1
LIMIT_S: Final = 30.0
PAGES: Final = ("/api/v1/jobs", "/queues/small/pending", "/")
VIEWER: Final = "127.0.7.7"
"""The viewer has an address of its own: limits are counted by address."""
TOKENS: Final = {"viewer": "viewer", "attacker": "viewer", "operator": "operator"}
WEB: Final = Path(sys.executable).parent / "fastq"


@dataclass
class Site:
    """A ``fastq web`` under attack."""

    port: int
    pid: int
    credentials: Mapping[str, str]
    ends: threading.Event = field(default_factory=threading.Event)

    def head(self, path: str, user: str, method: str = "GET", more: str = "") -> bytes:
        """Return the head of a request."""
        said = self.credentials.get(user)
        login = f"Authorization: {said}\r\n" if said else ""
        return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{login}{more}\r\n".encode()

    def connect(self, source: str) -> socket.socket:
        """Connect from an address."""
        return socket.create_connection(("127.0.0.1", self.port), LIMIT_S, (source, 0))

    def ask(self, path: str, user: str, source: str, more: str = "", body: bytes = b"") -> int:
        """Ask for a page and read all of it; gives the status."""
        with self.connect(source) as connection:
            head = self.head(path, user, "POST" if body else "GET", more)
            connection.sendall(head + body)
            reply = http.client.HTTPResponse(connection)
            reply.begin()
            while reply.read(65_536):
                pass
            return reply.status

    def in_threads(self, count: int, attack: Callable[[int], object]) -> None:
        """Attack again and again in so many threads until the end."""

        def run(number: int) -> None:
            while not self.ends.is_set():
                with suppress(OSError, http.client.HTTPException):
                    attack(number)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def heavy_search(site: Site) -> None:
    """Search payloads of 200 kB for twenty words that match late."""
    query = quote(" ".join(f"payload.a:*{n}*" for n in range(20)))
    site.in_threads(3, lambda n: site.ask(f"/api/v1/search?q={query}%20id:{n}*", "attacker", "127.0.0.2"))


def many_searches(site: Site) -> None:
    """Begin twenty searches at a time."""
    site.in_threads(20, lambda n: site.ask(f"/search?q=y{n}%20{time.monotonic_ns()}", "attacker", "127.0.0.2"))


def large_list(site: Site) -> None:
    """Ask for lists of 200 payloads of 2 MB, as a page and from both APIs."""
    paths = ("/queues/big/pending?size=200", "/api/queues/big/pending_tasks?size=10000", "/api/v1/queues/big/pending")
    site.in_threads(3, lambda n: site.ask(paths[n], "attacker", "127.0.0.2"))


def unread_replies(site: Site) -> None:
    """Ask for payloads of 2 MB, and read nothing."""
    held: list[socket.socket] = []

    def ask(number: int) -> None:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.bind(("127.0.0.2", 0))
        connection.connect(("127.0.0.1", site.port))
        connection.sendall(site.head("/queues/big/tasks/b0/payload", "attacker"))
        held.append(connection)
        site.ends.wait(0.1 if len(held) < 300 else LIMIT_S)

    site.in_threads(1, ask)
    for each in held:
        each.close()


def half_heads(site: Site) -> None:
    """Hold as many connections with half a head as can be had: open four hundred a second."""
    held: list[socket.socket] = []

    def hold(number: int) -> None:
        connection = site.connect("127.0.0.2")
        connection.sendall(b"GET / HTTP/1.1\r\nHost: local")
        held.append(connection)
        if len(held) > 1_000:
            held.pop(0).close()
        site.ends.wait(0.005)

    site.in_threads(2, hold)
    for each in held:
        each.close()


def wrong_logins(site: Site) -> None:
    """Try passwords from changing addresses."""
    said = base64.b64encode(b"ann:wrong-one").decode()
    more = f"Authorization: Basic {said}\r\n"

    def attempt(number: int) -> None:
        site.ask("/", "", f"127.0.{number + 20}.{time.monotonic_ns() % 250 + 1}", more)

    site.in_threads(40, attempt)


def large_forms(site: Site) -> None:
    """Send forms of 0.8 MB with 200 000 fields."""
    body = b"all=1" + b"&a=b" * 199_000
    more = f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n"
    site.in_threads(2, lambda n: site.ask("/queues/small/pending/archive", "operator", "127.0.0.2", more, body))


def nothing(site: Site) -> None:
    """Do nothing: what the machine's load does to the viewer."""
    site.ends.wait()


ATTACKS: Final[Sequence[Callable[[Site], None]]] = (
    nothing,
    heavy_search,
    many_searches,
    large_list,
    unread_replies,
    half_heads,
    wrong_logins,
    large_forms,
)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0, help="for each attack")
    parser.add_argument("attacks", nargs="*", help="those to carry out, all by default")
    given = parser.parse_args()
    known = {attack.__name__: attack for attack in ATTACKS}
    is_kept = True
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        fill(redis.url)
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        print(f"{'attack':16} {'load':>5} {'pages':>6} {'p50':>8} {'p99':>8} {'most':>8} {'errors':>7} {'memory':>8}")
        for name in given.attacks or known:
            with fastq_web(redis.url, Path(directory), basic=known[name] is wrong_logins) as site:
                is_kept &= measure(site, known[name], given.seconds)
    return 0 if is_kept else 1


def fill(url: str) -> None:
    """Enqueue large tasks and small ones."""
    with Client(url) as client:
        for n in range(200):
            client.enqueue("t", b'{"a": "' + b"x" * 2_000_000 + b'"}', queue="big", task_id=f"b{n}", timeout=60)
        for n in range(50):
            client.enqueue("t", json.dumps({"a": list(range(33_000))}), queue="json", task_id=f"j{n}")
        for n in range(2_000):
            client.enqueue("t", {"a": n}, queue="small", task_id=f"s{n}")


@contextmanager
def fastq_web(url: str, directory: Path, *, basic: bool) -> Iterator[Site]:
    """Run the command with logins: tokens, or a name and a password."""
    file, credentials = directory / "logins.txt", dict[str, str]()
    if basic:
        file.write_text(new_user_line(User.of("viewer", "viewer"), "the right one"))
        credentials["viewer"] = f"Basic {base64.b64encode(b'viewer:the right one').decode()}"
    else:
        lines = [f"{name}:{role}:{hashlib.sha256(name.encode()).hexdigest()}" for name, role in TOKENS.items()]
        file.write_text("\n".join(lines))
        credentials = {name: f"Bearer {name}" for name in TOKENS}
    auth = f"{'basic' if basic else 'tokens'}:{file}"
    command = [str(WEB), "web", "--port", "0", "--redis", url, "--auth", auth]
    with (
        (directory / "log.txt").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            said = re.match(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
            assert said is not None
            yield Site(int(said[1]), process.pid, credentials)
        finally:
            process.terminate()


def measure(site: Site, attack: Callable[[Site], None], seconds: float) -> bool:
    """Attack for a while; print how a viewer fares, and return whether that is within the limits."""
    assert site.ask("/", "viewer", VIEWER) == 200  # is logged in before
    attacker = threading.Thread(target=attack, args=(site,))
    attacker.start()
    time.sleep(1.0)
    waits_ms, errors, until_s = list[float](), 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        for path in PAGES:
            began_s = time.perf_counter()
            try:
                errors += site.ask(path, "viewer", VIEWER) != 200
            except (OSError, http.client.HTTPException):
                errors += 1
            waits_ms.append(1e3 * (time.perf_counter() - began_s))
            time.sleep(EVERY_S)
    most_mb = peak_mb(site.pid)
    site.ends.set()
    attacker.join()
    waits_ms.sort()
    p99 = waits_ms[int(0.99 * (len(waits_ms) - 1))]
    figures = (median(waits_ms), p99, waits_ms[-1])
    shown = " ".join(f"{each:5.0f} ms" for each in figures)
    print(
        f"{attack.__name__:16} {os.getloadavg()[0]:5.1f} {len(waits_ms):6} {shown} {errors:7} {most_mb:5.0f} MB",
        flush=True,
    )
    return p99 <= MOST_MS and errors == 0 and most_mb <= MOST_MB


def peak_mb(pid: int) -> float:
    """Return the highest resident memory of a process so far."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())

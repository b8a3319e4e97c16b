"""Run two versions at once, up and down: ``python -m tests.upgrade --old PYTHON``; exit code 0 if all held.

``PYTHON`` is that of an environment with the old version. Producers of both versions run all the time. Two old servers
are replaced by two new ones, then these by an old one. One server of each version is killed, and its tasks are left to
the other version. At the end everything that was acknowledged must have run, and both versions must read it alike.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.chaos.dying import with_parent
from tests.redis_servers import redis_server
from tests.upgrade.upgrade_app import LEDGER, SERVER
from tests.waiting import wait_until

HERE: Final = Path(__file__).parent
QUEUES: Final = "ab"
RECOVERED_S: Final = 150.0
"""A lost task runs again about a minute after its server's last heartbeat."""
DRAINED_S: Final = 300.0
DEFECTS: Final = ("a defect in", "unexpected error", "raised;", "raised an exception")
"""Words of the logs of both versions for what should not happen; the app's own failures have others."""


def say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


@dataclass
class Site:
    """One Redis, and the processes of both versions that work on it."""

    url: str
    db: Any
    directory: Path
    pythons: dict[str, Path]
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)
    scheduled_s: float = 0.0

    def run(self, version: str, program: str, *words: str) -> str:
        """Run a command of a version, and return what it printed."""
        done = subprocess.run(
            self._command(version, program, words), capture_output=True, text=True, env=self._env(), timeout=120
        )
        assert done.returncode == 0 or program == "fastq", done.stderr
        return done.stdout

    def begin(self, version: str, program: str, *words: str, name: str = "") -> subprocess.Popen[bytes]:
        """Start a command of a version, whose output goes into a file of that name."""
        with (self.directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                self._command(version, program, words),
                stdout=log,
                stderr=log,
                env=self._env(name),
                cwd=self.directory,
                preexec_fn=with_parent,  # noqa: PLW1509 - it takes no lock that a thread may hold
            )

    def _command(self, version: str, program: str, words: tuple[str, ...]) -> list[str]:
        python = self.pythons[version]
        if program.endswith(".py"):
            return [str(python), str(HERE / program), *words]
        return [str(python.with_name(program)), *words]

    def _env(self, name: str = "") -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("FASTQ_", "PYTHON"))}
        ours = {"PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1", "FASTQ_REDIS_URL": self.url}
        return {**inherited, **ours, LEDGER: str(self.directory / "ledger"), SERVER: name or "none"}

    def start(self, version: str, number: int) -> None:
        """Start a server, and wait until it is ready."""
        name = f"{version}-{number}"
        flags = [
            "--concurrency",
            "2",
            "--queues",
            "a=1,b=1",
            "--group-grace-period",
            "1",
            "--delayed-task-check-interval",
            "1",
        ]
        hooks = ["--group-aggregator", "upgrade_app:aggregate", "--retry-delay", "upgrade_app:retry_delay"]
        self.servers[name] = self.begin(version, "fastq-worker", "upgrade_app:mux", *flags, *hooks, name=name)
        wait_until(lambda: "ready" in self.log(name))
        say(f"server {name} is ready")

    def stop(self, name: str) -> None:
        """End a server as a deployment does."""
        server = self.servers.pop(name)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, self.log(name)
        say(f"server {name} has stopped")

    def kill(self, name: str) -> None:
        """Kill a server while it has a task."""
        server = self.servers.pop(name)
        self.killed.add(name)
        server.kill()
        server.wait()
        say(f"server {name} was killed; leases left: {self.count('lease', 'ZCARD')}")

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def count(self, key: str, command: str) -> int:
        return sum(self.db.execute_command(command, f"asynq:{{{queue}}}:{key}") for queue in QUEUES)

    def is_drained(self) -> bool:
        """Return whether no task waits or runs."""
        sets = sum(self.count(key, "ZCARD") for key in ("lease", "scheduled", "retry"))
        groups = self.count("groups", "SCARD") + self.count("aggregation_sets", "ZCARD")
        return sets + groups + sum(self.count(key, "LLEN") for key in ("pending", "active")) == 0

    def ledger(self) -> dict[str, list[tuple[str, str]]]:
        """Return what happened to each id, and on which server."""
        found = defaultdict(list)
        for line in (self.directory / "ledger").read_text().splitlines():
            task_id, what, server = line.split()
            found[task_id].append((what, server))
        return found

    def acknowledged(self) -> set[str]:
        return {line for file in self.directory.glob("*.acked") for line in file.read_text().split()}


@contextmanager
def site(pythons: dict[str, Path]) -> Iterator[Site]:
    with (
        tempfile.TemporaryDirectory(prefix="fastq-upgrade-") as name,
        redis_server() as server,
        server.client() as db,
    ):
        site = Site(server.url, db, Path(name), pythons)
        try:
            yield site
        finally:
            for process in site.servers.values():
                process.kill()
                process.wait()


def recovered(site: Site) -> None:
    """Wait until nothing is left of a killed server: every lease is younger than its last moment."""
    killed_s = time.time()
    say("waiting until its tasks run elsewhere")

    def none_left() -> bool:
        oldest = [site.db.zrange(f"asynq:{{{queue}}}:lease", 0, 0, withscores=True) for queue in QUEUES]
        return all(not found or found[0][1] > killed_s + 31 for found in oldest)

    wait_until(none_left, RECOVERED_S)


def up_and_down(site: Site, seconds: float) -> None:
    """Replace old servers by new ones, and these by an old one, under load."""
    producing_s = 5 * seconds + 140
    acked = {version: str(site.directory / f"{version}.acked") for version in site.pythons}
    producers = {}
    for version, path in acked.items():
        words = ("produce", site.url, version, str(producing_s), path)
        producers[version] = site.begin(version, "upgrade_client.py", *words, name=f"{version}-producer")
    schedulers = {
        version: site.begin(version, "fastq", "scheduler", "upgrade_cron:scheduler", name=f"{version}-scheduler")
        for version in site.pythons
    }
    began_s = time.monotonic()
    site.start("old", 1)
    site.start("old", 2)
    time.sleep(seconds)
    site.start("new", 1)
    look(site, 3)
    time.sleep(seconds)
    site.stop("old-1")
    site.start("new", 2)
    time.sleep(seconds)
    site.kill("old-2")
    recovered(site)
    site.start("old", 3)
    site.stop("new-1")
    time.sleep(seconds)
    site.kill("new-2")
    recovered(site)
    for version, scheduler in schedulers.items():
        scheduler.terminate()
        assert scheduler.wait(60) == 0, site.log(f"{version}-scheduler")
    site.scheduled_s = time.monotonic() - began_s
    say("waiting for the producers and the last tasks, which an old server runs")
    for version, producer in producers.items():
        assert producer.wait(DRAINED_S) == 0, site.log(f"{version}-producer")
        say(site.log(f"{version}-producer").strip())
    wait_until(site.is_drained, DRAINED_S, interval_s=0.1)


def look(site: Site, servers: int) -> None:
    """See that both versions list the servers of both."""

    def list_all() -> bool:
        listed = [json.loads(site.run(version, "fastq", "server", "ls", "--json")) for version in site.pythons]
        return all(len(rows) == servers for rows in listed)

    wait_until(list_all, interval_s=1.0)
    say(f"both list all {servers} servers")


def checks(site: Site) -> Iterator[tuple[str, list[Any]]]:
    """Yield each guarantee with what speaks against it."""
    acked, ledger = site.acknowledged(), site.ledger()
    ran = {task_id: [server for what, server in notes if what == "done"] for task_id, notes in ledger.items()}
    yield f"{len(acked)} acknowledged tasks have run", [one for one in acked if not ran.get(one)]
    unexplained = {
        one: servers for one, servers in ran.items() if len(servers) > 1 and not site.killed.intersection(servers)
    }
    twice = sum(len(servers) > 1 for servers in ran.values())
    yield f"{twice} ran more than once, each of them on a killed server", list(unexplained.items())
    ticks = [one for one, notes in ledger.items() if notes[0][0] == "tick"]
    in_time = 0.8 * site.scheduled_s <= len(ticks) <= site.scheduled_s + 2
    yield f"{len(ticks)} ticks ran in {site.scheduled_s:.0f} s of two schedulers", [] if in_time else [len(ticks)]
    yield "none ran that was not enqueued", [one for one in ran if one not in acked and one not in ticks]
    read = {version: site.run(version, "upgrade_client.py", "read", site.url).splitlines() for version in site.pythons}
    one, other = (dict.fromkeys(lines) for lines in read.values())
    unlike = [line for line in {**one, **other} if line not in one or line not in other]
    yield f"both read {len(one)} kept tasks alike", unlike
    kept = {row["id"]: row for row in map(json.loads, read["new"])}
    yield (
        "every result is its task's",
        [row for row in kept.values() if row["type"] == "kept" and row["result"] != row["id"]],
    )
    wanted = {one for one in acked if one.endswith(("-kept", "-broken"))}
    yield f"all {len(wanted)} tasks that are to be kept are there", sorted(wanted ^ kept.keys())
    for version in site.pythons:
        found = json.loads(site.run(version, "fastq", "doctor", "--json"))
        yield f"the {version} doctor finds no problem", [one for one in found["checks"] if one["level"] == "problem"]
    for log in sorted(site.directory.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        yield f"no defect in {log.name}", [line for line in lines if any(word in line for word in DEFECTS)]


def verdict(site: Site, tell: Callable[[str], None]) -> bool:
    """Tell each guarantee, and return whether all held."""
    held = True
    for text, against in checks(site):
        held = held and not against
        tell(f"{'held  ' if not against else 'BROKEN'} {text}")
        for item in against[:5]:
            tell(f"         {item}")
    return held


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument("--old", type=Path, required=True, help="the Python of an environment with the old version")
    parser.add_argument("--new", type=Path, default=Path(sys.executable), help="that of the new version")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each stage lasts")
    options = parser.parse_args()
    with site({"old": options.old, "new": options.new}) as found:
        up_and_down(found, options.seconds)
        held = verdict(found, say)
        if not held:
            for log in sorted(found.directory.glob("*.log")):
                say(f"{log.name}:\n{log.read_text(errors='replace')[-2000:]}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

"""Many seeds at once: processes that each run one seed after the other, and one that tells what broke."""

import json
import os
import resource
import selectors
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from tests.simulation.page import real_s

LOOK_S: Final = 3600.0
LAST_S: Final = 60.0
"""For so long the last seeds may run once the time is up."""
COUNTED: Final = ("steps", "faults", "runs", "leases", "simulated_s")


class Runner:
    """A process that runs the seeds whose numbers and sites it is told, each on a line, and answers in JSON."""

    def __init__(self, words: list[str], core: int) -> None:
        self._words, self._core = words, core
        self.now: tuple[int, str] | None = None
        """The seed that it runs."""
        self.begin()

    def begin(self) -> None:
        """Start, or start again."""
        pipe = subprocess.PIPE
        # In a session of its own it hears nothing of Ctrl-C, and ends when it is told nothing more.
        self.process: Any = subprocess.Popen(self._words, stdin=pipe, stdout=pipe, start_new_session=True)
        os.sched_setaffinity(self.process.pid, {self._core})

    def ask(self, seed: int, site: str) -> None:
        """Have a seed run."""
        self.now = seed, site
        with suppress(BrokenPipeError):  # there will be no answer
            self.process.stdin.write(f"{seed} {site}\n".encode())
            self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the report; of a process that has ended, one that says so, and start another."""
        assert self.now is not None
        seed, site = self.now
        self.now, line = None, self.process.stdout.readline()
        if line.endswith(b"\n"):
            report: dict[str, Any] = json.loads(line)
            return report
        status = self._wait()
        self.begin()
        return {"seed": seed, "site": site, "broken": [f"the process of the seed ended with status {status}"]}

    def end(self) -> None:
        """Let it end, or where it is not done, end it."""
        if self.now:
            self.process.kill()
        self._wait()

    def _wait(self) -> int:
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        status: int = self.process.wait()
        return status


class Night:
    """The sum of all seeds that ran."""

    def __init__(self) -> None:
        self.began_s = real_s()
        self.seeds: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.broken: list[dict[str, Any]] = []

    def add(self, report: dict[str, Any]) -> None:
        """Count a seed, and print a line if it breaks a promise."""
        self.seeds[report["site"]] += 1
        for key in COUNTED:
            self.sums[key] += report.get(key, 0)
        if report["broken"]:
            self.broken.append({key: report[key] for key in ("seed", "site", "broken")})
            print(f"seed {report['seed']} of {report['site']} breaks:", " | ".join(report["broken"]), flush=True)  # noqa: T201

    def __str__(self) -> str:
        """Return the sum as JSON; the time of the processor is that of all processes that have ended."""
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        sums = {key: round(self.sums[key], 1) for key in COUNTED}
        known = {"seeds": self.seeds.total(), "broken": len(self.broken), "by_site": dict(self.seeds), **sums}
        times = {"cpu_s": round(spent.ru_utime + spent.ru_stime, 1), "took_s": round(real_s() - self.began_s, 1)}
        return json.dumps(known | times | {"python": sys.version.split()[0], "which": self.broken})


def seeds_of(first: int, count: int, sites: list[str]) -> Iterator[tuple[int, str]]:
    """Yield each seed with its site, which take turns."""
    seed = first
    while not count or seed < first + count:
        yield seed, sites[seed % len(sites)]
        seed += 1


def runners_of(words: list[str], jobs: int) -> list[Runner]:
    """Start processes by a command line, each on a core."""
    cores = sorted(os.sched_getaffinity(0))
    return [Runner(words, cores[number % len(cores)]) for number in range(jobs)]


def run_night(runners: list[Runner], seeds: Iterator[tuple[int, str]], within_s: float, *, tells_all: bool) -> int:
    """Let processes run seeds until the last, the end of the time or Ctrl-C, whatever breaks; print the sum as JSON."""
    night = Night()
    try:
        for report in _reports(runners, seeds, night.began_s + within_s):
            night.add(report)
            if tells_all:
                print(json.dumps({key: value for key, value in report.items() if key != "drawn"}), flush=True)  # noqa: T201
    except KeyboardInterrupt:
        pass
    finally:
        for runner in runners:
            runner.end()
    print(night, flush=True)  # noqa: T201
    return 1 if night.broken else 0


def _reports(runners: list[Runner], seeds: Iterator[tuple[int, str]], until_s: float) -> Iterator[dict[str, Any]]:
    for runner in runners:
        if more := next(seeds, None):
            runner.ask(*more)
    while busy := [runner for runner in runners if runner.now]:
        for runner in _ready(busy, until_s + LAST_S - real_s()):
            yield runner.answer()
            if real_s() < until_s and (more := next(seeds, None)):
                runner.ask(*more)
        if real_s() > until_s + LAST_S:
            return


def _ready(busy: list[Runner], within_s: float) -> list[Runner]:
    """Wait until some have answered, or ended."""
    with selectors.DefaultSelector() as selector:
        for runner in busy:
            selector.register(runner.process.stdout, selectors.EVENT_READ, runner)
        return [key.data for key, _ in selector.select(min(max(0.0, within_s), LOOK_S))]

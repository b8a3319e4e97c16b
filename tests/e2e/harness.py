"""Run servers as whole processes, read their logs, and see that nothing is left of them.

Every process that comes of a worker inherits a mark in its environment, by which it is found whatever becomes of its
parents.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tests.starting import COMMAND, Forked, can_be_forked, start
from tests.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
LOOP = os.environ.get("LOOP_OF_FASTQ_E2E", "asyncio")
APP = "tests.e2e.apps:mux"
MARK = "MARK_OF_FASTQ_E2E"
WORKER = (sys.executable, "-m", "fastq.cli.worker")
SERVE = (sys.executable, "-m", "tests.e2e.serve")
FASTQ = (sys.executable, "-m", "fastq")
FORKED: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {
    WORKER: (WORKER[2], ("fastq.cli.worker",)),
    SERVE: (SERVE[2], ("fastq.cli.worker",)),
    FASTQ: ("fastq.__main__", COMMAND),
}
"""For programs that can be forks, their modules, and what has been imported before."""


def marked_processes(mark: str) -> set[int]:
    """Return the processes that carry a mark; only where there is a /proc."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    return found


@dataclass
class Worker:
    """A server's main process, its log, and all that comes of it."""

    process: subprocess.Popen[bytes] | Forked
    log: Path
    mark: str

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")  # a line may be half written

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def family(self) -> set[int]:
        """Return every process that has come of it and lives, itself included."""
        itself = {self.pid} if self.process.poll() is None else set()  # a fork does not show its environment
        return marked_processes(self.mark) | itself

    def wait_for(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the log has a text."""

        def is_there() -> bool:
            has_ended = self.process.poll() is not None  # before the look: its last words are in the log then
            if text in self.text:
                return True
            assert not has_ended, f"ended with {self.process.returncode} without {text!r}:\n{self.text}"
            return False

        try:
            wait_until(is_there, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; waited for {text!r} in:\n{self.text}") from None

    def is_ready(self) -> "Worker":
        self.wait_for("ready: ")
        return self

    def signal(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def ended(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end of the main process, and return its exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {timeout_s} s:\n{self.text}") from None

    def stop(self) -> int:
        """Send SIGTERM, and wait for its end."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def leaves_nothing(self) -> None:
        """See that every process that came of it ends."""
        wait_until(lambda: not self.family())

    def clean_up(self) -> None:
        """Kill what is left; it is a failure if anything outlives the main process."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        try:
            self.leaves_nothing()
        except AssertionError:
            for pid in self.family():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"processes outlived their server:\n{self.text}") from None


class Workers:
    """Start servers on one Redis, in a directory that is theirs."""

    def __init__(self, url: str, directory: Path, loop: str) -> None:
        self.url = url
        self.directory = directory
        self._loop = loop
        self._all: list[Worker] = []

    def start(
        self, *flags: str, app: str = APP, env: Mapping[str, str] | None = None, program: Sequence[str] = ()
    ) -> Worker:
        """Start ``fastq-worker APP FLAGS``; its log is stdout and stderr together."""
        return self._start([*(program or WORKER), *([app] if app else []), *flags], env or {})

    def start_timed(self, timing: Mapping[str, float], app: str = APP, /, **config: Any) -> Worker:
        """Start a server whose fixed times are others."""
        return self._serve({"app": app, "redis": self.url, "timing": timing, "config": self._with_loop(config)})

    def start_patient(self, **config: Any) -> Worker:
        """Start a server that learns how a child died however late the preloader says it."""
        order = {"app": APP, "redis": self.url, "config": self._with_loop(config), "report_wait_s": PATIENCE_S}
        return self._serve(order)

    def _with_loop(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"loop": self._loop, **config}

    def _serve(self, order: Mapping[str, Any]) -> Worker:
        return self._start([*SERVE, json.dumps(order)], {})

    def _start(self, command: list[str], env: Mapping[str, str]) -> Worker:
        mark = uuid.uuid4().hex
        log = self.directory / f"worker-{len(self._all)}.log"
        paths = filter(None, [str(ROOT), str(self.directory), os.environ.get("PYTHONPATH")])
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FASTQ_")}
        environment = {
            **inherited,
            "PYTHONPATH": os.pathsep.join(paths),
            "FASTQ_REDIS_URL": self.url,
            "EVENTS_URL": self.url,
            "FASTQ_LOOP": self._loop,
            MARK: mark,
            **env,
        }
        with log.open("wb") as file:
            process = self._begin(command, environment, file)
        worker = Worker(process, log, mark)
        self._all.append(worker)
        return worker

    def _begin(
        self, command: list[str], environment: dict[str, str], log: BinaryIO
    ) -> subprocess.Popen[bytes] | Forked:
        if tuple(command[:3]) in FORKED and can_be_forked(self.directory):
            module, imported = FORKED[tuple(command[:3])]
            streams = (log.fileno(), log.fileno())
            return start([module, *command[3:]], self.directory, environment, streams, imported)
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, env=environment
        )

    def clean_up(self) -> None:
        failures = []
        for worker in self._all:
            try:
                worker.clean_up()
            except AssertionError as error:
                failures.append(str(error))
        assert not failures, "\n".join(failures)


@contextmanager
def workers_on(url: str, directory: Path, loop: str = LOOP) -> Iterator[Workers]:
    """Give what starts workers, on asyncio unless ``tests.on_uvloop`` says otherwise, and see to their end."""
    workers = Workers(url, directory, loop)
    try:
        yield workers
    finally:
        workers.clean_up()

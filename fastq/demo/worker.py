"""The worker of the demo: a normal ``fastq-worker`` in a separate process, with its log in a file."""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from fastq.demo.ledger import LEDGER_VARIABLE
from fastq.server.base.settings import EXTRA_KEYS, SETTINGS

_SHUTDOWN_S: Final = 2
_HURRY_AFTER_S: Final = 0.2
_KILL_AFTER_S: Final = 10.0
_LAST_LINES: Final = 12
_PR_SET_PDEATHSIG: Final = 1


class WorkerEndedError(Exception):
    """Raised when fastq-worker exited unexpectedly or with an error; the text has the last lines of its log."""


class Worker:
    """A ``fastq-worker`` that runs until ``stop`` or the end of the ``with`` block."""

    def __init__(self, queues: Mapping[str, int], concurrency: int, redis: str, directory: Path) -> None:
        self.ledger = directory / "ledger"
        self._log = directory / "worker.log"
        self._arguments = _arguments(queues, concurrency)
        self._environment = environment() | {"FASTQ_REDIS_URL": redis, LEDGER_VARIABLE: str(self.ledger)}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> str:
        """Return the command as a user would type it, on several lines."""
        words = shlex.join(["fastq-worker", *self._arguments]).split(" --")
        lines = [" --".join(words[:3]), " --".join(words[3:])]
        return " \\\n      --".join(lines)

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fastq.cli.worker", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends the worker
                preexec_fn=end_with_demo,  # noqa: PLW1509 - the demo has one thread
            )
        return self

    def __exit__(self, *_: object) -> None:
        """End the worker, at once if the demo did not finish normally."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_HURRY_AFTER_S)
        process.terminate()  # after the second signal, the worker does not wait for handlers
        wait_or_kill(process)

    def stop(self) -> None:
        """Shut the worker down as an operator would, and wait; ``WorkerEndedError`` unless its exit code is 0."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            if (code := wait_or_kill(process)) != 0:
                raise WorkerEndedError(f"fastq-worker exited with code {code} at its shutdown\n{self.last_words()}")

    def check(self) -> None:
        """Raise ``WorkerEndedError`` if the worker has ended."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise WorkerEndedError(f"fastq-worker exited unexpectedly with code {code}\n{self.last_words()}")

    def last_words(self) -> str:
        """Return the last lines of the worker's log."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join(f"  {line}" for line in lines[-_LAST_LINES:])


def _arguments(queues: Mapping[str, int], concurrency: int) -> list[str]:
    return [
        "fastq.demo.app:mux",
        *("--queues", ",".join(f"{queue}={weight}" for queue, weight in queues.items())),
        *("--concurrency", str(concurrency)),
        *("--retry-delay", "fastq.demo.app:retry_soon"),
        *("--delayed-task-check-interval", "1"),
        *("--timeout-grace", "1"),
        *("--shutdown-timeout", str(_SHUTDOWN_S)),
    ]


def environment() -> dict[str, str]:
    """Return this process' environment without settings for other workers."""
    settings = {f"FASTQ_{name.upper()}" for name in (*SETTINGS, *EXTRA_KEYS, "config")}
    return {name: value for name, value in os.environ.items() if name not in settings}


def end_with_demo() -> None:
    """Make a child process end with the demo; called between its fork and its exec."""
    # This matters only if the demo is killed, since it cannot stop its processes then.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def wait_or_kill(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process that has been asked to end, or kill it after a time limit; return its exit code."""
    try:
        return process.wait(_SHUTDOWN_S + _KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        process.kill()  # its children notice that, and end
        return process.wait()

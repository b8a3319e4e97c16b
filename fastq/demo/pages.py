"""The web UI during the demo: a ``fastq web`` in a separate process, on a free port."""

import subprocess
import sys
from typing import Self

from fastq.demo.worker import end_with_demo, environment, wait_or_kill


class PagesEndedError(Exception):
    """Raised when fastq web does not start; its own output has the reason."""


class Pages:
    """A ``fastq web`` that runs during a ``with`` block; ``address`` is its URL."""

    address: str

    def __init__(self, redis: str) -> None:
        self._redis = redis

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fastq", "web", "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment() | {"FASTQ_REDIS_URL": self._redis},
            start_new_session=True,  # Ctrl-C is for the demo, which then ends this process
            preexec_fn=end_with_demo,  # noqa: PLW1509 - the demo has one thread
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        if not line:
            self._process.wait()
            raise PagesEndedError("fastq web did not start")
        self.address = line.partition(" ")[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        wait_or_kill(self._process)
        assert self._process.stdout is not None
        self._process.stdout.close()

"""A Go process with a real asynq in it, driven over JSON lines; README.md has the protocol."""

import base64
import itertools
import json
import os
import subprocess
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Self

from tests.interop.records import Execution, GoTask, GoTaskInfo, PeerError
from tests.waiting import PATIENCE_S, wait_until

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
QUICK: dict[str, Any] = {"concurrency": 20, "retry_delay_ns": HOUR_NS, "task_check_ns": SECOND_NS // 100}
"""Settings of a Go server that takes tasks at once and retries none while a test runs."""
STDERR_TAIL = 4000


def hear_cancellations(db: Any) -> None:
    """Wait until a server listens for cancellations; it may run tasks before that."""
    wait_until(lambda: [count for _, count in db.pubsub_numsub("asynq:cancel")] == [1])


class GoPeer:
    """One peer process. Requests may come from several threads; an answer belongs to the request of its id."""

    def __init__(self, binary: Path, **environment: str) -> None:
        self._stderr: IO[bytes] = TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            [binary],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self._ids = itertools.count(1)
        self._open: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="go-peer", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process, for benchmarks that kill it."""
        return self._process.pid

    def log(self) -> str:
        """Return what the process has written to stderr, asynq's logs above all; not after ``close``."""
        # Not by seek and read: the process writes where its file is, which is this one.
        file = self._stderr.fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def close(self) -> None:
        """End the process; servers that run in it leave Redis as it is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        with suppress(BrokenPipeError):  # what a request left unsent when the process died
            self._process.stdin.close()
        self._process.stdout.close()
        self._stderr.close()

    def request(self, op: str, *, timeout: float = PATIENCE_S, **params: Any) -> Any:
        """Return the answer's result; raise PeerError for an error, TimeoutError after ``timeout`` seconds."""
        answer: Future[Any] = Future()
        with self._lock:
            number = next(self._ids)
            self._open[number] = answer
            self._send(json.dumps({"id": number, "op": op, **params}, default=_plain))
        return answer.result(timeout)

    def enqueue(self, task: GoTask) -> GoTaskInfo:
        """Enqueue through asynq.Client and return what that returned."""
        return GoTaskInfo.from_json(self.request("enqueue", **task.params()))

    def enqueue_many(self, tasks: Iterable[GoTask]) -> list[GoTaskInfo | PeerError]:
        """Enqueue one after the other, in one request to the peer."""
        outcomes = self.request("enqueue_many", tasks=[task.params() for task in tasks], timeout=600)
        return [
            PeerError(outcome["error"]["class"], outcome["error"]["text"])
            if outcome["error"]
            else GoTaskInfo.from_json(outcome["task"])
            for outcome in outcomes
        ]

    def inspect(self, method: str, *args: object) -> Any:
        """Call asynq.Inspector's method of this Go name; a page is ``{"page": n, "size": n}``."""
        return self.request("inspect", method=method, args=args)

    def task_info(self, queue: str, task_id: str) -> GoTaskInfo:
        """Read one task through asynq.Inspector."""
        return GoTaskInfo.from_json(self.inspect("GetTaskInfo", queue, task_id))

    def decode(self, message: bytes) -> GoTaskInfo:
        """Read an encoded TaskMessage with asynq's decoder (all fields but unique_key)."""
        return GoTaskInfo.from_json(self.request("decode", hex=message.hex()))

    @contextmanager
    def server(self, name: str = "server", **config: Any) -> Iterator[None]:
        """Run an asynq.Server; on leaving wait until it has written all that it ran."""
        self.request("server_start", name=name, **config)
        try:
            yield
        finally:
            self.request("server_shutdown", name=name)

    def executions(
        self, *, started: int = 0, finished: int = 0, timeout: float = PATIENCE_S, type: str = ""
    ) -> list[Execution]:
        """Wait for so many executions, then return all so far, or those of a type, in the order of their start."""
        runs = self.request(
            "executions",
            started=started,
            finished=finished,
            timeout_ns=round(timeout * SECOND_NS),
            timeout=timeout + 5,
            type=type,
        )
        return [Execution.from_json(run) for run in runs]

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            with self._lock:
                answer = self._open.pop(reply["id"])
            error = reply.get("error")
            if error:
                answer.set_exception(PeerError(error["class"], error["text"]))
            else:
                answer.set_result(reply["result"])
        with self._lock:
            orphans = list(self._open.values())
            self._open.clear()
        for answer in orphans:
            answer.set_exception(self._death())

    def _death(self) -> ConnectionError:
        code = self._process.wait()
        self._stderr.seek(0)
        tail = self._stderr.read()[-STDERR_TAIL:].decode(errors="replace")
        return ConnectionError(f"the Go peer ended with code {code}; its stderr ends with:\n{tail}")


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"cannot send {value!r} to the Go peer")

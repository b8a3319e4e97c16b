"""The testbed of a measurement: a temporary queue and server on the given Redis, deleted at the end.

Other data in Redis is neither read nor written. The resource usage of each process is read before and after each trial.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from fastq.broker.inspect.bulk import delete_all
from fastq.broker.inspect.redis_state import redis_info
from fastq.broker.inspect.removal import keys_of_queue
from fastq.broker.inspect.tasks import STATES, container
from fastq.broker.operation import Operation
from fastq.broker.operations.health import ping, server_version
from fastq.broker.operations.walk import Source
from fastq.broker.transport.open import open_broker
from fastq.client import Client
from fastq.errors import FastqError
from fastq.planning import probe
from fastq.planning.samples import Sample
from fastq.server.base.config import ServerConfig
from fastq.server.server import Server
from fastq.task import Task
from fastq.wire import keys

PREFIX: Final = "fastq-bench-"
NEEDED: Final = (
    "used_cpu_user", "used_cpu_sys", "used_memory", "total_net_input_bytes", "total_net_output_bytes",
    "total_commands_processed",
)  # fmt: skip
"""The fields of INFO that are needed; some hosted Redis services do not report them."""
_APP: Final = "fastq.planning.handlers:mux"
_POLL_S: Final = 0.01
_CHECK_S: Final = 0.05
"""How often the server polls the paused queue. A queue that is not paused is not polled, so no figure depends on it."""


class _Moment(NamedTuple):
    at_s: float
    client_s: float
    main_s: float
    child_s: float
    redis_s: float
    received: float
    sent: float
    memory: float
    calls: float
    busy_s: float


class Testbed:
    """The temporary queue and server of a measurement, for a ``with`` block; ``check`` raises to end it early."""

    def __init__(self, url: str, children: int, check: Callable[[], None]) -> None:
        self.queue = f"{PREFIX}{secrets.token_hex(4)}"
        self.children = children
        self.background_cores = 0.0
        self._check = check
        self._broker = open_broker(url)
        self._client = Client(url)
        config = ServerConfig(
            concurrency=children, queues={self.queue: 1}, task_check_interval=_CHECK_S, log_level="error"
        )
        self._server = Server(_APP, url, config)
        self._family: list[int] = []
        self._done = 0

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _begin(self) -> None:
        self._check()
        before = self._moment()
        time.sleep(0.3)
        after = self._moment()
        self.background_cores = (after.redis_s - before.redis_s) / (after.at_s - before.at_s)
        self._check()
        self._server.start()
        assert self._server.pid is not None
        self._family = probe.descendants(self._server.pid)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._server.pid is not None:
                self._server.shutdown()
        except FastqError:
            if error is None:  # otherwise the first error is the one to show
                raise
        finally:
            try:
                self._sweep()
            finally:
                self._client.close()
                self._broker.close()

    # What is measured -----------------------------------------------------------------------------------------------

    def enqueue(self, tasks: Iterable[Task]) -> Sample:
        """Put tasks into the paused queue, many per call."""
        listed = list(tasks)
        with self._measuring(len(listed)) as found:
            results = self._client.enqueue_many(listed)
        for _, error in results.errors():
            raise error
        return found[0]

    def enqueue_singly(self, tasks: Iterable[Task]) -> Sample:
        """Put tasks into the paused queue, one per call."""
        listed = list(tasks)
        with self._measuring(len(listed)) as found:
            for task in listed:
                self._client.enqueue(task)
        return found[0]

    def drain(self) -> Sample:
        """Let the server process the queue, and wait until it is empty."""
        waiting = self._length()
        first_at_s = first = 0.0
        with self._measuring(waiting) as found:
            self.resume()
            while (done := self._processed() - self._done) < waiting:
                if done and not first:
                    first, first_at_s = done, time.perf_counter()
                self._wait(_POLL_S)
            seconds = time.perf_counter() - first_at_s
        self._done += waiting
        self.pause()
        sample = found[0]
        return sample._replace(rate=(waiting - first) / seconds) if first else sample

    def pace(self, rate: float, tasks: Iterable[Task]) -> Sample:
        """Enqueue tasks one by one at a steady rate, making up for delays, while the server processes them."""
        listed = list(tasks)
        self.resume()
        with self._measuring(len(listed)) as found:
            start_s = time.perf_counter()
            for at, task in enumerate(listed):
                if (ahead_s := start_s + at / rate - time.perf_counter()) > 0:
                    self._wait(ahead_s)
                self._client.enqueue(task)
            while self._processed() - self._done < len(listed):
                self._wait(_POLL_S)
        self._done += len(listed)
        self.pause()
        return found[0]

    def idle(self, seconds: float) -> Sample:
        """Keep the server idle for these seconds; return a sample whose single task is the whole time."""
        self.resume()
        self._wait(0.2)
        with self._measuring(1) as found:
            self._wait(seconds)
        self.pause()
        return found[0]

    def round_trips(self, count: int) -> list[float]:
        """Return the duration of round trips in seconds."""
        found = []
        for _ in range(count):
            start_s = time.perf_counter()
            self._broker.run(ping())
            found.append(time.perf_counter() - start_s)
        return found

    def memory(self) -> tuple[int, int]:
        """Return the bytes of the main process with its fork server, and of one child; shared pages are divided."""
        assert self._server.pid is not None
        *_, first = (pid for pid in probe.children_of(self._server.pid))
        children = [pid for pid in self._family if pid != first]
        every = [probe.pss_bytes(pid) for pid in children] or [0]
        return probe.pss_bytes(self._server.pid) + probe.pss_bytes(first), sum(every) // len(every)

    def info(self) -> Mapping[str, str]:
        """Return Redis' INFO."""
        return self._broker.run(redis_info())

    def version(self) -> str:
        """Return the name and version of Redis."""
        return self._broker.run(server_version()) or "Redis"

    def is_here(self) -> bool:
        """Return whether Redis runs on this machine, which has a Redis process with the same id."""
        try:
            name = Path(f"/proc/{int(self.info().get('process_id', '0'))}/comm").read_text()
        except (OSError, ValueError):
            return False
        return name.startswith(("redis", "valkey", "keydb"))

    # How ------------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause the queue."""
        self._broker.run(Operation("SET", (keys.paused(self.queue),), (int(time.time()),), idempotent=True))

    def resume(self) -> None:
        """Resume the queue."""
        self._broker.run(Operation("DEL", (keys.paused(self.queue),), (), idempotent=True))

    @contextmanager
    def _measuring(self, tasks: int) -> Iterator[list[Sample]]:
        found: list[Sample] = []
        self._check()
        before = self._moment()
        yield found
        after = self._moment()
        used = _Moment(*(now - then for now, then in zip(after, before, strict=True)))
        redis_s = max(0.0, used.redis_s - self.background_cores * used.at_s)
        others_s = used.busy_s - used.client_s - used.main_s - used.child_s - redis_s
        found.append(
            Sample(
                tasks=tasks,
                rate=tasks / used.at_s,
                client_s=used.client_s / tasks,
                main_s=used.main_s / tasks,
                child_s=used.child_s / tasks,
                redis_s=redis_s / tasks,
                received=used.received / tasks,
                sent=used.sent / tasks,
                memory=used.memory / tasks,
                calls_a_s=used.calls / used.at_s,
                others_cores=max(0.0, others_s / used.at_s),
            )
        )
        self._check()

    def _moment(self) -> _Moment:
        info = self.info()
        pid = self._server.pid
        return _Moment(
            time.perf_counter(),
            time.process_time(),
            probe.cpu_s([pid] if pid is not None else []),
            probe.cpu_s(self._family),
            float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
            float(info["total_net_input_bytes"]),
            float(info["total_net_output_bytes"]),
            float(info["used_memory"]),
            float(info["total_commands_processed"]),
            probe.busy_s(),
        )

    def _wait(self, seconds: float) -> None:
        self._check()
        self._server_lives()
        time.sleep(seconds)

    def _server_lives(self) -> None:
        pid = self._server.pid
        if pid is not None and not probe.is_running(pid):
            raise FastqError("the measured server ended unexpectedly")

    def _processed(self) -> int:
        key = keys.processed_total(self.queue)
        return self._broker.run(Operation("GET", (key,), (), lambda reply: int(reply or 0), idempotent=True))

    def _length(self) -> int:
        return self._broker.run(Operation("LLEN", (keys.pending(self.queue),), (), int, idempotent=True))

    # What is left ---------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Delete all tasks of the queue, in any state."""
        for state in STATES:
            self._broker.drive(delete_all(Source(self.queue, container(self.queue, state), state)))

    def _sweep(self) -> None:
        self.clear()
        self._broker.run(Operation("UNLINK", keys_of_queue(self.queue), (), idempotent=True))
        self._broker.run(Operation("SREM", (keys.all_queues(),), (self.queue,), idempotent=True))

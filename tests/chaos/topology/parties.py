"""Those who work on a site: producers of fastq and Go, ``fastq-worker`` processes, and a server of Go's asynq."""

import asyncio
import base64
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from fastq import AsyncClient, BrokerError, Client
from tests.chaos.topology.app import LEDGER
from tests.chaos.topology.books import Ack, Refusal, Run, read_refusals
from tests.chaos.topology.node import spawn
from tests.chaos.topology.sites import Site
from tests.interop.build import build_peer
from tests.interop.peer import GoPeer
from tests.interop.records import PeerError

_ROOT: Final = Path(__file__).resolve().parents[3]
_EACH_S: Final = 0.04
"""How long a producer rests after each task."""
_TIMEOUT_S: Final = 8.0
_COROUTINES: Final = 4
_STOP_S: Final = 60.0
_MAX_RETRY: Final = 25


class Producers:
    """Threads that enqueue one task after the other, each tried once, and write down those that were acknowledged."""

    def __init__(self, site: Site, ledger: Path, wait_replicas: int, seed: int) -> None:
        self._site = site
        self._ledger = ledger.open("a", buffering=1)
        self._chance = random.Random(seed)
        self._limits: dict[str, Any] = {"timeout": _TIMEOUT_S, "wait_replicas": wait_replicas}
        self._client = Client(site.url, **self._limits)
        self._halt = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.tried: set[str] = set()
        self.acked = 0
        self.errors: Counter[str] = Counter()
        self.failures: list[Exception] = []

    def start(self, go: "Go | None") -> None:
        """Begin: two threads with one ``Client``, a loop with an ``AsyncClient``, and Go's if it is there."""
        bodies: list[Callable[[], None]] = [lambda: self._blocking("b"), lambda: self._blocking("c")]
        bodies.append(lambda: asyncio.run(self._async()))
        if go is not None:
            bodies.append(lambda: self._go(go))
        for body in bodies:
            thread = threading.Thread(target=self._guarded, args=(body,), name="chaos producer", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _guarded(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as failure:  # noqa: BLE001 - raised again by the main thread
            self.failures.append(failure)

    def _tasks(self, letter: str) -> Iterator[tuple[str, str, bytes]]:
        """Yield ids, queues and payloads until the end; few tasks take a second, most some milliseconds."""
        for number in count():
            if self._halt.is_set():
                return
            id = f"chaos-{letter}{number:07}"
            with self._lock:
                self.tried.add(id)
                queue, lasts_s = self._chance.choice(self._site.queues), self._chance.uniform(0.001, 0.02)
                lasts_s = 1.0 if self._chance.random() < 0.01 else lasts_s
            yield id, queue, json.dumps({"do": "sleep", "for_ns": round(lasts_s * 1e9)}).encode()

    def _note(self, id: str, queue: str, who: str) -> None:
        at = time.time()
        with self._lock:
            self.acked += 1
            self._ledger.write(Ack(id, queue, who, at).line())

    def _blame(self, who: str, error: Exception) -> None:
        with self._lock:
            self.errors[f"{who}: {type(error).__name__}"] += 1

    def _blocking(self, letter: str) -> None:
        for id, queue, payload in self._tasks(letter):
            try:
                self._client.enqueue("job", payload, task_id=id, queue=queue, max_retry=_MAX_RETRY, timeout=60)
            except BrokerError as error:
                self._blame("fastq", error)
            else:
                self._note(id, queue, "fastq")
            self._halt.wait(_EACH_S)

    async def _async(self) -> None:
        async def one(client: AsyncClient, letter: str) -> None:
            for id, queue, payload in self._tasks(letter):
                try:
                    await client.enqueue("job", payload, task_id=id, queue=queue, max_retry=_MAX_RETRY, timeout=60)
                except BrokerError as error:
                    self._blame("fastq", error)
                else:
                    self._note(id, queue, "fastq")
                await asyncio.sleep(_EACH_S)

        async with AsyncClient(self._site.url, **self._limits) as client:
            await asyncio.gather(*(one(client, letter) for letter in "stuv"[:_COROUTINES]))

    def _go(self, go: "Go") -> None:
        for id, queue, payload in self._tasks("g"):
            try:
                go.enqueue(id, queue, payload)
            except PeerError as error:
                self._blame("Go", error)
            else:
                self._note(id, queue, "Go")
            self._halt.wait(_EACH_S)

    def halt(self) -> None:
        """Let them begin nothing more."""
        self._halt.set()

    def stop(self) -> None:
        """End them, once the calls under way have ended."""
        self.halt()
        for thread in self._threads:
            thread.join(4 * _TIMEOUT_S)
        self._client.close()
        self._ledger.close()
        if self.failures:
            raise self.failures[0]


class Workers:
    """``fastq-worker`` processes as users run them."""

    def __init__(self, site: Site, place: Path, count: int) -> None:
        self.ledger = place / "runs"
        self._logs = [place / f"worker{number}.log" for number in range(count)]
        queues = ",".join(f"{queue}=1" for queue in site.queues)
        words = ["--redis", site.url, "--queues", queues, "--concurrency", "2", "--max-lost", "1000"]
        command = [sys.executable, "-m", "fastq.cli.worker", "tests.chaos.topology.app:mux", *words]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FASTQ_")}
        environment = {**inherited, "PYTHONPATH": str(_ROOT), LEDGER: str(self.ledger)}
        self._processes = [spawn(command, log, environment) for log in self._logs]

    def are_ready(self) -> bool:
        if codes := [process.returncode for process in self._processes if process.poll() is not None]:
            raise RuntimeError(f"a worker ended with code {codes[0]}: {self.text()[-2000:]}")
        return all("ready: " in log.read_text(errors="replace") for log in self._logs)

    def text(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self._logs if log.exists())

    def stop(self) -> list[str]:
        """End them as an operator would; return what went wrong."""
        codes = [code for process in self._processes if (code := process.poll()) is not None]
        wrong = [f"a worker ended by itself with code {code}" for code in codes]
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                wrong.append(f"a worker did not end within {_STOP_S:g} s of SIGTERM")
        wrong += [f"a worker ended with code {one.returncode}" for one in self._processes if one.returncode]
        text = self.text()
        if (at := text.find("Traceback (most recent call last)")) >= 0:
            wrong.append(f"a worker logged a defect: {text[max(0, at - 300) : at + 1500]}")
        return wrong

    def kill(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Go:
    """A Go process with asynq in it: a producer, and a server on the same queues."""

    def __init__(self, site: Site) -> None:
        """Connect; raises ``pytest``'s Skipped where there is no Go."""
        self._peer = GoPeer(build_peer())
        self._peer.request("connect", **site.go)
        queues = dict.fromkeys(site.queues, 1)
        second_ns = 1_000_000_000
        self._peer.request(
            "server_start",
            name="go",
            queues=queues,
            concurrency=4,
            retry_delay_ns=second_ns,
            delayed_task_check_ns=second_ns,
            log_level="warn",
        )

    def enqueue(self, id: str, queue: str, payload: bytes) -> None:
        options = {"queue": queue, "task_id": id, "max_retry": _MAX_RETRY, "timeout_ns": 60_000_000_000}
        text = base64.b64encode(payload).decode()
        self._peer.request("enqueue", type="job", payload=text, options=options)

    def runs(self) -> list[Run]:
        """Return the runs of its server, as it wrote them down."""
        rows = self._peer.request("executions", started=0, finished=0, timeout_ns=0)
        return [Run(row["id"], "Go", row["start_ns"] / 1e9, (row["end_ns"] or 0) / 1e9) for row in rows]

    def refusals(self) -> list[Refusal]:
        return read_refusals(self._peer.log())

    def close(self) -> None:
        self._peer.close()


def go_on(site: Site) -> "Go | str":
    """Return Go's part, or why there is none."""
    try:
        return Go(site)
    except pytest.skip.Exception as reason:
        return str(reason)

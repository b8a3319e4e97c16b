"""What the pool's tests share: a pool with its events, beacons that handlers reach, and a look at processes."""

import asyncio
import contextlib
import json
import os
import resource
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from fastq.pool.main.child_queue import Event, Submission
from fastq.pool.main.config import PoolConfig
from fastq.pool.main.pool import ProcessPool
from fastq.pool.main.preloader_client import PoolStartError
from fastq.pool.main.protocol import PoolListener
from fastq.pool.shared.event_kind import EventKind
from tests.waiting import PATIENCE_S

LIMIT_S = PATIENCE_S
RUNNER = "tests.pool.runners:load"
T = TypeVar("T")


def run(coroutine: Coroutine[object, object, T], limit_s: float = LIMIT_S) -> T:
    """Run a test's coroutine, and fail instead of hanging."""

    async def limited() -> T:
        async with asyncio.timeout(limit_s):
            return await coroutine

    return asyncio.run(limited())


class Beacon:
    """Receive what handlers tell."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="fastq-beacon-")
        self.path = f"{self._directory.name}/beacon"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)

    async def next(self) -> str:
        return (await asyncio.get_running_loop().sock_recv(self._socket, 1000)).decode()

    def told(self) -> str:
        """Return what was told and not heard yet, "" when there is nothing."""
        try:
            return self._socket.recv(1000).decode()
        except BlockingIOError:
            return ""

    async def pids(self) -> list[int]:
        """Wait for a ``started`` and return the process ids in it."""
        word, *pids = (await self.next()).split()
        assert word == "started"
        return [int(pid) for pid in pids]

    def file(self, name: str) -> Path:
        return Path(self._directory.name) / name

    def close(self) -> None:
        self._socket.close()
        self._directory.cleanup()


class Bench(PoolListener):
    """A running pool, its events by key, and a beacon."""

    def __init__(self, config: PoolConfig) -> None:
        self.events: dict[object, list[Event]] = {}
        self.order: list[Event] = []
        self.notices: list[str] = []
        self.infos: list[str] = []
        self.rooms = 0
        self.failed: list[PoolStartError] = []
        self.beacon = Beacon()
        self._changed = asyncio.Event()
        self.pool = ProcessPool(config)
        self.forks = self.pool._forks

    def on_events(self, events: list[Event]) -> None:
        for event in events:
            self.order.append(event)
            self.events.setdefault(event.submission.key, []).append(event)
        self._changed.set()

    def on_failed(self, error: PoolStartError) -> None:
        self.failed.append(error)
        self._changed.set()

    def on_notice(self, text: str) -> None:
        self.notices.append(text)

    def on_info(self, text: str) -> None:
        self.infos.append(text)

    def on_room(self) -> None:
        self.rooms += 1
        self._changed.set()

    def task(
        self,
        key: object,
        do: str = "noop",
        *,
        timeout: float = 0.0,
        deadline: float = 0.0,
        is_async: bool = False,
        is_threaded: bool = False,
        **order: str,
    ) -> Submission:
        """Make a submission for the test runner."""
        data = json.dumps({"do": do, "beacon": self.beacon.path, **order}).encode()
        submission = Submission(key, data, do, timeout=timeout, deadline=deadline, is_async=is_async or is_threaded)
        submission.is_threaded = is_threaded
        return submission

    def submit(self, *submissions: Submission) -> None:
        self.pool.submit(submissions)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for events until the condition holds."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def outcome(self, key: object) -> Event:
        """Wait for the final event of a task; there must be just one."""
        await self.until(lambda: any(event.kind < EventKind.WRITTEN for event in self.events.get(key, [])))
        (final,) = [event for event in self.events[key] if event.kind < EventKind.WRITTEN]
        return final

    async def room(self) -> None:
        """Wait until a child may take a task, lest one that comes while a child is replaced is RETURNED."""
        while not self.pool.free:
            await asyncio.sleep(0.001)

    async def hang(self, do: str, *, timeout: float = 0.1) -> tuple[Event, list[int]]:
        """Run a task that hangs until its time is up; return its outcome and the processes that it told of.

        One that was too slow to tell of any, as on a busy machine, is given more time.
        """
        while timeout < LIMIT_S:
            key = object()
            await self.room()  # the one before may have cost its child
            self.submit(self.task(key, do, timeout=timeout))
            event = await self.outcome(key)
            word, *pids = self.beacon.told().split() or [""]
            if word == "started":
                return event, [int(pid) for pid in pids]
            while self.beacon.told():  # it is not to be taken for the next one's
                pass
            timeout *= 5
        raise AssertionError(f"{do} never began within its time")

    async def outcomes(self, keys: Iterable[object]) -> list[Event]:
        return [await self.outcome(key) for key in keys]

    async def run(self, do: str = "noop", *, timeout: float = 0.0, **order: str) -> Event:
        """Submit one task, once there is room for it, and wait for its outcome."""
        await self.room()
        key = object()
        self.submit(self.task(key, do, timeout=timeout, is_async=False, is_threaded=False, deadline=0.0, **order))
        return await self.outcome(key)


def settings(argument: str = "", **options: float | str | tuple[str, ...]) -> PoolConfig:
    """Make a config for the test runner."""
    config: dict[str, object] = {"runner": RUNNER, "argument": argument, "timeout_grace": 0.2, **options}
    return PoolConfig(**config)  # type: ignore[arg-type]  # keywords collected for brevity; PoolConfig checks them


@contextlib.asynccontextmanager
async def bench(config: PoolConfig | None = None) -> AsyncIterator[Bench]:
    """Start a pool, stop it, and see to it that none of its processes is left."""
    made = Bench(config or settings())
    pids: set[int] = set()
    try:
        await made.pool.start(made)
        pids |= {*made.pool.child_states, made.pool.preloader_pid}
        yield made
        pids |= {*made.pool.child_states, made.pool.preloader_pid}
    finally:
        await made.pool.stop()
        made.beacon.close()
    await gone(*pids)


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process have no descriptor left but those that it has, numbers that are free among them included."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.dup(fillers[0]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fillers:
            os.close(fd)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(*pids: int) -> None:
    """Wait until every process is gone; the test's own limit makes it fail otherwise."""
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert os.getpid() not in alive
        await asyncio.sleep(0.002)

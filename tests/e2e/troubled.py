"""A Redis of its own that can be brought into trouble, and workers on it."""

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from fastq import Client, Task
from tests.e2e.harness import Workers, workers_on
from tests.e2e.view import View
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import wait_until

BEGIN = "trying again until it works"
END = "succeed again after"
CONFIG = {"appendonly": "yes", "appendfsync": "always", "lua-time-limit": "50"}


class Stage:
    """A Redis, workers on it, and a view of both."""

    def __init__(self, server: RedisServer, workers: Workers) -> None:
        self.server = server
        self.workers = workers
        self.process = server.process
        self._ask: Any = server.client()
        self.view = View(self._ask)

    def do(self, *words: object) -> Any:
        return self._ask.execute_command(*words)

    def enqueue(self, type: str, **options: Any) -> str:
        with Client(self.server.url) as client:
            return client.enqueue(Task(type, retention=3600, **options)).id

    def answers(self) -> bool:
        with suppress(RedisError):
            return bool(self._ask.ping())
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self, *flags: str) -> None:
        """Start the killed Redis again, on its data."""
        with (self.server.directory / "log").open("ab") as log:
            self.process = subprocess.Popen([*map(str, self.server.process.args), *flags], stdout=log, stderr=log)  # type: ignore[arg-type]  # a list

    def close(self) -> None:
        self._ask.close()
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@contextmanager
def on_stage(directory: Path, config: Mapping[str, str] | None = None) -> Iterator[Stage]:
    with redis_server(config={**CONFIG, **(config or {})}) as server, workers_on(server.url, directory) as workers:
        stage = Stage(server, workers)
        try:
            yield stage
        finally:
            stage.close()


# What may happen to it ---------------------------------------------------------------------------------------------


@contextmanager
def silence(stage: Stage) -> Iterator[None]:
    """Stand still, as on a machine that swaps, or behind a network that drops everything."""
    stage.process.send_signal(signal.SIGSTOP)
    yield
    stage.process.send_signal(signal.SIGCONT)


@contextmanager
def absence(stage: Stage) -> Iterator[None]:
    """Kill Redis, and start it again with its data."""
    stage.kill()
    yield
    stage.restart()


@contextmanager
def demotion(stage: Stage) -> Iterator[None]:
    """Become a replica, and a master again."""
    stage.do("REPLICAOF", "127.0.0.1", free_port())
    yield
    stage.do("REPLICAOF", "NO", "ONE")


@contextmanager
def fullness(stage: Stage) -> Iterator[None]:
    """Reach maxmemory."""
    stage.do("CONFIG", "SET", "maxmemory", 1)
    yield
    stage.do("CONFIG", "SET", "maxmemory", 0)


@contextmanager
def lost_disk(stage: Stage) -> Iterator[None]:
    """Fail to save, which it takes no writes after."""
    (in_the_way := stage.server.directory / "dump.rdb").mkdir()
    stage.do("CONFIG", "SET", "save", "3600 1000000")
    stage.do("BGSAVE")
    wait_until(lambda: stage.view.facts("persistence")["rdb_last_bgsave_status"] == "err")
    yield
    stage.do("CONFIG", "SET", "save", "")
    in_the_way.rmdir()


@contextmanager
def business(stage: Stage) -> Iterator[None]:
    """Run a script that does not end by itself."""
    endless = threading.Thread(target=_run_until_killed, args=(stage.server,))
    endless.start()
    wait_until(lambda: _is_busy(stage))
    yield
    stage.do("SCRIPT", "KILL")
    endless.join()


def _run_until_killed(server: RedisServer) -> None:
    with server.client() as client, suppress(ResponseError, RedisConnectionError):
        client.eval("while true do end", 0)


def _is_busy(stage: Stage) -> bool:
    try:
        return not stage.do("PING")
    except ResponseError as error:
        return str(error).startswith("BUSY")


TROUBLES = {
    "silent": silence,
    "killed": absence,
    "replica": demotion,
    "full": fullness,
    "unsaved": lost_disk,
    "busy": business,
}

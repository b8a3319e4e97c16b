"""A redis-server behind the network, and the sentinels: processes that are killed, frozen and started again."""

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.chaos.dying import with_parent
from tests.chaos.topology.books import Sample
from tests.ports import free_port

BUS: Final = 10_000
"""How far above its port a node of a cluster listens for the others."""

_SAMPLE_S: Final = 0.02


def spawn(command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Start a process that ends with this one; call it from the main thread."""
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
            start_new_session=True,
            preexec_fn=with_parent,  # noqa: PLW1509 - it takes no lock that a thread may hold
        )


class Node:
    """A redis-server without persistence: what its replica lacks is gone when it is killed.

    It listens on ``inner``; the others, and clients, know it by ``port``, which is the network's.
    """

    def __init__(self, name: str, address: str, directory: Path) -> None:
        self.name: Final = name
        self.address: Final = address
        self.inner: Final = free_port(also=BUS)
        self.port = 0
        self.settings: dict[str, str] = {}
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()

    def start(self, program: str, **more: str) -> None:
        """Start it with its settings."""
        settings = {
            "port": str(self.inner),
            "bind": "127.0.0.1",
            "bind-source-addr": self.address,
            "dir": str(self._directory),
            "save": "",
            "appendonly": "no",
            "repl-diskless-sync-delay": "0",
            "repl-timeout": "10",
            **self.settings,
            **more,
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", *value.split(" "))]
        self._process = spawn([program, *words], self._directory / "log")

    def signal(self, signum: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(signum)

    def kill(self) -> None:
        """End it at once, whatever its state."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def is_up(self) -> bool:
        """Return whether its process runs, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def client(self, timeout_s: float = 10.0) -> Redis:
        """Return a client that goes past the network."""
        once = Retry(NoBackoff(), 0)
        return Redis(port=self.inner, socket_timeout=timeout_s, decode_responses=True, retry=once)

    def ask(self, *words: object) -> Any:
        with self.client() as client:
            execute: Any = client.execute_command
            return execute(*words)

    def replication(self) -> dict[str, Any]:
        """Return its INFO on replication, empty where it does not answer."""
        with contextlib.suppress(RedisError, OSError), self.client() as client:
            found: dict[str, Any] = client.info("replication")
            return found
        return {}


class Sampler:
    """A thread that notes the replication offset of a node while it is a master."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._halt = threading.Event()
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=self._run, name=f"samples of {node.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._node.client(timeout_s=60.0) as client:
            while not self._halt.wait(_SAMPLE_S):
                with contextlib.suppress(RedisError, OSError):
                    at = time.time()  # before: the offset is never less than it was then
                    found: dict[str, Any] = client.info("replication")
                    if found["role"] == "master":
                        self.samples.append(_sample(at, found))

    def stop(self) -> None:
        self._halt.set()


def _sample(at: float, found: dict[str, Any]) -> Sample:
    history, before = str(found["master_replid"]), str(found["master_replid2"])
    return Sample(at, history, int(found["master_repl_offset"]), before, int(found["second_repl_offset"]))

"""A Redis that keeps every write it has acknowledged, and that can be killed, frozen and started again.

``appendfsync always``: with ``everysec`` a killed Redis may forget a second of what it had answered, and no queue on
it could promise anything about that second.
"""

import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from tests.chaos.dying import with_parent
from tests.waiting import wait_until


class Database:
    """Run a redis-server in a directory, on a socket there and on a port if one is given."""

    def __init__(self, program: str, directory: Path, port: int = 0) -> None:
        self._program = program
        self.directory = directory
        self._port = port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def socket_path(self) -> str:
        return str(self.directory / "redis.sock")

    @property
    def url(self) -> str:
        return f"unix://{self.socket_path}"

    def client(self) -> Redis:
        """Return a client that goes past the proxies."""
        return Redis(unix_socket_path=self.socket_path, socket_timeout=20)

    def start(self) -> None:
        """Start it; it may take a while until it answers."""
        settings = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "unixsocket": self.socket_path,
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        with (self.directory / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._program, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=with_parent,  # noqa: PLW1509 - it takes no lock that a thread may hold
            )

    def start_and_wait(self) -> None:
        self.start()
        wait_until(self.answers)

    def answers(self) -> bool:
        """Return whether it takes commands; false while it loads."""
        with suppress(RedisError, OSError), self.client() as db:
            return bool(db.ping())
        return False

    def signal(self, signum: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(signum)

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def stop(self) -> None:
        """End it, whatever its state."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

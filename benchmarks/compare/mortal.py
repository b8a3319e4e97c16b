"""A Redis that is restarted, or dies and is replaced by its replica, and is found at the same port afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from redis import Redis

from tests.chaos.database import Database
from tests.ports import free_port
from tests.redis_servers import server_program
from tests.waiting import wait_until


class MortalRedis:
    """A master that keeps every write, and its replica."""

    def __init__(self, place: Path) -> None:
        self.port = free_port()
        self._master, self._replica = (
            Database(server_program(), place / name, port)
            for name, port in (("master", self.port), ("replica", free_port()))
        )

    def start(self) -> None:
        """Start both, and wait until the replica has what the master has."""
        for one in (self._master, self._replica):
            one.directory.mkdir()
            one.start_and_wait()
        with self._replica.client() as db:
            db.replicaof("127.0.0.1", str(self.port))
            told: Any = db
            wait_until(lambda: told.info("replication")["master_link_status"] == "up")

    def stop(self) -> None:
        """End both."""
        self._master.stop()
        self._replica.stop()

    def client(self) -> Redis:
        """Return a client of the master, past what the contenders use."""
        return self._master.client()

    def restart(self) -> None:
        """Kill the master and start it again."""
        self._master.stop()
        self._master.start_and_wait()

    def fail_over(self) -> None:
        """Kill the master once the replica has all it wrote; the replica becomes master, at the same port."""
        with self.client() as db:
            db.wait(1, 1000)
        self._master.stop()
        self._master, self._replica = self._replica, self._master
        with self.client() as db:
            db.replicaof("NO", "ONE")
            db.config_set("port", str(self.port))


@contextmanager
def mortal_redis() -> Iterator[MortalRedis]:
    """Run one."""
    with TemporaryDirectory(prefix="fastq-") as name:  # not deep: the path of a socket has about 100 bytes
        redis = MortalRedis(Path(name))
        try:
            redis.start()
            yield redis
        finally:
            redis.stop()

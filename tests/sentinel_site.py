"""Two masters and a sentinel that names the one, then the other, while the first takes writes as before."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from redis import Redis

from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server, sentinel_server

__all__ = ["SentinelSite", "sentinel_site"]


@dataclass(frozen=True)
class SentinelSite:
    """Be two masters, of which the sentinel names the old one until it is told to ``replace`` it."""

    old: RedisServer
    new: RedisServer
    sentinel_port: int

    @property
    def url(self) -> str:
        return f"redis-sentinel://127.0.0.1:{self.sentinel_port}?master=mymaster"

    def replace(self) -> None:
        """Have the sentinel name the new one; the old one hears nothing of it, as in a partition."""
        self._name(self.new)

    def _name(self, server: RedisServer) -> None:
        with Redis(port=self.sentinel_port) as sentinel:
            sentinel.sentinel_remove("mymaster")
            sentinel.sentinel_monitor("mymaster", "127.0.0.1", server.port, 1)

    def demote(self) -> None:
        """Replace the old one and have it follow the new one, but keep its clients."""
        self.replace()
        with self.old.client() as old:
            old.replicaof("127.0.0.1", self.new.port)

    def restore(self) -> None:
        """Empty both, and go back to the beginning."""
        for server in (self.old, self.new):
            with server.client() as client:
                client.replicaof("NO", "ONE")
                client.flushall()
        self._name(self.old)

    def connections_to_old(self) -> int:
        """Return how many of fastq's there are."""
        with self.old.client() as old:
            return sum(each["name"] == "fastq" for each in old.client_list())


@contextmanager
def sentinel_site() -> Iterator[SentinelSite]:
    """Run them over TCP."""
    with redis_server(free_port()) as old, redis_server(free_port()) as new, sentinel_server(old.port) as port:
        yield SentinelSite(old, new, port)

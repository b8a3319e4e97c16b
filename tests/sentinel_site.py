"""Two masters and a sentinel that names the one, then the other, while the first takes writes as before."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from redis import Redis
from redis.exceptions import ResponseError

from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server, sentinel_server
from tests.waiting import wait_until


@dataclass(frozen=True)
class SentinelSite:
    """Two masters; the sentinel names the old one until ``replace`` is called."""

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


@dataclass(frozen=True)
class Failover:
    """A planned failover that does not end: the new master is promoted, and another replica never follows it."""

    old: RedisServer
    new: RedisServer
    sentinel_port: int

    @property
    def url(self) -> str:
        return f"redis-sentinel://127.0.0.1:{self.sentinel_port}?master=mymaster"


@contextmanager
def failover_held_open() -> Iterator[Failover]:
    """Begin one, and hold the replica that must not be promoted."""
    unfit = {"replica-priority": "0"}
    with (
        redis_server(free_port()) as old,
        redis_server(free_port()) as new,
        redis_server(free_port(), "", unfit) as held,
    ):
        for replica in (new, held):
            _follow(replica, old)
        with sentinel_server(old.port) as port, Redis(port=port) as sentinel:
            wait_until(lambda: len(sentinel.sentinel_slaves("mymaster")) == 2)
            sentinel.sentinel_set("mymaster", "failover-timeout", 600_000)
            held.process.send_signal(signal.SIGSTOP)
            try:
                wait_until(lambda: _is_begun(sentinel))
                wait_until(lambda: sentinel.sentinel_get_master_addr_by_name("mymaster")[1] == new.port)
                yield Failover(old, new, port)
            finally:
                held.process.send_signal(signal.SIGCONT)


def _follow(replica: RedisServer, master: RedisServer) -> None:
    with replica.client() as client, master.client() as its_master:
        its_master.config_set("repl-diskless-sync-delay", 0)
        client.replicaof("127.0.0.1", master.port)
        wait_until(lambda: client.info("replication")["master_link_status"] == "up")


def _is_begun(sentinel: Redis) -> bool:
    """Order the failover; refused while the sentinel has not yet heard enough of the replicas."""
    with suppress(ResponseError):
        return bool(sentinel.execute_command("SENTINEL", "FAILOVER", "mymaster"))  # type: ignore[no-untyped-call]  # redis-py's
    return False

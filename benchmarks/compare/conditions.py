"""The conditions of a run: where Redis is and what it does for each write. All contenders on Redis have the same."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server, tls_redis_server

if TYPE_CHECKING:
    from benchmarks.compare.database import Database


@dataclass(frozen=True, slots=True)
class There:
    """The Redis of a turn: contenders work through ``port``, the harness looks past what is before it."""

    server: "RedisServer | Database"
    port: int
    scheme: str = "redis"
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; ``away_ms`` is a round trip through a proxy that holds each chunk of bytes back."""

    title: str
    away_ms: float = 0.0
    is_tls: bool = False
    config: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def servers(self) -> Iterator[There]:
        """Run Redis, and what is before it."""
        with ExitStack() as stack:
            if self.is_tls:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                server, port, authority = stack.enter_context(tls_redis_server(directory))
                yield There(server, port, "rediss", {"SSL_CERT_FILE": str(authority)})
                return
            server = stack.enter_context(redis_server(port=free_port(), config=self.config))
            yield There(server, stack.enter_context(proxy(server.port, self.away_ms)) if self.away_ms else server.port)


EVERY_SECOND: Final = {"appendonly": "yes", "appendfsync": "everysec"}
PLAIN: Final = Condition("loopback")
CONDITIONS: Final[Mapping[str, Condition]] = {
    "plain": PLAIN,
    "rtt0.5": Condition("0.5 ms of round trip", away_ms=0.5),
    "rtt2": Condition("2 ms of round trip", away_ms=2.0),
    "aof": Condition("AOF, everysec", config=EVERY_SECOND),
    "tls": Condition("TLS", is_tls=True),
    "production": Condition("AOF, everysec, and 1 ms of round trip", away_ms=1.0, config=EVERY_SECOND),
}


def servers(condition: Condition) -> AbstractContextManager[There]:
    """Run Redis as a condition has it."""
    return condition.servers()


Store = Callable[[Condition], AbstractContextManager[There]]
"""Runs what the tasks of a turn are kept in."""


@contextmanager
def proxy(target: int, away_ms: float) -> Iterator[int]:
    """Run the delay proxy; gives its port."""
    program = Path(__file__).with_name("delay_proxy.py")
    process = subprocess.Popen([sys.executable, program, str(target), str(away_ms)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()

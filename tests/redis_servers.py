"""Start real, private Redis servers for tests: alone, with TLS, with users, with a Sentinel, as a cluster.

Everything listens on the loopback interface or a Unix socket, lives in a temporary directory and is stopped by its own
process id. A test skips where no server program is installed, but fails in CI (``CI`` set).
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from fastq.broker.transport import embedded
from fastq.errors import BrokerConnectionError
from tests.certificates import make_certificates
from tests.ports import free_port
from tests.waiting import wait_until


@dataclass(frozen=True)
class RedisServer:
    """A running server; ``url`` is its Unix socket's, ``tcp_url`` its port's where it has one."""

    process: subprocess.Popen[bytes]
    directory: Path
    port: int
    password: str = ""

    @property
    def socket_path(self) -> str:
        return str(self.directory / "redis.sock")

    @property
    def url(self) -> str:
        return f"unix://{self.socket_path}"

    @property
    def tcp_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self, db: int = 0) -> Redis:
        """Return a client of redis-py's own making, to look behind the code under test."""
        return Redis(unix_socket_path=self.socket_path, db=db, password=self.password or None)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, f"redis-server ended: {self.output()}"
        with suppress(RedisError, OSError), self.client() as client:
            return bool(client.ping())
        return False

    def output(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def stop(self) -> None:
        _stop(self.process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def server_program() -> str:
    """Return the path of the server program to test with: the one that an embedded server would be."""
    try:
        return embedded.server_program()
    except BrokerConnectionError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))


def _command(directory: Path, port: int, password: str, config: Mapping[str, str]) -> list[str]:
    settings = {
        "port": str(port),
        "bind": "127.0.0.1",
        "unixsocket": str(directory / "redis.sock"),
        "dir": str(directory),
        "save": "",
        "appendonly": "no",
        **({"requirepass": password} if password else {}),
        **config,
    }
    return [server_program(), *(word for name, value in settings.items() for word in (f"--{name}", value))]


@contextmanager
def redis_server(port: int = 0, password: str = "", config: Mapping[str, str] | None = None) -> Iterator[RedisServer]:
    """Run one server; ``port`` 0 is a Unix socket only, ``config`` more settings as in redis.conf."""
    # Not pytest's tmp_path: the path of a Unix socket must stay under about 100 bytes.
    with tempfile.TemporaryDirectory(prefix="fastq-test-") as name:
        with Path(name, "log").open("wb") as log:
            process = subprocess.Popen(_command(Path(name), port, password, config or {}), stdout=log, stderr=log)
        server = RedisServer(process, Path(name), port, password)
        try:
            _wait_until_ready(server)
            yield server
        finally:
            # At once: one that is asked to end does so at its next tick, or not at all where it cannot save.
            process.kill()
            process.wait()


def _wait_until_ready(server: RedisServer) -> None:
    """Wait until a server answers; skip the test if it cannot, since it knows no TLS."""
    try:
        wait_until(server.is_ready)
    except AssertionError as error:
        # The servers inside wheels are some: those before Redis 7 do not know the setting, others say why they end.
        if not any(text in str(error) for text in ("'tls-port", "finding TLS support")) or os.environ.get("CI"):
            raise
        pytest.skip("this redis-server was built without TLS")


@contextmanager
def silent(server: RedisServer) -> Iterator[None]:
    """Let a server take connections and answer nothing."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@contextmanager
def tls_redis_server(directory: Path) -> Iterator[tuple[RedisServer, int, Path]]:
    """Run a server with TLS; gives it, its TLS port and the file of the authority that signed its certificate."""
    files = make_certificates(directory)
    port = free_port()
    config = {
        "tls-port": str(port),
        "tls-cert-file": str(files.certificate),
        "tls-key-file": str(files.key),
        "tls-ca-cert-file": str(files.authority),
        "tls-auth-clients": "no",
    }
    with redis_server(config=config) as server:
        yield server, port, files.authority


@contextmanager
def tls_sentinel(directory: Path) -> Iterator[tuple[RedisServer, int, Path]]:
    """Run a master and a sentinel that talk TLS; gives the master, the sentinel's TLS port and the authority's file."""
    with tls_redis_server(directory) as (master, master_port, authority):
        port = free_port()
        config = {
            "tls-port": str(port),
            "tls-cert-file": str(directory / "server.pem"),
            "tls-key-file": str(directory / "server.key"),
            "tls-ca-cert-file": str(authority),
            "tls-auth-clients": "no",
            "tls-replication": "yes",  # with the master, too
            "sentinel resolve-hostnames": "yes",
            "sentinel announce-hostnames": "yes",  # the certificate has a name, no address
        }
        with sentinel_server(master_port, host="localhost", config=config):
            yield master, port, authority


@dataclass(frozen=True)
class SentinelSetup:
    """A master, its replica, and the sentinel that watches them as ``mymaster``."""

    master: RedisServer
    replica: RedisServer
    sentinel_port: int

    def sentinel(self, password: str = "") -> Redis:
        return Redis(port=self.sentinel_port, password=password or None)


@contextmanager
def redis_sentinel(
    password: str = "", sentinel_password: str = "", down_after_ms: int = 60_000
) -> Iterator[SentinelSetup]:
    """Run a master, a replica and one sentinel (quorum 1) over TCP."""
    with ExitStack() as stack:
        config = {"repl-diskless-sync-delay": "0", **({"masterauth": password} if password else {})}
        master = stack.enter_context(redis_server(free_port(), password, config))
        replica = stack.enter_context(redis_server(free_port(), password, config))
        with replica.client() as client:
            client.replicaof("127.0.0.1", master.port)
        port = stack.enter_context(sentinel_server(master.port, password, sentinel_password, down_after_ms))
        setup = SentinelSetup(master, replica, port)
        wait_until(lambda: _sees_replica(setup, sentinel_password))
        yield setup


@contextmanager
def sentinel_server(
    master_port: int,
    password: str = "",
    sentinel_password: str = "",
    down_after_ms: int = 60_000,
    *,
    host: str = "127.0.0.1",
    config: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run one sentinel that watches whatever listens on a port as ``mymaster``; gives its own port."""
    port = free_port()
    lines = [
        f"port {port}",
        "bind 127.0.0.1",
        *(f"{name} {value}" for name, value in (config or {}).items()),
        f"sentinel monitor mymaster {host} {master_port} 1",
        f"sentinel down-after-milliseconds mymaster {down_after_ms}",
        "sentinel failover-timeout mymaster 5000",
        *([f"sentinel auth-pass mymaster {password}"] if password else []),
        *([f"requirepass {sentinel_password}"] if sentinel_password else []),
    ]
    with tempfile.TemporaryDirectory(prefix="fastq-test-") as directory:
        file = Path(directory, "sentinel.conf")
        file.write_text("\n".join([*lines, f'dir "{directory}"', f'logfile "{directory}/log"', ""]))
        process = subprocess.Popen([server_program(), str(file), "--sentinel"])
        try:
            wait_until(lambda: _knows_master(port, sentinel_password))
            yield port
        finally:
            _stop(process)


def _knows_master(port: int, password: str) -> bool:
    with suppress(RedisError, OSError), Redis(port=port, password=password or None) as sentinel:
        return not sentinel.sentinel_master("mymaster")["is_sdown"]
    return False


def _sees_replica(setup: SentinelSetup, sentinel_password: str) -> bool:
    with suppress(RedisError, OSError), setup.sentinel(sentinel_password) as sentinel:
        replicas = sentinel.sentinel_slaves("mymaster")
        return len(replicas) == 1 and replicas[0]["master-link-status"] == "ok"
    return False


@contextmanager
def redis_cluster(
    nodes: int = 3, password: str = "", config: Mapping[str, str] | None = None
) -> Iterator[Sequence[RedisServer]]:
    """Run a cluster of ``nodes`` masters that share the slots evenly, without replicas."""
    with ExitStack() as stack:
        config = {"cluster-enabled": "yes", "cluster-node-timeout": "30000", **(config or {})}
        servers = [
            # The nodes talk to one another 10000 above their ports.
            stack.enter_context(redis_server(free_port(also=10000), password, config))
            for _ in range(nodes)
        ]
        for index, server in enumerate(servers):
            first, last = 16384 * index // nodes, 16384 * (index + 1) // nodes
            with server.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTS", *range(first, last))
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        wait_until(lambda: all(_knows_cluster(server, nodes) for server in servers))
        yield servers


def _knows_cluster(server: RedisServer, nodes: int) -> bool:
    with server.client() as client:
        info: bytes = client.execute_command("CLUSTER", "INFO")
        return {b"cluster_state:ok", b"cluster_known_nodes:%d" % nodes} <= set(info.split())

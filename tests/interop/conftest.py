"""A private Redis and a Go peer on it, for each test an empty one."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.e2e.harness import Workers, workers_on
from tests.e2e.view import View
from tests.interop.build import build_peer, unavailable
from tests.interop.peer import GoPeer
from tests.interop.scene import Scene, scene_on
from tests.ports import free_port
from tests.redis_servers import redis_server


@pytest.fixture(scope="session")
def peer_binary() -> Path:
    return build_peer()


@pytest.fixture(scope="session")
def redis_socket() -> Iterator[Path]:
    """Start a Redis on a unix socket (in /tmp: the path of a socket must be short) and stop it at the end."""
    server = shutil.which("redis-server")
    if server is None:
        unavailable("there is no redis-server on PATH")
    with tempfile.TemporaryDirectory(prefix="fastq-interop-") as directory:
        socket = Path(directory) / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no", "--dir", directory]
        process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            patient = Retry(ConstantBackoff(0.02), 4500)
            with redis.Redis(unix_socket_path=str(socket), retry=patient) as probe:
                probe.ping()
            yield socket
        finally:
            process.terminate()
            process.wait()


@pytest.fixture
def db(redis_socket: Path) -> Iterator[redis.Redis]:
    """Return a client of the emptied Redis."""
    with redis.Redis(unix_socket_path=str(redis_socket)) as client:
        client.flushall()
        yield client


@pytest.fixture
def redis_url(redis_socket: Path, db: redis.Redis) -> str:
    """Return the URL of the emptied Redis."""
    return f"unix://{redis_socket}?db=0"


@pytest.fixture
def go(peer_binary: Path, redis_socket: Path, db: redis.Redis) -> Iterator[GoPeer]:
    """Return a fresh peer, connected to the emptied Redis.

    Fresh, because an asynq.Client remembers for good which queues it has made known.
    """
    with GoPeer(peer_binary) as peer:
        peer.request("connect", socket=str(redis_socket))
        yield peer


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Return a Redis on which fastq alone has worked, and works; only to be looked at."""
    with (
        redis_server(port=free_port()) as redis,
        workers_on(redis.url, tmp_path_factory.mktemp("scene")) as workers,
        scene_on(redis, workers) as scene,
    ):
        yield scene


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    with workers_on(redis_url, tmp_path) as workers:
        yield workers


@pytest.fixture
def view(db: "redis.Redis") -> View:
    return View(db)

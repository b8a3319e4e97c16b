"""The Redis that most tests share: one private server a session, emptied for each test."""

import fcntl
import gc
import logging
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from functools import cache
from importlib.util import cache_from_source
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from redis import Redis, utils

from tests.patience import be_patient
from tests.redis_servers import RedisServer, redis_server

# A run under nohup ignores SIGHUP, one in a shell's background SIGINT, and so would every process that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

be_patient()

# Each client of redis-py reads its version from a file, 1 ms; tests make tens of thousands.
utils.get_lib_version = cache(utils.get_lib_version)

# Where it is installed, jsonschema imports it for the format "iri", which no schema here has: a fifth of what each
# process takes to collect all tests.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # it cannot be imported

# How long an example takes, or its making, is the machine's affair.
settings.register_profile("fastq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fastq")


LONGEST: Final = (
    "interop/test_differential.py::test_every_operation",
    "simulation/test_simulation.py::test_the_promises_hold",
    "test_wheel.py",
    "simulation/",
    "cli/test_demo.py",
    "docs/test_tutorial.py",
    "test_bigdata.py",
    "interop/test_all_at_once.py",
    "chaos/",
    "contrib/django/test_shop.py",
    "e2e/test_death.py",
    "server/test_server.py",
    "pool/main/",
    "docs/test_types.py",
    "typing/",
)
"""How the names of the longest tests begin, by how long they take: from a minute and some to ten seconds. What begins
alike stays in one process, as tests of a module share what it has built. mypy comes last: where ``make types`` runs
beside, it has by then filled the cache, without which the code of the pages takes ten times as long."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Turn the garbage collector off while tests are collected: it takes a tenth of the time and frees little."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, object, object]:
    """Let one process compile a new module, and what it imports, for all, which come to it at the same time."""
    with ExitStack() as stack:
        if isinstance(collector, pytest.Module) and is_new(collector.path):
            fcntl.flock(stack.enter_context(Path(__file__).open()), fcntl.LOCK_EX)
            if not is_new(collector.path):
                stack.close()
        return (yield)


def is_new(path: Path) -> bool:
    """Return whether no process has compiled a test module yet, as far as pytest would keep that."""
    name = f"{path.stem}.{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    return not (sys.dont_write_bytecode or Path(cache_from_source(path)).with_name(name).exists())


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, object, object]:
    """Let each process begin with its share of the longest tests: at the end, the others would wait for them.

    The first process alone reads what hypothesis looks for in all sources, which keeps that in files for the others.
    """
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = yield
    longest, others = list[tuple[int, pytest.Item]](), list[pytest.Item]()
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        if name.startswith(LONGEST):
            longest.append((next(n for n, begin in enumerate(LONGEST) if name.startswith(begin)), item))
        else:
            others.append(item)
    longest.sort(key=itemgetter(0))
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    left, order, rest = len(items), list[pytest.Item](), iter(others)
    for process in range(processes):
        size = left // (processes - process)  # as pytest-xdist divides them, each a row of neighbors
        own = [item for rank, item in longest if rank % processes == process]
        order += own + list(islice(rest, max(0, size - len(own))))
        left -= size
    items[:] = [*order, *rest]
    return result


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take all tests and modules out of the garbage collector's way: each collection would go through them, 0.2 s.

    To collect them first would take 0.6 s, and free a few megabytes.
    """
    gc.freeze()


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """Take back what a command that ran in this process has set: its stderr ends with its test."""
    logger = logging.getLogger("fastq")
    before = logger.handlers, logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate = before[:2]
    logger.setLevel(before[2])


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RedisServer]:
    """Run a server on a Unix socket; a test that changes its settings starts one of its own instead."""
    with redis_server() as server:
        yield server


@pytest.fixture
def db(shared_server: RedisServer) -> Iterator[Redis]:
    """Return a client of redis-py's own on the emptied server, to look behind the code under test."""
    with shared_server.client() as client:
        client.flushall()
        client.script_flush()
        # What an earlier test left open until it is collected must not be counted by this one.
        for kind in ("normal", "pubsub"):
            client.client_kill_filter(_type=kind, skipme=True)
        yield client


@pytest.fixture
def url(shared_server: RedisServer, db: Redis) -> str:
    """Return the URL of the emptied server."""
    return shared_server.url


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory from which modules are imported, and forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]

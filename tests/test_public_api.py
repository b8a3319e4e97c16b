"""Rules that hold for all public names at once."""

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fastq
import fastq.inspector
import fastq.testing
from fastq import AsyncClient, Client
from fastq.testing import AsyncInlineClient, InlineClient

PUBLIC: dict[str, Any] = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (fastq, fastq.testing)
    for name in module.__all__
    if name != "__version__"
}


def called_with_redis() -> Iterator[tuple[str, Callable[..., Any]]]:
    for path, found in PUBLIC.items():
        if callable(found) and not (isinstance(found, type) and issubclass(found, BaseException)):
            try:
                parameters = inspect.signature(found).parameters
            except (TypeError, ValueError):  # an alias of a type
                continue
            if "redis" in parameters:
                yield path, found


def redis_faults(found: Callable[..., Any]) -> list[str]:
    """Return what is wrong with a ``redis`` parameter: it follows required ones, may be named or not, and is None."""
    parameters = list(inspect.signature(found).parameters.values())
    redis = next(each for each in parameters if each.name == "redis")
    before = parameters[: parameters.index(redis)]
    return [
        fault
        for fault, is_so in {
            "is not None by default": redis.default is not None,
            "cannot be given both by position and by name": redis.kind is not redis.POSITIONAL_OR_KEYWORD,
            "does not come right after what is required": any(each.default is not each.empty for each in before),
        }.items()
        if is_so
    ]


def test_redis_is_one_parameter_everywhere() -> None:
    found = dict(called_with_redis())
    assert {"fastq.Client", "fastq.Semaphore", "fastq.Server", "fastq.PeriodicTaskManager"} <= found.keys()
    assert {"fastq.testing.drain", "fastq.testing.aggregate_groups", "fastq.AsyncInspector"} <= found.keys()
    assert {path: faults for path, each in found.items() if (faults := redis_faults(each))} == {}


def test_what_takes_redis_otherwise_is_found() -> None:
    def required(redis: str | None, scope: str) -> None: ...
    def late(scope: str, size: int = 1, redis: str | None = None) -> None: ...
    def named(*, redis: str | None = None) -> None: ...

    assert [bool(redis_faults(each)) for each in (required, late, named)] == [True] * 3


@pytest.mark.parametrize("path", PUBLIC)
def test_no_public_function_takes_a_redis_by_another_name(path: str) -> None:
    try:
        parameters = inspect.signature(PUBLIC[path]).parameters
    except (TypeError, ValueError):
        return
    assert parameters.keys().isdisjoint({"url", "uri", "redis_url", "connection", "broker"})


# Imports on first use


def typed_imports() -> dict[str, str]:
    """Return what ``fastq/__init__.py`` imports for checkers only: names and their modules."""
    tree = ast.parse(Path(str(fastq.__file__)).read_text("utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {
        alias.name: str(node.module)
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_what_is_imported_later_is_what_checkers_see() -> None:
    assert typed_imports() == fastq._LATER
    assert {*fastq._LATER, *fastq.errors.__all__, "__version__"} == set(fastq.__all__) <= set(dir(fastq))


def test_what_the_methods_of_inspectors_return_is_here_but_for_the_doctor() -> None:
    examination = {name for name in fastq.inspector.__all__ if ".doctor." in getattr(fastq.inspector, name).__module__}
    assert examination == {"Finding", "Level", "Repair", "Report"}
    assert set(fastq.inspector.__all__) - examination <= set(fastq.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fastq' has no attribute 'Clinet'"):
        fastq.Clinet  # type: ignore[attr-defined]  # noqa: B018 - a checker finds it, too


HEAVY = (
    "fastq.server",
    "fastq.pool",
    "fastq.inspector",
    "fastq.scheduler",
    "fastq.cron",
    "google",
)


def test_a_producer_does_not_import_the_server() -> None:
    code = "import sys, fastq; fastq.Client, fastq.Task, fastq.ServeMux; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "fastq.client" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []


@pytest.mark.parametrize(
    ("program", "unneeded"),
    [
        ("fastq.server.wiring.process, fastq.cli.worker", ("fastq.inspector", "fastq.client", "fastq.app")),
        (
            "fastq.pool.preloader.__main__, fastq.pool.child.run, fastq.worker.child.handler_runner",
            ("redis", "fastq.broker", "google"),
        ),
    ],
    ids=["main process", "children"],
)
def test_the_processes_of_a_worker_import_only_what_they_use(program: str, unneeded: tuple[str, ...]) -> None:
    code = f"import sys, {program}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.startswith(unneeded)] == []


def test_a_name_is_imported_when_it_is_asked_for() -> None:
    code = "import sys, fastq; assert 'fastq.server.server' not in sys.modules; from fastq import Server, Inspector"
    subprocess.run([sys.executable, "-c", f"{code}; assert fastq.Server is Server"], check=True)


FORKS_WHILE_A_THREAD_IMPORTS = """
import importlib.abc, os, signal, sys, threading
import fastq
begun, forking = threading.Event(), threading.Event()
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "fastq.client":
            begun.set()
            forking.wait()
sys.meta_path.insert(0, Slow())
os.register_at_fork(before=forking.set)
thread = threading.Thread(target=lambda: fastq.Client)
thread.start()
begun.wait()
pid = os.fork()
if not pid:
    signal.alarm(60)
    fastq.Client
    os._exit(0)
thread.join()
assert fastq.Client
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_waits_for_the_import_of_another_thread() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS_WHILE_A_THREAD_IMPORTS], check=True)


# Clients of tests


@pytest.mark.parametrize(("real", "inline"), [(Client, InlineClient), (AsyncClient, AsyncInlineClient)])
def test_an_inline_client_leaves_nothing_to_a_redis_that_it_has_not(real: type, inline: type) -> None:
    assert issubclass(inline, real)
    public = {name for name in vars(real) if not name.startswith("_")}
    assert {"enqueue", "enqueue_many", "ping", "close"} <= public
    waits = {"submit", "submit_many", "as_completed", "gather", "wait"}
    assert {name for name in public if name not in vars(inline)} == {"enqueue", "enqueue_many", "use"} | waits
    assert "_send" in vars(inline), "by which these put their tasks"
    for name in public:
        given, taken = (list(inspect.signature(getattr(cls, name)).parameters) for cls in (real, inline))
        assert taken == given, name

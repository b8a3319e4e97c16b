"""Imports point one way: from ends to people's names to the broker to facts. Checked on the source, for all modules.

Layers, processes and tiers are those of ARCHITECTURE.md. Imports for type checking count: knowing a name is depending
on it.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.code_lines import statements_in

ROOT = Path(__file__).parent.parent
PACKAGE = "fastq"

FACTS, BROKER, USED, APPS, ENDS = range(5)
# The folders; what lies beside them in the root is used by people, but for the modules below.
LAYERS: dict[str, int] = {
    # Facts, no I/O.
    **dict.fromkeys(("common", "cron", "log", "wire"), FACTS),
    # The only place that talks to Redis.
    "broker": BROKER,
    # What people use, and what runs it.
    **dict.fromkeys(("enqueueing", "handles", "inspector", "pool", "scheduler", "server", "worker"), USED),
    # Over the clients, the mux and the scheduler.
    "app": APPS,
    # Nothing of the above imports these.
    **dict.fromkeys(("cli", "contrib", "demo", "metrics", "planning", "terminal", "testing", "text", "web"), ENDS),
}
LAYERS_IN_THE_ROOT: dict[str, int] = {
    **dict.fromkeys(("_codec", "_ids", "_muxmatch", "_prioritizer", "_version", "_wire"), FACTS),
    "errors": FACTS,
    "__main__": ENDS,
}
# Folders within a folder, the lowest first: none imports one that comes after it.
ORDER = {
    "broker": ("transport", "operations", "inspect"),
    "pool": ("shared", "child", "preloader", "main"),
    "server": ("base", "inflight", "children", "actors", "wiring", "monitoring"),
    "worker": ("shared", "child"),
}
TIERS = ("core", "stable", "contrib")
# The package itself only gathers names from all layers.
TOP = 5

# Within layer 2: these do not import one another, nor do the schedulers import any but the client.
APART = frozenset({"client", "inspector", "pool", "server"})
IMPORT_NONE_OF_THEM = APART | {"scheduler"}
MEETING_POINTS = {
    # The server gives tasks to the pool and hears what came of them; nothing behind these two is its business.
    ("server", "pool.main.protocol"),
    # Made where a server is wired, and by its children; tasks go through the protocol.
    ("server.wiring.process", "pool.main.pool"),
    ("server.children", "pool.main.pool"),
    # Limits are a process', and the pool's children are to have those that the server was given.
    ("server.run", "pool.shared.descriptors"),
    # Memory is a process', too.
    ("server.run", "pool.shared._memory"),
    # The compiled side of the protocol: submissions and events as C sees them.
    ("server.inflight._processor", "pool.main.child_queue"),
    ("server.actors.aggregator", "client"),
    ("scheduler", "client"),
}

# Where a module runs, by its folder: in the main process of a server, in its children (the preloader becomes one by a
# fork), or in both. The main process imports nothing of a child: it runs no user code.
MAIN = ("pool.main", "server")
CHILDREN = ("pool.child", "pool.preloader", "worker.child")
SHARED = ("pool.shared", "worker.shared")

# The tiers of docs/upgrading.md: what lies in neither is core. Core imports core only, stable no contrib.
STABLE = ("__main__", "app", "cli", "inspector", "scheduler", "terminal", "testing", "text")
CONTRIB = (
    *("contrib", "demo", "metrics", "planning", "web"),
    # The commands of what is contrib.
    *(f"cli.{name}" for name in ("bench", "celery", "dash", "demo", "plan", "plan_records", "plan_report")),
)

# Ends that know Redis through the inspector only: what they can do, a program can.
THROUGH_THE_INSPECTOR = frozenset({"cli", "web"})

# What the web UI may import, besides facts and itself: any other Python program could be written like it.
OF_THE_WEB = (
    "app",
    "inspector",
    "client",
    "metrics",
    "task",
    "options",
    "cron",
    "info",
    "redis_url",
    "text",
)

# Servers, clients and what else people use ask nothing that inspectors ask; the ends may.
OF_INSPECTORS = "broker.inspect"

# Third-party packages that one of our packages alone may import.
RESERVED = {
    "redis": "broker",
    "asgiref": "contrib",
    "django": "contrib",  # the connections of Celery projects without its tasks, too
    "django_tasks": "contrib.django",
    "sqlalchemy": "contrib.sqlalchemy",
    "opentelemetry": "contrib.otel",
}


@dataclass(frozen=True)
class Import:
    """An import statement: the module, and the names taken from it, of which some may be modules, too."""

    line: int
    base: str
    names: tuple[str, ...] = ()
    level: int = 0
    in_function: bool = False


def python_imports(source: str) -> Iterator[Import]:
    """Find all imports of a Python source, in whatever block they stand."""

    def visit(node: ast.AST, in_function: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, in_function=in_function)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(node.lineno, node.module or "", names, node.level, in_function)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in statements_in(node):
            yield from visit(child, inside)

    return visit(ast.parse(source), False)


CYTHON_IMPORT = re.compile(
    r"""^(?P<indent>[ \t]*)
    (?: from[ \t]+(?P<dots>\.*)(?P<base>[\w.]*)[ \t]+c?import[ \t]+(?P<names>\([^)]*\)|[^\n]*)
      | c?import[ \t]+(?P<modules>[^\n]*) )""",
    re.MULTILINE | re.VERBOSE,
)
CYTHON_FUNCTION = re.compile(r"(?:async[ \t]+)?(?:def|cpdef|cdef(?!\s+class\b))\b[^=\n]*\(")
STRING_OR_COMMENT = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''|#[^\n]*", re.DOTALL)


def cython_imports(source: str) -> Iterator[Import]:
    """Find all imports and cimports of a Cython source."""
    source = STRING_OR_COMMENT.sub(lambda match: "\n" * match[0].count("\n"), source)
    for match in CYTHON_IMPORT.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        in_function = is_in_cython_function(source[: match.start()], len(match["indent"]))
        if match["modules"] is not None:
            for name in match["modules"].split(","):
                yield Import(line, name.split()[0], in_function=in_function)
        else:
            names = tuple(name.split()[0] for name in match["names"].strip("() \t\n").split(",") if name.strip())
            yield Import(line, match["base"], names, len(match["dots"]), in_function)


def is_in_cython_function(before: str, indent: int) -> bool:
    """Return whether a line that is indented so, after this text, stands in a function."""
    for line in reversed(before.splitlines()):
        text = line.lstrip()
        if text and len(line) - len(text) < indent:
            if CYTHON_FUNCTION.match(text):
                return True
            indent = len(line) - len(text)
    return False


def module_name(path: str) -> str:
    """Return the dotted name of the module that a file is part of; ``.pyx`` and ``.pxd`` are one."""
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> int:
    """Return the layer of a module, that of its folder where it lies in one; ``KeyError`` for an unknown folder."""
    parts = module.split(".")[1:]
    if not parts:
        return TOP
    if len(parts) == 1 and parts[0] not in LAYERS:
        return LAYERS_IN_THE_ROOT.get(parts[0], USED)
    return LAYERS[parts[0]]


def is_in_unknown_folder(module: str) -> bool:
    """Return whether a module lies in a folder that has no layer."""
    parts = module.split(".")[1:]
    return len(parts) > 1 and parts[0] not in LAYERS


def is_lower_folder(importer: str, imported: str) -> bool:
    """Return whether one folder of a package imports another that comes after it."""
    (_, package, *ours), (_, their_package, *theirs) = importer.split("."), imported.split(".")
    order = ORDER.get(package, ())
    if package != their_package or not ours or not theirs or ours[0] not in order or theirs[0] not in order:
        return False
    return order.index(ours[0]) < order.index(theirs[0])


def is_within(module: str, part: str) -> bool:
    return module == f"{PACKAGE}.{part}" or module.startswith(f"{PACKAGE}.{part}.")


def side_of(module: str) -> str | None:
    """Return where a module runs, as far as its folder says so."""
    sides = {"the main process": MAIN, "the children": CHILDREN, "both": SHARED}
    return next((side for side, folders in sides.items() if any(is_within(module, f) for f in folders)), None)


def is_in_wrong_process(importer: str, imported: str) -> bool:
    """Return whether a module of one process imports one of the other, or a shared one imports any of these."""
    ours, theirs = side_of(importer), side_of(imported)
    return None not in (ours, theirs) and theirs not in (ours, "both")


def tier_of(module: str) -> int:
    """Return 0 for core, 1 for stable, 2 for contrib."""
    if any(is_within(module, part) for part in CONTRIB):
        return 2
    return int(any(is_within(module, part) for part in STABLE))


def is_meeting_point(importer: str, imported: str) -> bool:
    return any(is_within(importer, ours) and is_within(imported, theirs) for ours, theirs in MEETING_POINTS)


def edge_fault(importer: str, imported: str) -> str | None:
    """Return what is wrong with one module of ours importing another, if anything is."""
    if layer_of(imported) > layer_of(importer):
        return f"layer {layer_of(importer)} must not import {imported}, which is of layer {layer_of(imported)}"
    if PACKAGE not in (importer, imported) and is_lower_folder(importer, imported):
        return f"{importer} must not import {imported}, whose folder comes after its own"
    if is_in_wrong_process(importer, imported):
        return f"{importer} runs in {side_of(importer)} and must not import {imported}, of {side_of(imported)}"
    ours, theirs = importer.split(".")[1:2], imported.split(".")[1:2]
    if theirs == ["broker"] and set(ours) & THROUGH_THE_INSPECTOR:
        return f"{importer} must ask fastq.inspector, not {imported}"
    if ours == ["web"] != theirs and layer_of(imported) > FACTS and not any(is_within(imported, n) for n in OF_THE_WEB):
        return f"{importer} must not import {imported}: the web UI uses inspector and client only"
    if is_within(imported, OF_INSPECTORS) and layer_of(importer) in (USED, APPS) and ours != ["inspector"]:
        return f"{importer} must not import {imported}: only the inspector and the ends do"
    apart = ours != theirs and set(ours) <= IMPORT_NONE_OF_THEM and set(theirs) <= APART and ours and theirs
    if apart and not is_meeting_point(importer, imported):
        return f"{importer} and {imported} must not know each other"
    our_tier, their_tier = tier_of(importer), tier_of(imported)
    if PACKAGE not in (importer, imported) and their_tier > our_tier:
        return f"{importer} must not import {imported}: {TIERS[our_tier]} imports no {TIERS[their_tier]}"
    return None


def targets(found: Import, modules: set[str]) -> set[str]:
    """Return the modules of ours that an import statement names."""
    if found.base.split(".")[0] != PACKAGE:
        return set()
    submodules = {f"{found.base}.{name}" for name in found.names} & modules
    # "from fastq import keys" needs nothing of fastq itself, but "from fastq import keys, Task" does.
    return submodules | ({found.base} if not found.names or len(submodules) < len(found.names) else set())


def import_faults(module: str, found: Import, modules: set[str]) -> Iterator[str]:
    """Yield what is wrong with an import statement."""
    if found.level:
        yield "imports of our own are absolute"
    reserved_for = RESERVED.get(found.base.split(".")[0])
    if reserved_for and not is_within(module, reserved_for):
        yield f"only {PACKAGE}.{reserved_for} may import {found.base}"
    for target in sorted(targets(found, modules)):
        if found.in_function:
            yield f"{target} is imported inside a function"
        elif is_in_unknown_folder(target):
            yield f"{target} has no layer: add it to LAYERS in {Path(__file__).name}"
        elif fault := edge_fault(module, target):
            yield fault


def faults(sources: Mapping[str, str]) -> list[str]:
    """Return all that is wrong with the imports of a package's files, given as path and text."""
    modules = {module_name(path) for path in sources}
    result = []
    edges: dict[str, set[str]] = {module: set() for module in modules}
    for path, source in sources.items():
        module = module_name(path)
        if is_in_unknown_folder(module):
            result.append(f"{path}: {module} has no layer: add it to LAYERS in {Path(__file__).name}")
            continue
        for found in python_imports(source) if path.endswith(".py") else cython_imports(source):
            result += [f"{path}:{found.line}: {fault}" for fault in import_faults(module, found, modules)]
            edges[module] |= targets(found, modules) - {module}
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        result.append(f"imports in a circle: {' <- '.join(error.args[1])}")
    return result


def package_sources() -> dict[str, str]:
    """Read every file of the package, by its path from the root of the project."""
    paths = [path for kind in ("py", "pyx", "pxd") for path in sorted((ROOT / PACKAGE).rglob(f"*.{kind}"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def test_imports_of_fastq_point_one_way() -> None:
    assert faults(package_sources()) == []


def test_the_files_are_found() -> None:
    assert {"fastq/__init__.py", "fastq/mux.py", "fastq/_muxmatch.pyx", "fastq/_wire.pxd"} <= set(package_sources())


# The check itself: each rule is broken once.


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"fastq/task.py": "from fastq.errors import FastqError"}, id="down"),
        pytest.param({"fastq/task.py": "from fastq.options import check"}, id="sideways"),
        pytest.param({"fastq/cli/main.py": "from fastq.server.server import Server"}, id="down two"),
        pytest.param({"fastq/server/a.py": "from fastq.server.b import B", "fastq/server/b.py": ""}, id="in a package"),
        pytest.param({"fastq/server/a.py": "from fastq.pool.main.protocol import Pool"}, id="server to protocol"),
        pytest.param(
            {"fastq/server/actors/aggregator.py": "from fastq.client import Client"}, id="aggregator to client"
        ),
        pytest.param({"fastq/scheduler.py": "from fastq.client import AsyncClient"}, id="scheduler to client"),
        pytest.param({"fastq/worker/child/a.py": "from fastq.pool.shared import runner"}, id="worker to pool"),
        pytest.param(
            {"fastq/broker/transport/open.py": "import redis.asyncio\nfrom redis import Redis"},
            id="redis in the broker",
        ),
        pytest.param(
            {"fastq/task.py": "from fastq.wire import keys", "fastq/wire/keys.py": ""}, id="module from the package"
        ),
        pytest.param({"fastq/cli/main.py": "def run():\n    import webbrowser"}, id="lazy import of another package"),
        pytest.param({"fastq/_ids.pyx": "from fastq._wire cimport (\n    Error, read\n)"}, id="cimport"),
        pytest.param(
            {"fastq/_ids.pyx": "def f(a):\n    pass\ntry:\n    from fastq.errors import E\nexcept E:\n    pass"},
            id="block in Cython",
        ),
        pytest.param(
            {"fastq/_wire.pyx": "from fastq._wire cimport Error", "fastq/_wire.pxd": ""}, id="own declarations"
        ),
        pytest.param({"fastq/_ids.pyx": "cdef class A(B):\n    from fastq.wire.keys import y"}, id="class in Cython"),
        pytest.param({"fastq/_ids.pyx": '"""Say:\n\nfrom fastq.cli import x\n"""\n# import redis'}, id="no code"),
    ],
)
def test_these_imports_are_as_they_should_be(files: dict[str, str]) -> None:
    assert faults(files) == []


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        pytest.param(
            {"fastq/errors.py": "\nfrom fastq.broker.transport.open import connect"},
            "fastq/errors.py:2: layer 0 must not import fastq.broker.transport.open, which is of layer 1",
            id="up",
        ),
        pytest.param(
            {"fastq/task.py": "if TYPE_CHECKING:\n    import fastq.cli.main"},
            "fastq/task.py:2: layer 2 must not import fastq.cli.main, which is of layer 4",
            id="up for type checking",
        ),
        pytest.param(
            {"fastq/task.py": "from fastq import __version__"},
            "fastq/task.py:1: layer 2 must not import fastq, which is of layer 5",
            id="the package itself",
        ),
        pytest.param(
            {"fastq/web/new.py": "from fastq.server import Server"},
            "fastq/web/new.py:1: fastq.web.new must not import fastq.server: the web UI uses inspector and client only",
            id="the web UI beside the inspector",
        ),
        pytest.param(
            {"fastq/wire/keys.py": "from fastq import broker", "fastq/broker/__init__.py": ""},
            "fastq/wire/keys.py:1: layer 0 must not import fastq.broker, which is of layer 1",
            id="a package from the package",
        ),
        pytest.param(
            {"fastq/_ids.pyx": "\n\nfrom fastq.task cimport Task"},
            "fastq/_ids.pyx:3: layer 0 must not import fastq.task, which is of layer 2",
            id="up in Cython",
        ),
        pytest.param(
            {"fastq/_wire.pxd": "cimport fastq.pool.shared.ring as ring"},
            "fastq/_wire.pxd:1: layer 0 must not import fastq.pool.shared.ring, which is of layer 2",
            id="up in a declaration file",
        ),
        *(
            pytest.param(
                {f"fastq/{importer}.py": f"import fastq.{imported}"},
                f"fastq/{importer}.py:1: fastq.{importer.replace('/', '.')} "
                f"and fastq.{imported} must not know each other",
                id=f"{importer} to {imported}",
            )
            for importer, imported in [
                ("server/server", "pool.main.config"),
                ("server/actors/janitor", "client"),
                ("server/server", "inspector.queues"),
                ("pool/shared/memory", "inspector.queues"),
                ("client", "server"),
                ("inspector/queues", "client"),
                ("scheduler", "inspector"),
            ]
        ),
        pytest.param(
            {"fastq/cli/dash/desk.py": "from fastq.broker.operation import Flow"},
            "fastq/cli/dash/desk.py:1: fastq.cli.dash.desk must ask fastq.inspector, not fastq.broker.operation",
            id="past the inspector",
        ),
        pytest.param(
            {"fastq/server/inflight/unknown.py": "from fastq.broker.inspect.servers import read_servers"},
            "fastq/server/inflight/unknown.py:1: fastq.server.inflight.unknown must not import "
            "fastq.broker.inspect.servers: only the inspector and the ends do",
            id="a server that inspects",
        ),
        pytest.param(
            {"fastq/server/wiring/process.py": "from fastq.worker.child.hooks import hooks_named"},
            "fastq/server/wiring/process.py:1: fastq.server.wiring.process runs in the main process "
            "and must not import fastq.worker.child.hooks, of the children",
            id="the main process and a child",
        ),
        pytest.param(
            {"fastq/pool/shared/layout.py": "import fastq.pool.main.seats"},
            "fastq/pool/shared/layout.py:1: fastq.pool.shared.layout must not import fastq.pool.main.seats, "
            "whose folder comes after its own",
            id="what both sides share and one of them",
        ),
        pytest.param(
            {"fastq/worker/shared/names.py": "import fastq.pool.child.run"},
            "fastq/worker/shared/names.py:1: fastq.worker.shared.names runs in both and must not import "
            "fastq.pool.child.run, of the children",
            id="what both processes share and one of them",
        ),
        pytest.param(
            {"fastq/cli/task.py": "import fastq.metrics.pace"},
            "fastq/cli/task.py:1: fastq.cli.task must not import fastq.metrics.pace: stable imports no contrib",
            id="contrib in a stable command",
        ),
        pytest.param(
            {"fastq/server/monitoring/health.py": "import fastq.app.app"},
            "fastq/server/monitoring/health.py:1: layer 2 must not import fastq.app.app, which is of layer 3",
            id="core and what is above it",
        ),
        pytest.param(
            {"fastq/task.py": "class A:\n    async def f(self):\n        if self:\n            from fastq import keys"},
            "fastq/task.py:4: fastq is imported inside a function",
            id="inside a function",
        ),
        pytest.param(
            {"fastq/_ids.pyx": "cdef int f(int a,\n           int b):\n    x = 1\n    from fastq.wire.keys import y"},
            "fastq/_ids.pyx:4: fastq.wire.keys is imported inside a function",
            id="inside a Cython function",
        ),
        pytest.param(
            {"fastq/client.py": "import redis.asyncio"},
            "fastq/client.py:1: only fastq.broker may import redis.asyncio",
            id="redis",
        ),
        pytest.param(
            {"fastq/_ids.pyx": "from redis import Redis"},
            "fastq/_ids.pyx:1: only fastq.broker may import redis",
            id="redis in Cython",
        ),
        pytest.param(
            {"fastq/server/a.py": "from .b import c"},
            "fastq/server/a.py:1: imports of our own are absolute",
            id="relative",
        ),
        pytest.param(
            {"fastq/_ids.pyx": "from . cimport _wire"},
            "fastq/_ids.pyx:1: imports of our own are absolute",
            id="relative in Cython",
        ),
        pytest.param(
            {"fastq/broker/transport/open.py": "from fastq.broker.inspect import tasks"},
            "fastq/broker/transport/open.py:1: fastq.broker.transport.open must not import fastq.broker.inspect, "
            "whose folder comes after its own",
            id="up between folders",
        ),
        pytest.param(
            {"fastq/novelty/x.py": ""},
            "fastq/novelty/x.py: fastq.novelty.x has no layer: add it to LAYERS in test_layers.py",
            id="a folder without a layer",
        ),
        pytest.param(
            {"fastq/task.py": "import fastq.novelty.x"},
            "fastq/task.py:1: fastq.novelty.x has no layer: add it to LAYERS in test_layers.py",
            id="an import without a layer",
        ),
    ],
)
def test_a_wrong_import_is_found_and_named(files: dict[str, str], fault: str) -> None:
    assert faults(files) == [fault]


def test_a_circle_is_found_across_files_and_languages() -> None:
    sources = {
        "fastq/_a.pyx": "from fastq.b import x",
        "fastq/b.py": "import fastq.c",
        "fastq/c.py": "from fastq import d",
        "fastq/d.pxd": "from fastq._a cimport y",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_a", "b", "c", "d"):
            patch.setitem(LAYERS_IN_THE_ROOT, name, FACTS)
        [fault] = faults(sources)
    assert fault.startswith("imports in a circle: ")
    assert all(module in fault for module in ("fastq._a", "fastq.b", "fastq.c", "fastq.d"))

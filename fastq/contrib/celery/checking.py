"""The uses of Celery in the source of a project, found without importing it."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fastq.contrib.celery.uses import (
    OF_APP,
    OF_APP_ARGUMENTS,
    OF_CALL,
    OF_DECORATOR,
    OF_IMPORT,
    OF_REQUEST,
    OF_RESULT,
    OF_RETRY,
    OF_SIGNATURE,
    OF_TASK,
    UNKNOWN,
    Level,
    Use,
)

__all__ = ["Found", "files_of", "uses_in"]

_NO_PROJECT: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
_DECORATORS: Final = frozenset({"shared_task", "task"})
_MAKE_RESULTS: Final = frozenset({"AsyncResult", "apply_async", "delay", "send_task"})
_SEND: Final = frozenset({"apply_async", "delay"})


class Found(NamedTuple):
    """A use of Celery: its place, its name, and how far it is supported."""

    path: str
    line: int
    what: str
    level: Level
    note: str


def files_of(app: str, directory: Path) -> Sequence[Path]:
    """Return the Python files of a directory, a file, or the package of a dotted name below ``directory``.

    ``FileNotFoundError`` if there is none.
    """
    place = directory / app
    if not place.exists():
        top = app.partition(":")[0].partition(".")[0]
        place = next((each for each in (directory / top, directory / f"{top}.py") if each.exists()), place)
    if place.is_file():
        return [place]
    files = [path for path in sorted(place.rglob("*.py")) if not _is_outside(path.relative_to(place))]
    if not files:
        raise FileNotFoundError(f"{app!r} is no directory, file or package with Python files in {directory}")
    return files


def _is_outside(path: Path) -> bool:
    return any(part in _NO_PROJECT or part.startswith(".") for part in path.parts)


def uses_in(files: Sequence[Path], directory: Path) -> list[Found]:
    """Return the uses of Celery in these files; ``SyntaxError`` for one that is not Python."""
    trees = {path: ast.parse(path.read_bytes(), str(path)) for path in files}
    names = _Names()
    for tree in trees.values():
        names.add(tree)
    found: list[Found] = []
    for path, tree in trees.items():
        shown = str(path.relative_to(directory)) if path.is_relative_to(directory) else str(path)
        uses = {(line, what, use) for node in ast.walk(tree) for line, what, use in _uses_of(node, names)}
        found += [Found(shown, line, what, *use) for line, what, use in sorted(uses, key=lambda use: use[:2])]
    return found


class _Names:
    """The names of a project's apps, tasks and results."""

    def __init__(self) -> None:
        self.apps: set[str] = set()
        self.tasks: set[str] = set()
        self.results: set[str] = set()

    def add(self, tree: ast.AST) -> None:
        """Add those of a file."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                targets = {target.id for target in node.targets if isinstance(target, ast.Name)}
                made_by = _name(node.value.func)
                if made_by == "Celery":
                    self.apps |= targets
                elif made_by in _MAKE_RESULTS:
                    self.results |= targets
            elif isinstance(node, ast.FunctionDef) and any(_decorator(each) for each in node.decorator_list):
                self.tasks.add(node.name)


def _uses_of(node: ast.AST, names: _Names) -> Iterator[tuple[int, str, Use]]:
    if isinstance(node, ast.ImportFrom):
        yield from _imported(node)
    elif isinstance(node, ast.Import):
        yield from (
            (node.lineno, f"import {each.name}", Use(Level.UNSUPPORTED, "import its names: from … import …"))
            for each in node.names
            if each.name.partition(".")[0] == "celery"
        )
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _decorated(node)
    elif isinstance(node, ast.Call):
        yield from _called(node, names)
    elif isinstance(node, ast.Attribute):
        yield from _attribute(node, names)


def _imported(node: ast.ImportFrom) -> Iterator[tuple[int, str, Use]]:
    module = node.module or ""
    if node.level or module.partition(".")[0] != "celery":
        return
    for each in node.names:
        fallback = OF_IMPORT["celery"]["signals"] if module == "celery.signals" else UNKNOWN
        use = OF_IMPORT.get(module, {}).get(each.name, fallback)
        yield node.lineno, f"from {module} import {each.name}", use


def _decorated(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str, Use]]:
    for decorator in node.decorator_list:
        if name := _decorator(decorator):
            yield decorator.lineno, f"@{name}", Use(Level.WORKS)
            if isinstance(node, ast.AsyncFunctionDef):
                note = "a coroutine: use @app.task of a fastq.App"
                yield decorator.lineno, f"@{name} async def", Use(Level.UNSUPPORTED, note)
            if isinstance(decorator, ast.Call):
                yield from _options(decorator, f"@{name}", OF_DECORATOR)
                if any(each.arg == "bind" for each in decorator.keywords) and node.args.args:
                    yield from _bound(node, node.args.args[0].arg)


def _bound(function: ast.AST, me: str) -> Iterator[tuple[int, str, Use]]:
    """Yield the uses of the task in its own function, where it has this name."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{me}.retry":
            yield from _retried(node, me)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == me:
            yield node.lineno, f"{me}.{node.attr}", OF_TASK.get(node.attr, UNKNOWN)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == f"{me}.request":
            yield node.lineno, f"{me}.request.{node.attr}", OF_REQUEST.get(node.attr, UNKNOWN)


def _decorator(node: ast.expr) -> str:
    """Return the name of a decorator that makes a task, "" of another one."""
    called = node.func if isinstance(node, ast.Call) else node
    name = _name(called)
    return ast.unparse(called) if name in _DECORATORS and (name != "task" or isinstance(called, ast.Attribute)) else ""


def _retried(node: ast.Call, task: str) -> Iterator[tuple[int, str, Use]]:
    yield from _options(node, f"{task}.retry", OF_RETRY)
    if node.args:
        yield node.lineno, f"{task}.retry(args, …)", OF_RETRY["args"]


def _called(node: ast.Call, names: _Names) -> Iterator[tuple[int, str, Use]]:
    name = _name(node.func)
    if name == "Celery":
        yield from _options(node, "Celery", OF_APP_ARGUMENTS)
    elif name in ("apply_async", "send_task") and isinstance(node.func, ast.Attribute):
        yield from _options(node, name, OF_CALL)
    elif name == "set" and isinstance(node.func, ast.Attribute) and _is_signature(node.func.value, names):
        yield from _options(node, "set", OF_CALL)
    elif name == "retry" and isinstance(node.func, ast.Attribute) and _name(node.func.value) in names.tasks:
        yield from _retried(node, ast.unparse(node.func.value))


def _options(node: ast.Call, what: str, uses: Mapping[str, Use]) -> Iterator[tuple[int, str, Use]]:
    for keyword in node.keywords:
        if keyword.arg is None:
            note = "see what the mapping has"
            yield node.lineno, f"{what}(**{ast.unparse(keyword.value)})", Use(Level.DIFFERS, note)
        else:
            yield keyword.value.lineno, f"{what}({keyword.arg}=…)", uses.get(keyword.arg, UNKNOWN)


def _attribute(node: ast.Attribute, names: _Names) -> Iterator[tuple[int, str, Use]]:
    owner, name = node.value, node.attr
    if isinstance(owner, ast.Name) and owner.id in names.apps:
        yield node.lineno, f"{owner.id}.{name}", OF_APP.get(name, UNKNOWN)
    elif _is_signature(owner, names):
        yield node.lineno, f"signature.{name}", OF_SIGNATURE.get(name, UNKNOWN)
    elif _is_result(owner, names):
        yield node.lineno, f"AsyncResult.{name}", OF_RESULT.get(name, UNKNOWN)
    elif not isinstance(owner, ast.Call) and (name in _SEND or (_name(owner) in names.tasks and name in OF_TASK)):
        yield node.lineno, f"{ast.unparse(owner)}.{name}", OF_TASK[name]


def _is_result(node: ast.expr, names: _Names) -> bool:
    if isinstance(node, ast.Call):
        return _name(node.func) in _MAKE_RESULTS
    return isinstance(node, ast.Name) and node.id in names.results


def _is_signature(node: ast.expr, names: _Names) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("s", "si")
        and _name(node.func.value) in names.tasks
    )


def _name(node: ast.expr) -> str:
    """Return the last part of a dotted name, "" of anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""

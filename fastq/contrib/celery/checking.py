"""The uses of Celery in the source of a project, found without importing it."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fastq.contrib.celery.scopes import Kind, Project, Scope, decorator_of, name_of, nodes_of
from fastq.contrib.celery.uses import (
    OF_APP,
    OF_APP_ARGUMENTS,
    OF_CALL,
    OF_DECORATOR,
    OF_IMPORT,
    OF_PACKAGE,
    OF_REQUEST,
    OF_RESULT,
    OF_RETRY,
    OF_SETTING,
    OF_SIGNATURE,
    OF_TASK,
    UNKNOWN,
    Level,
    Use,
)

_NO_PROJECT: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
_SEND: Final = frozenset({"apply_async", "delay"})


class Found(NamedTuple):
    """A use of Celery: its place in the source, its name, and how far it is supported."""

    path: str
    line: int
    what: str
    level: Level
    note: str


def files_of(app: str, directory: Path) -> Sequence[Path]:
    """Return the Python files that ``app`` names below ``directory``: those of a directory or package, or one file.
    ``app`` may also be dotted, as ``shop.tasks:app``.

    ``FileNotFoundError`` if there are no such files.
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
    """Return the uses of Celery in these files; ``SyntaxError`` for a file that is not Python."""
    trees = {path: ast.parse(path.read_bytes(), str(path)) for path in files}
    project = Project(trees.values())
    found: list[Found] = []
    for path, tree in trees.items():
        shown = str(path.relative_to(directory)) if path.is_relative_to(directory) else str(path)
        uses = {each for node, scope in nodes_of(tree, project) for each in _uses_of(node, scope)}
        found += [Found(shown, line, what, *use) for line, what, use in sorted(uses, key=lambda use: use[:2])]
    return found


def _uses_of(node: ast.AST, scope: Scope) -> Iterator[tuple[int, str, Use]]:
    if isinstance(node, ast.ImportFrom):
        yield from _imported(node)
    elif isinstance(node, ast.Import):
        for each in node.names:
            if each.name.partition(".")[0] == "celery":
                yield node.lineno, f"import {each.name}", Use(Level.UNSUPPORTED, "import its names: from … import …")
            elif (use := _of_package(each.name)) is not None:
                yield node.lineno, f"import {each.name}", use
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        yield from _assigned(node)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _decorated(node)
    elif isinstance(node, ast.Call):
        yield from _called(node, scope)
    elif isinstance(node, ast.Attribute):
        yield from _attribute(node, scope)


def _imported(node: ast.ImportFrom) -> Iterator[tuple[int, str, Use]]:
    module = node.module or ""
    if not node.level and (use := _of_package(module)) is not None:
        yield from ((node.lineno, f"from {module} import {each.name}", use) for each in node.names)
    if node.level or module.partition(".")[0] != "celery":
        return
    for each in node.names:
        fallback = OF_IMPORT["celery"]["signals"] if module == "celery.signals" else UNKNOWN
        use = OF_IMPORT.get(module, {}).get(each.name, fallback)
        yield node.lineno, f"from {module} import {each.name}", use


def _of_package(module: str) -> Use | None:
    """Return the ``Use`` for a module whose package belongs to Celery, None for any other module."""
    return next((use for name, use in OF_PACKAGE.items() if f"{module}.".startswith(f"{name}.")), None)


def _assigned(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[tuple[int, str, Use]]:
    """Yield the settings of Celery in a Django project, and the apps of Celery in INSTALLED_APPS."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        name = name_of(target)
        if name.startswith(("CELERY_", "CELERYBEAT_")):
            yield node.lineno, name, _setting(name.partition("_")[2].lower())
        elif name == "INSTALLED_APPS" and node.value is not None:
            for each in ast.walk(node.value):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    use = _of_package(each.value)
                    if use is not None:
                        yield each.lineno, f"INSTALLED_APPS: {each.value}", use


def _setting(name: str) -> Use:
    """Return the ``Use`` for a setting, given its name in lower case and without a prefix."""
    return OF_SETTING.get(name, OF_APP["conf"])


def _is_conf(node: ast.expr, scope: Scope) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "conf" and scope.kind_of(node.value) is Kind.APP


def _configured(node: ast.Call) -> Iterator[tuple[int, str, Use]]:
    """Yield the settings in a call of ``app.conf.update``."""
    for keyword in node.keywords:
        if keyword.arg is not None:
            yield keyword.value.lineno, f"app.conf: {keyword.arg}", _setting(keyword.arg)
    for argument in node.args:
        for key in argument.keys if isinstance(argument, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.lineno, f"app.conf: {key.value}", _setting(key.value)


def _decorated(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str, Use]]:
    for decorator in node.decorator_list:
        if name := decorator_of(decorator):
            yield decorator.lineno, f"@{name}", Use(Level.WORKS)
            if isinstance(node, ast.AsyncFunctionDef):
                note = "a coroutine: use @app.task of a fastq.App"
                yield decorator.lineno, f"@{name} async def", Use(Level.UNSUPPORTED, note)
            if isinstance(decorator, ast.Call):
                yield from _options(decorator, f"@{name}", OF_DECORATOR)
                if any(each.arg == "bind" for each in decorator.keywords) and node.args.args:
                    yield from _bound(node, node.args.args[0].arg)


def _bound(function: ast.AST, me: str) -> Iterator[tuple[int, str, Use]]:
    """Yield the uses of a bound task inside its function, where the parameter ``me`` is the task."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{me}.retry":
            yield from _retried(node, me)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == me:
            yield node.lineno, f"{me}.{node.attr}", OF_TASK.get(node.attr, UNKNOWN)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == f"{me}.request":
            yield node.lineno, f"{me}.request.{node.attr}", OF_REQUEST.get(node.attr, UNKNOWN)


def _retried(node: ast.Call, task: str) -> Iterator[tuple[int, str, Use]]:
    yield from _options(node, f"{task}.retry", OF_RETRY)
    if node.args:
        yield node.lineno, f"{task}.retry(args, …)", OF_RETRY["args"]


def _called(node: ast.Call, scope: Scope) -> Iterator[tuple[int, str, Use]]:
    name = name_of(node.func)
    if name == "update" and isinstance(node.func, ast.Attribute) and _is_conf(node.func.value, scope):
        yield from _configured(node)
    elif name == "Celery":
        yield from _options(node, "Celery", OF_APP_ARGUMENTS)
    elif name in ("apply_async", "send_task") and isinstance(node.func, ast.Attribute):
        yield from _options(node, name, OF_CALL)
    elif name == "set" and isinstance(node.func, ast.Attribute) and _is_signature(node.func.value, scope):
        yield from _options(node, "set", OF_CALL)
    elif name == "retry" and isinstance(node.func, ast.Attribute) and scope.kind_of(node.func.value) is Kind.TASK:
        yield from _retried(node, ast.unparse(node.func.value))


def _options(node: ast.Call, what: str, uses: Mapping[str, Use]) -> Iterator[tuple[int, str, Use]]:
    for keyword in node.keywords:
        if keyword.arg is None:
            note = "see what the mapping has"
            yield node.lineno, f"{what}(**{ast.unparse(keyword.value)})", Use(Level.DIFFERS, note)
        else:
            yield keyword.value.lineno, f"{what}({keyword.arg}=…)", uses.get(keyword.arg, UNKNOWN)


def _attribute(node: ast.Attribute, scope: Scope) -> Iterator[tuple[int, str, Use]]:
    owner, name = node.value, node.attr
    kind = scope.kind_of(owner)
    if _is_conf(owner, scope):
        yield node.lineno, f"{ast.unparse(owner)}.{name}", _setting(name)
    elif isinstance(owner, ast.Name) and kind is Kind.APP:
        yield node.lineno, f"{owner.id}.{name}", OF_APP.get(name, UNKNOWN)
    elif _is_signature(owner, scope):
        yield node.lineno, f"signature.{name}", OF_SIGNATURE.get(name, UNKNOWN)
    elif kind is Kind.RESULT:
        yield node.lineno, f"AsyncResult.{name}", OF_RESULT.get(name, UNKNOWN)
    elif not isinstance(owner, ast.Call) and (name in _SEND or (kind is Kind.TASK and name in OF_TASK)):
        yield node.lineno, f"{ast.unparse(owner)}.{name}", OF_TASK[name]


def _is_signature(node: ast.expr, scope: Scope) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("s", "si")
        and scope.kind_of(node.func.value) is Kind.TASK
    )

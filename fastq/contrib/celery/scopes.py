"""Find what each name in a file means, scope by scope: a Celery app, a task, a result, or something else."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, TypeAlias

_DECORATORS: Final = frozenset({"shared_task", "task"})
_MAKE_RESULTS: Final = frozenset({"AsyncResult", "apply_async", "delay", "send_task"})
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_OF_THEIR_OWN: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Kind(Enum):
    """What a name means."""

    APP = "app"
    TASK = "task"
    RESULT = "result"
    IMPORTED = "imported"
    OTHER = "other"


class Project:
    """The names of the apps and the tasks of all files."""

    def __init__(self, trees: Iterable[ast.AST]) -> None:
        self.apps: set[str] = set()
        self.tasks: set[str] = set()
        for tree in trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    if name_of(node.value.func) == "Celery":
                        self.apps |= {target.id for target in node.targets if isinstance(target, ast.Name)}
                elif isinstance(node, ast.FunctionDef) and any(map(decorator_of, node.decorator_list)):
                    self.tasks.add(node.name)

    def kind_of(self, name: str) -> Kind | None:
        """Return what a name imported from another file means: APP, TASK, or None for anything else."""
        return Kind.APP if name in self.apps else Kind.TASK if name in self.tasks else None


class Scope:
    """The names that a module, a class or a function binds; a name bound to several kinds is OTHER."""

    def __init__(self, project: Project, outer: "Scope | None" = None) -> None:
        self.project = project
        self.outer = outer
        self._kinds: dict[str, Kind] = {}

    def bind(self, name: str, kind: Kind) -> None:
        """Record what a name means."""
        self._kinds[name] = kind if self._kinds.get(name, kind) is kind else Kind.OTHER

    def find(self, name: str) -> Kind | None:
        """Return what a name means in this scope; an unbound name may come from an ``import *``."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._kinds:
                return scope._kinds[name]
            scope = scope.outer
        return self.project.kind_of(name)

    def kind_of(self, node: ast.expr) -> Kind | None:
        """Return what an expression evaluates to, None if that is unknown."""
        if isinstance(node, ast.Name):
            return self.find(node.id)
        if isinstance(node, ast.Call):
            made_by = name_of(node.func)
            return Kind.APP if made_by == "Celery" else Kind.RESULT if made_by in _MAKE_RESULTS else None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            is_module = isinstance(node.value, ast.Attribute) or self.find(node.value.id) is Kind.IMPORTED
            return self.project.kind_of(node.attr) if is_module and self._root(node) is Kind.IMPORTED else None
        return None

    def _root(self, node: ast.expr) -> Kind | None:
        while isinstance(node, ast.Attribute):
            node = node.value
        return self.find(node.id) if isinstance(node, ast.Name) else None

    def fill(self, body: Sequence[ast.AST]) -> None:
        """Bind the names that these statements bind, without names inside functions and classes."""
        for node in body:
            self._bind_by(node)
            if not isinstance(node, _OF_THEIR_OWN):
                self.fill([*ast.iter_child_nodes(node)])

    def _bind_by(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            kind = None if node.value is None else self.kind_of(node.value)
            for target in targets:
                if isinstance(target, ast.Name):
                    self.bind(target.id, kind or Kind.OTHER)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for each in node.names:
                found = self.project.kind_of(each.name) if isinstance(node, ast.ImportFrom) else None
                self.bind(each.asname or each.name.partition(".")[0], found or Kind.IMPORTED)
        elif isinstance(node, ast.FunctionDef) and any(map(decorator_of, node.decorator_list)):
            self.bind(node.name, Kind.TASK)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.bind(node.name, Kind.OTHER)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension | ast.NamedExpr):
            self._bind_all(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind_all(node.optional_vars)

    def _bind_all(self, target: ast.expr) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.bind(node.id, Kind.OTHER)


def nodes_of(tree: ast.Module, project: Project) -> Iterator[tuple[ast.AST, Scope]]:
    """Yield all nodes of a file, each with the scope in which it is evaluated."""
    scope = Scope(project)
    scope.fill(tree.body)
    yield from _walk(tree, scope, scope)


def _walk(node: ast.AST, scope: Scope, around: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """Walk a node. ``around`` is the scope that functions in the node see, which is never the scope of a class."""
    yield node, scope
    inner: Sequence[ast.AST] = []
    if isinstance(node, _Function):
        body: Sequence[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else node.body
        inside = Scope(scope.project, around)
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                inside.bind(argument.arg, Kind.OTHER)
        inner, own, seen = body, inside, inside
    elif isinstance(node, ast.ClassDef):
        inner, own, seen = node.body, Scope(scope.project, around), around
    if inner:
        own.fill(inner)
    for child in ast.iter_child_nodes(node):
        if child in inner:
            yield from _walk(child, own, seen)
        else:
            yield from _walk(child, scope, around)


def decorator_of(node: ast.expr) -> str:
    """Return the name of a decorator that makes a task, "" for any other decorator."""
    called = node.func if isinstance(node, ast.Call) else node
    name = name_of(called)
    return ast.unparse(called) if name in _DECORATORS and (name != "task" or isinstance(called, ast.Attribute)) else ""


def name_of(node: ast.expr) -> str:
    """Return the last part of a dotted name, "" for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""

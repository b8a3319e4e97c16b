"""Write signatures and docstrings into the pages of docs/api, between their marks; ``--check`` only says what differs.

A mark is ``<!-- api: fastq.Client -->``: what follows it, as far as ``<!-- end -->``, is written here. A module stands
for all its names; ``brief`` behind a name leaves out what its methods say, ``given`` how it is made. Signatures are
read from the source, as each version of Python would show annotations differently.
"""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fastq.inspector.driver import AsyncDriver

PAGES = Path(__file__).parent / "api"
MARK = re.compile(r"(<!-- api: ([\w.]+) ?(brief|given|) -->\n).*?(<!-- end -->)", re.DOTALL)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> int:
    """Bring the pages up to date, or say which are not."""
    stale = []
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text()
        fresh = MARK.sub(lambda found: f"{found[1]}\n{entry(found[2], found[3])}\n{found[4]}", text)
        if fresh != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(fresh)
    sys.stdout.write("".join(f"{name}: {'written' if '--check' not in sys.argv else 'stale'}\n" for name in stale))
    return int("--check" in sys.argv and bool(stale))


def entry(path: str, how: str = "") -> str:
    """Return what a page says of a module or of one of its names; ``how`` is brief, given or neither."""
    module, name = resolve(path)
    if not name:
        names = [each for each in module.__all__ if isinstance(find(module, each)[0], Function | ast.ClassDef)]
        return "\n".join(entry(f"{module.__name__}.{each}") for each in names)
    node, home = find(module, name)
    found = getattr(module, name)
    match node:
        case ast.ClassDef():
            return "\n".join(class_lines(node, found, how))
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return "\n".join([f"### `{signature(node, name)}`", "", *said(found, node), ""])
        case _:
            return "\n".join([f"### `{name}`", "", f"    {ast.unparse(node)}", "", *note_below(home, node), ""])


def resolve(path: str) -> tuple[ModuleType, str]:
    """Return the module that a path begins with, and the name in it, "" for the module itself."""
    try:
        return importlib.import_module(path), ""
    except ModuleNotFoundError:
        head, _, name = path.rpartition(".")
        return importlib.import_module(head), name


@cache
def tree(module: str) -> ast.Module:
    """Return the source of a module, of a compiled one its stub."""
    file = Path(str(importlib.import_module(module).__file__))
    if file.suffix != ".py":
        file = file.with_name(file.name.split(".")[0] + ".pyi")
    return ast.parse(file.read_text())


def find(module: ModuleType, name: str) -> tuple[ast.stmt, ast.Module]:
    """Return the statement that defines a name, and the module where that is, which may be another one."""
    home = getattr(getattr(module, name), "__module__", None)
    for place in dict.fromkeys((module.__name__, home if str(home).startswith("fastq") else module.__name__)):
        source = tree(place)
        for node in [node for each in source.body for node in (each.body if isinstance(each, ast.If) else [each])]:
            if name in names_of(node):
                return node, source
            if isinstance(node, ast.Try | ast.ImportFrom) and name in imported(node):
                return find(importlib.import_module(imported(node)[name]), name)
    raise LookupError(f"{module.__name__}.{name} is defined nowhere")


def names_of(node: ast.stmt) -> list[str]:
    """Return what a statement defines."""
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
    return []


def imported(node: ast.stmt) -> dict[str, str]:
    """Map the names that a statement imports to where they come from."""
    return {
        alias.name: str(each.module)
        for each in ast.walk(node)
        if isinstance(each, ast.ImportFrom) and str(each.module).startswith("fastq")
        for alias in each.names
    }


# Classes


def class_lines(node: ast.ClassDef, found: Any, how: str) -> Iterator[str]:
    """Say what a class is and has."""
    made = next((made for _, source, _ in sources_of(found) if (made := constructor(source))), None)
    is_error = issubclass(found, BaseException)
    if is_error:
        title = f"{node.name}({', '.join(public_bases(found))})"
    elif made is None or how == "given" or "NoReturn" in ast.unparse(made):
        title = node.name
    else:
        title = signature(made, node.name, bound=True).removesuffix(" -> None")
    yield from (f"### `{title}`", "", *said(found, node), "")
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign | ast.Assign) and public(names_of(each))]
    if is_error:
        attributes = attributes_of(found)
        if attributes:
            yield from (f"Attributes: {', '.join(f'`{name}`' for name in attributes)}.", "")
        return
    yield from field_lines(fields)
    yield from method_lines(found, is_brief=how == "brief")


def public_bases(found: type) -> Iterator[str]:
    """Return the names of a class' bases, in the place of private ones those of theirs."""
    for base in found.__bases__:
        if base.__name__.startswith("_"):
            yield from public_bases(base)
        else:
            yield base.__name__


def sources_of(found: type) -> Iterator[tuple[type, ast.ClassDef, ast.Module]]:
    """Return the sources of a class and of its bases in fastq."""
    for each in found.__mro__:
        if each.__module__.startswith("fastq"):
            home = tree(each.__module__)
            node = next(n for n in home.body if isinstance(n, ast.ClassDef) and n.name == each.__name__)
            yield each, node, home


def constructor(node: ast.ClassDef) -> Function | None:
    """Return a class' own ``__init__``."""
    for each in node.body:
        if isinstance(each, Function) and each.name == "__init__":
            return each
    return None


def attributes_of(found: type[BaseException]) -> list[str]:
    """Return what an error carries: the parameters of its ``__init__``, unless that is Python's own."""
    if not inspect.isfunction(found.__init__):
        return []
    return [name for name in inspect.signature(found).parameters if name not in ("args", "kwargs")]


def field_lines(fields: Sequence[ast.stmt]) -> Iterator[str]:
    """Say which fields a record has; those of ``ServerConfig`` with what each is for."""
    settings = [each for each in fields if isinstance(each, ast.AnnAssign) and "_setting(" in ast.unparse(each)]
    if settings:
        yield from ("| field | type | default | what |", "|---|---|---|---|")
        yield from (setting_line(each) for each in settings)
        yield ""
    elif fields:
        plain = [ast.unparse(each).partition(" = field(")[0] for each in fields]
        yield from (
            f"{'Values' if isinstance(fields[0], ast.Assign) else 'Fields'}: "
            + ", ".join(f"`{each}`" for each in plain)
            + ".",
            "",
        )


def setting_line(node: ast.AnnAssign) -> str:
    """Say a line of the table of settings."""
    assert isinstance(node.value, ast.Call)
    _, default, text, *_ = (*node.value.args,)
    value = ast.unparse(default.body if isinstance(default, ast.Lambda) else default)
    value = "as many as processors" if value == "_one_a_cpu" else f"`{value}`"
    what = ast.literal_eval(text).replace("*", r"\*")
    kind = ast.unparse(node.annotation).replace("|", r"\|")  # a bar ends a cell, also within code
    return f"| `{ast.unparse(node.target)}` | `{kind}` | {value} | {what} |"


def method_lines(found: type, *, is_brief: bool) -> Iterator[str]:
    """Say what public methods and properties a class has, those of its bases in fastq too."""
    seen: set[str] = set()
    is_async = issubclass(found, AsyncDriver)
    for each, node, home in sources_of(found):
        for statement in node.body:
            method = method_of(statement, home, is_async=is_async)
            if method is None or not public([method.name]) or method.name in seen or is_overload(method):
                continue
            seen.add(method.name)
            if isinstance(statement, ast.Assign) and not is_brief:
                yield from (f"`{signature(method, method.name, bound=True)}`: {ast.get_docstring(method)}", "")
            else:
                yield from one_method(method, getattr(each, method.name, None), is_brief=is_brief)
    yield ""


def method_of(statement: ast.stmt, home: ast.Module, *, is_async: bool) -> Function | None:
    """Return the method that a statement of a class defines; of an inspector's the function that its driver has."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="alias")) as call):
            flow, _, text = call.args
            source = next(n for n in home.body if isinstance(n, ast.FunctionDef) and n.name == ast.unparse(flow))
            made = deepcopy(source)
            made.name, made.body = name, [ast.Expr(text)]
            del made.args.args[1]
            return driven(made, is_async=is_async)
        case ast.FunctionDef(decorator_list=[ast.Name(id="action" | "operation" | "stream")]):
            return driven(deepcopy(statement), is_async=is_async)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return statement
    return None


def driven(method: ast.FunctionDef, *, is_async: bool) -> Function:
    """Return a method that is defined as a flow as it is called: it returns what the flow returns, or an iterator."""
    assert isinstance(method.returns, ast.Subscript)
    if ast.unparse(method.returns.value) == "Stream":
        method.returns.value = ast.Name("AsyncIterator" if is_async else "Iterator")
        return method
    method.returns = method.returns.slice
    return ast.AsyncFunctionDef(**vars(method)) if is_async else method


def is_overload(node: Function) -> bool:
    """Return whether it is a signature alone, for type checkers."""
    return any(ast.unparse(each).endswith("overload") for each in node.decorator_list)


def one_method(node: Function, found: Any, *, is_brief: bool) -> Iterator[str]:
    """Say what a method is."""
    decorators = [ast.unparse(each) for each in node.decorator_list]
    if any(each.endswith("setter") for each in decorators):
        return
    is_property = node.returns and any(each.endswith("property") for each in decorators)
    text = (
        f"{node.name}: {ast.unparse(node.returns)}"
        if is_property and node.returns
        else signature(node, node.name, bound=True)
    )
    lines = said(found, node)
    if is_brief or not lines:
        yield f"- `{text}`"
    else:
        yield from (f"#### `{text}`", "", *lines, "")


# Words


def public(names: Sequence[str]) -> bool:
    """Tell whether the names are for users."""
    return bool(names) and not names[0].startswith("_")


def signature(node: Function, name: str, *, bound: bool = False) -> str:
    """Return how a function is called; ``bound`` leaves out self."""
    given = list(parameters(node.args))
    if bound and not any(ast.unparse(each) == "staticmethod" for each in node.decorator_list):
        given = given[1:]
    start = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{start}{name}({', '.join(given)}){returns}"


def parameters(arguments: ast.arguments) -> Iterator[str]:
    """Yield the parameters of a function as they are written."""
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    for number, (argument, default) in enumerate(zip(plain, defaults, strict=True), 1):
        yield parameter(argument, default)
        if number == len(arguments.posonlyargs) and number > 1:
            yield "/"
    if arguments.vararg:
        yield f"*{parameter(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield parameter(argument, default)
    if arguments.kwarg:
        yield f"**{parameter(arguments.kwarg, None)}"


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    """Return one parameter."""
    typed = f"{argument.arg}: {ast.unparse(argument.annotation)}" if argument.annotation else argument.arg
    if default is None:
        return typed
    return f"{typed} = {ast.unparse(default)}" if argument.annotation else f"{typed}={ast.unparse(default)}"


def said(found: Any, node: ast.stmt) -> list[str]:
    """Return the docstring as Markdown; of compiled code the one that it has when imported."""
    text = ast.get_docstring(node) if isinstance(node, Function | ast.ClassDef) else None
    if text is None:
        text = inspect.getdoc(found) or ""
        text = re.sub(r"\A\w[\w.]*\([^\n]*\n+", "", text)  # the signature that the compiler puts first
    return markdown(text)


def markdown(text: str) -> list[str]:
    """Return a docstring's lines with Markdown's marks for code."""
    return re.sub(r"``([^`]+)``", r"`\1`", text).strip().splitlines()


def note_below(home: ast.Module, node: ast.stmt) -> list[str]:
    """Return the text that stands below an assignment."""
    after = home.body[home.body.index(node) + 1 :][:1]
    match after:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return markdown(inspect.cleandoc(text))
    return []


if __name__ == "__main__":
    sys.exit(main())

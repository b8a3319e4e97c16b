"""The limits of CONTRIBUTING.md, for every source file: lines of code, docstrings, no sleeping in tests, no pickle."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.code_lines import code_mask, statements_in, tree_of

ROOT = Path(__file__).parent.parent

CYTHON = (".pyx", ".pxi")
MAX_FILE_LINES = {".pyx": 400, "": 500}
MAX_FUNCTION_LINES = 50
MAX_CLASS_LINES = 300
MAX_PARAMETERS = 6
MAX_BY_NAME = 12

# Where tests may wait for time to pass, since there is no signal to wait for.
MAY_SLEEP = ("tests/e2e/", "tests/chaos/", "tests/upgrade/", "tests/simulation/")  # of the last, in simulated time
# Handlers that are run by tests in processes of their own: to hang is what they are for.
JOB_BODIES = {
    *("tests/pool/runners.py", "tests/pool/unruly.py"),
    *("tests/interop/crowd/app.py", "tests/contrib/celery/ends.py"),
}

# What may break a limit, without its line, and why. What no longer does is taken off.
EXCEPTIONS = {
    "fastq/_codec_messages.pxi: function TaskMessage.__init__ has 15 parameters, over 6": "a record's fields",
    "tests/pool/main/test_chaos.py: sleeps; wait for a signal or use tests.waiting": "its pauses are what it tests",
    "tests/pool/harness.py: sleeps; wait for a signal or use tests.waiting": "asks whether a process is gone",
    "tests/pool/main_program.py: sleeps; wait for a signal or use tests.waiting": "asks whether a process has begun",
}

# Payloads are bytes and never executed.
PICKLES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"}
# A file without any of these words need not be walked.
SUSPECT = re.compile("|".join(("sleep", *PICKLES)))


@dataclass(frozen=True)
class Block:
    """A function or class, as far as the limits are concerned."""

    kind: str
    name: str
    line: int
    lines: int
    public: bool = False
    parameters: tuple[int, int] = (0, 0)
    """Those that may be given by position, and those by name only."""
    documented: bool = True


def block_faults(path: str, block: Block, is_code: Sequence[bool]) -> Iterator[str]:
    """Yield which limits a function or class breaks; blanks, comments and docstrings are not counted."""
    lines = sum(is_code[block.line - 1 : block.line - 1 + block.lines])
    where = f"{path}:{block.line}: {block.kind} {block.name}"
    limit = MAX_CLASS_LINES if block.kind == "class" else MAX_FUNCTION_LINES
    if lines > limit:
        yield f"{where} has {lines} lines, over {limit}"
    if not path.startswith("tests/"):
        for count, limit, kind in zip(
            block.parameters, (MAX_PARAMETERS, MAX_BY_NAME), ("", "keyword-only "), strict=True
        ):
            if count > limit:
                yield f"{where} has {count} {kind}parameters, over {limit}"
    if block.public and not block.documented and path.startswith("fastq/"):
        yield f"{where} has no docstring"


# Python


def python_blocks(node: ast.AST, prefix: str = "", public: bool = True, in_class: bool = False) -> Iterator[Block]:
    """Find all functions and classes; what is in a private class or in a function is not public."""
    for child in statements_in(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            is_class = isinstance(child, ast.ClassDef)
            is_public = public and not child.name.startswith("_")
            yield Block(
                kind="class" if is_class else "function",
                name=f"{prefix}{child.name}",
                line=child.lineno,
                lines=(child.end_lineno or child.lineno) - child.lineno + 1,
                public=is_public,
                parameters=(0, 0) if isinstance(child, ast.ClassDef) else count_parameters(child, in_class),
                documented=ast.get_docstring(child) is not None or is_explained_elsewhere(child),
            )
            yield from python_blocks(child, f"{prefix}{child.name}.", is_public and is_class, is_class)
        else:
            yield from python_blocks(child, prefix, public, in_class)


def decorator_names(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the last part of each decorator's name."""
    expressions = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    return {ast.unparse(expression).rpartition(".")[2] for expression in expressions}


def is_explained_elsewhere(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the property's, the overloaded function's or the base's docstring is this one's, too."""
    return bool(decorator_names(node) & {"overload", "override", "setter", "deleter"})


def count_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, in_class: bool) -> tuple[int, int]:
    """Count what a caller may have to think of: not self or cls, not ``*args`` and ``**kwargs``."""
    positional = len(node.args.posonlyargs) + len(node.args.args)
    bound = in_class and positional > 0 and "staticmethod" not in decorator_names(node)
    return positional - bound, len(node.args.kwonlyargs)


def python_faults(path: str, source: str, is_code: Sequence[bool]) -> Iterator[str]:
    """Check a Python file."""
    tree = tree_of(source)
    for block in python_blocks(tree):
        yield from block_faults(path, block, is_code)
    may_sleep = not path.startswith("tests/") or path.startswith(MAY_SLEEP) or path in JOB_BODIES
    for node in ast.walk(tree) if SUSPECT.search(source) else ():
        if isinstance(node, ast.Call) and not may_sleep and is_sleep(node):
            yield f"{path}:{node.lineno}: sleeps; wait for a signal or use tests.waiting"
        elif isinstance(node, ast.Import | ast.ImportFrom) and path.startswith("fastq/"):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            if PICKLES & {module.split(".")[0] for module in modules}:
                yield f"{path}:{node.lineno}: imports a pickle"


def is_sleep(call: ast.Call) -> bool:
    """Return whether a call waits for time to pass; ``asyncio.sleep(0)`` only lets others run."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    lets_others_run = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return name == "sleep" and not lets_others_run


# Cython, whose parser gives no line numbers for ends: blocks are found by their indentation.

STRING_OR_COMMENT = re.compile(r"""(?P<quotes>"{3}|'{3}|"|').*?(?<!\\)(?P=quotes)|#[^\n]*""", re.DOTALL)
HEADER = re.compile(r"(?P<indent>\s*)(?P<word>(?:async\s+)?def|cpdef|cdef\s+class|class|cdef)\b")
PICKLE_IMPORT = re.compile(rf"\s*(?:from|c?import)\s+(?:{'|'.join(PICKLES)})\b")


def cython_faults(path: str, source: str, is_code: Sequence[bool]) -> Iterator[str]:
    """Check a Cython file."""
    # A string leaves one quote and its line ends, which is all that the rest needs to see of it.
    bare = STRING_OR_COMMENT.sub(lambda match: '"' * bool(match["quotes"]) + "\n" * match[0].count("\n"), source)
    lines = bare.splitlines()
    for block in cython_blocks(lines):
        yield from block_faults(path, block, is_code)
    for number, line in enumerate(lines, 1):
        if path.startswith("fastq/") and PICKLE_IMPORT.match(line):
            yield f"{path}:{number}: imports a pickle"


def cython_blocks(lines: list[str]) -> Iterator[Block]:
    """Find all functions and classes; what only Cython can call is not public."""
    parents: list[tuple[int, str, bool]] = []  # indent, name, and whether what is in it is public
    for number, line in enumerate(lines):
        match = HEADER.match(line)
        if match is None:
            continue
        header, body = whole_header(lines, number)
        is_class = match["word"].endswith("class")
        name = re.search(r"class\s+(\w+)" if is_class else r"(\w+)\s*\(", header)
        if name is None or not header.endswith(":"):
            continue  # a variable, a struct, an extern block
        indent = len(match["indent"])
        while parents and parents[-1][0] >= indent:
            parents.pop()
        _, prefix, public = parents[-1] if parents else (-1, "", True)
        public = public and not name[1].startswith("_") and match["word"] != "cdef"
        parents.append((indent, f"{prefix}{name[1]}.", public and is_class))
        is_accessor = number > 0 and lines[number - 1].rstrip().endswith((".setter", ".deleter"))
        yield Block(
            kind="class" if is_class else "function",
            name=f"{prefix}{name[1]}",
            line=number + 1,
            lines=end_of_block(lines, body, indent) - number,
            public=public,
            parameters=(0, 0) if is_class else count_cython_parameters(header),
            documented=is_accessor
            or next((text for text in lines[body:] if text.strip()), "").lstrip().startswith('"'),
        )


def whole_header(lines: list[str], start: int) -> tuple[str, int]:
    """Return the statement that begins here, as far as its brackets are open, and the line after it."""
    header = ""
    for number in range(start, len(lines)):
        header += lines[number].strip() + " "
        if all(header.count(opening) <= header.count(closing) for opening, closing in ("()", "[]", "{}")):
            return header.strip(), number + 1
    return header.strip(), len(lines)


def end_of_block(lines: list[str], body: int, indent: int) -> int:
    """Return the number of the last line that is indented more than the header."""
    end = body
    for number in range(body, len(lines)):
        text = lines[number].lstrip()
        if text and len(lines[number]) - len(text) <= indent:
            break
        if text:
            end = number + 1
    return end


def count_cython_parameters(header: str) -> tuple[int, int]:
    """Count as for Python; a parameter may have a type of several words before it, even one with brackets."""
    listed = header[header.index("(") + 1 : header.rindex(")")]
    while (flat := re.sub(r"\([^()]*\)|\[[^][]*\]|\{[^{}]*\}", "", listed)) != listed:
        listed = flat
    parameters = [item.strip() for item in listed.split(",")]
    first_by_name = next(
        (at for at, item in enumerate(parameters) if re.match(r"\*(?!\*)\s*\w*$", item)), len(parameters)
    )
    counts = [bool(item) and item not in ("self", "cls", "/") and not item.startswith("*") for item in parameters]
    return sum(counts[:first_by_name]), sum(counts[first_by_name:])


# All files


def faults(path: str, source: str) -> list[str]:
    """Return all that is wrong with a file."""
    kind = ".pyx" if path.endswith(CYTHON) else ""
    is_code = code_mask(kind or ".py", source)
    lines = sum(is_code)
    too_long = [f"{path}: has {lines} lines, over {MAX_FILE_LINES[kind]}"] if lines > MAX_FILE_LINES[kind] else []
    return [*too_long, *(cython_faults if kind else python_faults)(path, source, is_code)]


def source_files() -> list[str]:
    """Return the path of each file that somebody wrote, from the root of the project."""
    folders = [ROOT / name for name in ("fastq", "tests", "benchmarks")]
    files = [path for folder in folders for kind in ("py", "pyx", "pxi") for path in folder.rglob(f"*.{kind}")]
    generated = [path for path in files if path.name.endswith("_pb2.py")]
    return sorted(path.relative_to(ROOT).as_posix() for path in {ROOT / "setup.py", *files} - set(generated))


def test_all_files_keep_the_limits() -> None:
    every = [fault for path in source_files() for fault in faults(path, (ROOT / path).read_text("utf-8"))]
    found = {fault: re.sub(r":\d+: ", ": ", fault, count=1) for fault in every}
    assert [fault for fault, what in found.items() if what not in EXCEPTIONS] == []
    assert set(EXCEPTIONS) - set(found.values()) == set(), "repaired: take them off EXCEPTIONS"


def test_the_files_are_found() -> None:
    assert {"setup.py", "fastq/errors.py", "fastq/_prioritizer.pyx", "tests/test_sources.py"} <= set(source_files())


MANNERED = re.compile(r'"{3}(Be|Hold|Tell|Say|Stand for)\b.*')


def test_no_docstring_makes_a_command_of_a_thing() -> None:
    """A class is a noun phrase, a predicate "Return whether …"."""
    texts = {path: (ROOT / path).read_text("utf-8") for path in source_files() if path.startswith("fastq/")}
    assert [f"{path}: {match[0]}" for path, text in texts.items() for match in MANNERED.finditer(text)] == []


# The check itself: each rule is kept at its limit, and broken by one.


def function(lines: int, *, parameters: str = "", word: str = "def") -> str:
    """Write a function of so many lines."""
    return f'{word} work({parameters}):\n    """Work."""\n' + "    x = 1\n" * (lines - 1)


def class_of(lines: int, word: str = "class") -> str:
    """Write a class of so many lines, none of them in long functions."""
    return f'{word} Big:\n    """Be big."""\n' + "    x = 1\n" * (lines - 1)


SIX = "a, b, c, d=(1, 2), e: int = 0, f: dict[int, int] = {}"
SIX_TYPED = "int a, const char *b, PyObject **c, double[:, ::1] d, object e=None, f=((1, 2), 3)"
TWELVE_BY_NAME = ", ".join(f"p{number}=None" for number in range(12))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("fastq/a.py", "x = 1\n" * 500),
        ("fastq/a.pyx", "x = 1\n" * 400),
        ("tests/a.py", "x = 1\n" * 500),
        ("fastq/a.py", function(50)),
        ("fastq/a.pyx", function(50)),
        ("fastq/a.pyx", function(50, word="cdef inline int") + "\ncdef int after = max(1, 2)\n" * 20),
        ("fastq/a.py", class_of(300)),
        ("fastq/a.pyx", class_of(300, "cdef class")),
        ("fastq/a.py", function(9, parameters=SIX)),
        ("fastq/a.pyx", function(9, parameters=SIX_TYPED)),
        ("fastq/a.py", function(9, parameters=f"{SIX}, *, {TWELVE_BY_NAME}")),
        ("fastq/a.pyx", function(9, parameters=f"{SIX_TYPED}, *, {TWELVE_BY_NAME}")),
        ("tests/test_a.py", "def test_it(a, b, c, d, e, f, g): pass"),
        ("fastq/a.py", 'class A:\n    """Be."""\n    def f(self, a, b, c, d, e, f, *args, **more):\n        "Do."'),
        ("fastq/a.pyx", 'cdef class A:\n    """Be."""\n    def f(self, a, b, c, d, e, f, /, *args):\n        "Do."'),
        ("fastq/a.py", "class _A:\n    def f(self): pass\ndef _g():\n    def h(): pass"),
        (
            "fastq/a.py",
            'class A:\n    "Be."\n    @x.setter\n    def x(self, value): pass\n    def __init__(self): pass',
        ),
        ("fastq/a.py", "from typing import overload\n@overload\ndef f(a): ..."),
        ("fastq/a.pyx", 'cdef class A:\n    "Be."\n    cdef int f(self):\n        pass\n    def __len__(self): pass'),
        ("fastq/a.pyx", 'cdef class A:\n    "Be."\n    @x.setter\n    def x(self, value):\n        pass'),
        ("fastq/a.pyx", "cdef extern from 'a.h':\n    int f(int a)\ncdef struct B:\n    int c\ncdef int d = len('(')"),
        ("fastq/a.pyx", "cdef int a = work(1, 2, 3, 4, 5, 6, 7)\ncdef dict b = {\n    1: max(2, 3),\n}"),
        ("benchmarks/bench_a.py", "def helper(): pass"),
        ("tests/e2e/test_a.py", "time.sleep(1)"),
        ("tests/chaos/test_a.py", "time.sleep(1)"),
        ("tests/test_a.py", "asyncio.sleep(0)\nx = 'sleep(1)'\ndef sleep(): pass"),
        ("tests/pool/runners.py", "time.sleep(10**6)"),
        ("fastq/a.py", "time.sleep(1)"),
        ("tests/test_a.py", "import pickle"),
        ("fastq/a.pyx", '"""Not this:\n\nimport pickle\n"""\n# import pickle'),
    ],
)
def test_what_keeps_to_the_limits_is_accepted(path: str, source: str) -> None:
    assert faults(path, source) == []


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("fastq/a.py", "x = 1\n" * 501, "fastq/a.py: has 501 lines, over 500"),
        ("benchmarks/bench_a.py", "x = 1\n" * 501, "benchmarks/bench_a.py: has 501 lines, over 500"),
        ("fastq/a.pyx", "x = 1\n" * 401, "fastq/a.pyx: has 401 lines, over 400"),
        ("tests/a.py", "x = 1\n" * 501, "tests/a.py: has 501 lines, over 500"),
        ("fastq/a.py", function(51), "fastq/a.py:1: function work has 51 lines, over 50"),
        ("tests/a.py", function(51, word="async def"), "tests/a.py:1: function work has 51 lines, over 50"),
        ("fastq/a.pyx", function(51), "fastq/a.pyx:1: function work has 51 lines, over 50"),
        (
            "fastq/a.pyx",
            function(51, word="cdef inline int", parameters="int a,\n        int b").replace("    x = 1\n", "", 1),
            "fastq/a.pyx:1: function work has 51 lines, over 50",
        ),
        ("fastq/a.py", class_of(301), "fastq/a.py:1: class Big has 301 lines, over 300"),
        ("fastq/a.pyx", class_of(301, "cdef class"), "fastq/a.pyx:1: class Big has 301 lines, over 300"),
        ("fastq/a.py", function(9, parameters=f"g, {SIX}"), "fastq/a.py:1: function work has 7 parameters, over 6"),
        *(
            (
                f"fastq/a.{kind}",
                function(9, parameters=f"a, *, {TWELVE_BY_NAME}, one_more=1"),
                f"fastq/a.{kind}:1: function work has 13 keyword-only parameters, over 12",
            )
            for kind in ("py", "pyx")
        ),
        (
            "fastq/a.pyx",
            function(9, parameters=f"{SIX_TYPED}, g"),
            "fastq/a.pyx:1: function work has 7 parameters, over 6",
        ),
        (
            "fastq/a.py",
            'class _A:\n    @staticmethod\n    def f(a, b, c, d, e, f, g):\n        "Do."',
            "fastq/a.py:3: function _A.f has 7 parameters, over 6",
        ),
        (
            "benchmarks/bench_a.py",
            "def f(a, b, c, d, e, f, g): pass",
            "benchmarks/bench_a.py:1: function f has 7 parameters, over 6",
        ),
        ("fastq/a.py", "async def f(): pass", "fastq/a.py:1: function f has no docstring"),
        ("fastq/a.py", "if x:\n    def f(): pass", "fastq/a.py:2: function f has no docstring"),
        ("fastq/a.py", "class A:\n    pass", "fastq/a.py:1: class A has no docstring"),
        (
            "fastq/a.py",
            'class A:\n    "Be."\n    class B:\n        "Be."\n        def f(self): pass',
            "fastq/a.py:5: function A.B.f has no docstring",
        ),
        ("fastq/a.pyx", "cpdef int f(int a):\n    return a", "fastq/a.pyx:1: function f has no docstring"),
        ("fastq/a.pyx", "cdef class A:\n    cdef int a", "fastq/a.pyx:1: class A has no docstring"),
        (
            "fastq/a.pyx",
            'cdef class A:\n    "Be."\n    cdef int a\n\n    @property\n    def f(self):\n        # no\n        pass',
            "fastq/a.pyx:6: function A.f has no docstring",
        ),
        ("tests/test_a.py", "time.sleep(1)", "tests/test_a.py:1: sleeps; wait for a signal or use tests.waiting"),
        (
            "tests/e2e.py",
            "async def f():\n    await sleep(delay=0)",
            "tests/e2e.py:2: sleeps; wait for a signal or use tests.waiting",
        ),
        ("fastq/a.py", "import os, pickle as p", "fastq/a.py:1: imports a pickle"),
        ("fastq/a.py", "def _f():\n    from pickle import loads", "fastq/a.py:2: imports a pickle"),
        ("fastq/a.pyx", "x = 1\nimport marshal", "fastq/a.pyx:2: imports a pickle"),
    ],
)
def test_what_breaks_a_limit_is_named(path: str, source: str, fault: str) -> None:
    assert faults(path, source) == [fault]


BRITISH = re.compile(r"(?<!\.)cancell(?:ed(?!Error)|ing)", re.IGNORECASE)  # asyncio's own names are British


def test_canceled_is_spelled_as_in_asynq() -> None:
    texts = [path for folder in ("fastq", "docs") for path in (ROOT / folder).rglob("*.*")]
    texts = [path for path in texts if path.suffix in (".py", ".pyi", ".pyx", ".pxi", ".pxd", ".lua", ".md", ".json")]
    assert [str(path) for path in texts if BRITISH.search(path.read_text())] == []

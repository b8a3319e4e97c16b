"""The lines of code of fastq, room by room, without blanks, comments and docstrings: ``python -m tests.code_lines``."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
CYTHON_TEXT = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""', re.DOTALL)
KINDS = (".py", ".pyi", ".pyx", ".pxi", ".pxd", ".lua")
CORE = re.compile(r"fastq/($|common/|enqueueing/|wire/|log/|broker/($|transport/|operations/)|pool/|server/|worker/)")
GENERATED = {"asynq_pb2.py", "asynq_pb2.pyi"}


@lru_cache(maxsize=1)
def tree_of(source: str) -> ast.Module:
    """Parse a Python source; who asks twice in a row has it parsed once."""
    return ast.parse(source)


def code_lines(path: Path) -> int:
    """Return how many lines of a source file are code."""
    return sum(code_mask(path.suffix, path.read_text("utf-8")))


def code_mask(kind: str, text: str) -> list[bool]:
    """Return for each line whether it is code; ``kind`` is the file's suffix."""
    if kind == ".py":
        text = _without_docstrings(text)
    elif kind != ".lua":
        text = CYTHON_TEXT.sub(lambda match: "\n" * match[0].count("\n"), text)
    comment = "--" if kind == ".lua" else "#"
    return [bool(line.strip()) and not line.lstrip().startswith(comment) for line in text.splitlines()]


def _without_docstrings(text: str) -> str:
    lines = text.splitlines()
    for node in _all_statements(tree_of(text)):
        # Strings that are statements: docstrings, and the texts below constants.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            lines[first] = lines[first][: node.col_offset]
            lines[first + 1 : last + 1] = [""] * (last - first)
    return "\n".join([*lines, ""])


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements right below a node; no expression has any, and most nodes are expressions."""
    for block in ("body", "handlers", "cases", "orelse", "finalbody"):
        yield from getattr(node, block, ())


def _all_statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in statements_in(node):
        yield child
        yield from _all_statements(child)


def lines_by_room(root: Path = ROOT) -> Counter[str]:
    """Return the lines of code of each folder of ``fastq/``, without those of the folders in it."""
    found: Counter[str] = Counter()
    for path in sorted((root / "fastq").rglob("*")):
        if path.suffix in KINDS and path.name not in GENERATED:
            found[f"{path.parent.relative_to(root).as_posix()}/"] += code_lines(path)
    return found


def main(root: Path = ROOT) -> None:
    """Print the lines of each folder, of the way from enqueue to ack, and of the whole."""
    rooms = lines_by_room(root)
    for room, lines in rooms.items():
        sys.stdout.write(f"{lines:7}  {room}\n")
    core = sum(lines for room, lines in rooms.items() if CORE.match(room))
    sys.stdout.write(f"{core:7}  from enqueue to ack, without scripts: {CORE.pattern}\n{rooms.total():7}  all\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)

"""ARCHITECTURE.md shows the folders that there are; what counts as a line of code."""

import re
from pathlib import Path

import pytest

from tests.code_lines import code_lines, code_mask, lines_by_room

ROOT = Path(__file__).parent.parent


def test_architecture_md_has_a_row_for_each_folder_or_for_the_one_around_it() -> None:
    rows = re.findall(r"^\| `(fastq/[\w/]*)` \|", (ROOT / "ARCHITECTURE.md").read_text("utf-8"), re.MULTILINE)
    rooms = sorted(lines_by_room())
    assert rows == [room for room in rooms if room in rows]
    assert [
        room for room in rooms if not any(room.startswith(row) for row in set(rows) - {"fastq/"} | {room} & set(rows))
    ] == []


@pytest.mark.parametrize(
    ("kind", "text", "is_code"),
    [
        (".py", '"""A text."""\n\nx = 1  # one\n# a comment\ny = """a\nb"""\n', [0, 0, 1, 0, 1, 1]),
        (".py", 'class A:\n    """A text\n    of two lines."""\n', [1, 0, 0]),
        (".pyx", '"""A\ntext."""\ncdef int a\n\n# a comment', [0, 0, 1, 0, 0]),
        (".lua", "-- a comment\nlocal a = 1\n\n", [0, 1, 0]),
    ],
)
def test_blanks_comments_and_docstrings_are_no_code(kind: str, text: str, is_code: list[int], tmp_path: Path) -> None:
    assert code_mask(kind, text) == [bool(line) for line in is_code]
    path = tmp_path / f"a{kind}"
    path.write_text(text, "utf-8")
    assert code_lines(path) == sum(is_code)

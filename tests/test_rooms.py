"""ARCHITECTURE.md shows the folders that there are, and each keeps to its budget of lines of code."""

from pathlib import Path

import pytest

from tests.code_lines import budgets, code_lines, code_mask, lines_by_room


def test_the_folders_are_those_of_architecture_md() -> None:
    assert list(budgets()) == sorted(budgets())
    assert set(budgets()) == set(lines_by_room())


def test_no_folder_has_more_lines_than_its_budget() -> None:
    allowed = budgets()
    assert {room: lines for room, lines in lines_by_room().items() if lines > allowed[room]} == {}


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

"""The tables of all pages are tables: a rule alone on its line, and as many cells in each row."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import FENCE, ROOT
from tests.docs.test_names import ALL_PAGES

RULE = re.compile(r"\|? *:?-{3,}:? *(\| *:?-{3,}:? *)*\|?")
RULE_ANYWHERE = re.compile(r"\| *:?-{3,}:? *\|")
BAR = re.compile(r"(?<!\\)\|")


def faults(text: str) -> Iterator[str]:
    """Tell each line of a broken table."""
    text = FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    lines, cells, before = text.split("\n"), 0, ""
    for number, line in enumerate(lines, 1):
        inner = line.strip().strip("|")
        if RULE_ANYWHERE.search(line) and not RULE.fullmatch(line.strip()):
            yield f"{number}: the rule of a table shares its line: {line[:60]}"
        elif RULE.fullmatch(line.strip()) and "|" in line:
            cells = len(BAR.findall(inner))
            if len(BAR.findall(before.strip().strip("|"))) != cells:
                yield f"{number}: the head of the table has other cells than its rule"
        elif not line.strip().startswith("|"):
            cells = 0
        elif cells and len(BAR.findall(inner)) != cells:
            yield f"{number}: {len(BAR.findall(inner)) + 1} cells, not {cells + 1}: {line[:60]}"
        before = line


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_table_is_one(page: Path) -> None:
    assert list(faults(page.read_text())) == []


@pytest.mark.parametrize(
    "table", ["| a | b | |---|---| | c | d |\n| e | f |", "| a | b |\n|---|\n| c |", "| a | b |\n|---|---|\n| c |"]
)
def test_a_broken_table_is_seen(table: str) -> None:
    assert list(faults(table)) != []
    assert list(faults("| a | b |\n|---|---|\n| `x \\| y` | d |\n\nno table | at all\n")) == []

"""Figures in README and on the pages are those of `benchmarks/results/`, which they cite.

A comment `<!-- figures: FILE.json NAME; NAME; … -->` before a paragraph names the source of each number in it, in
order; `-` stands for a number that nobody measured, as a size or a setting. NAME is `table::row::column` of the file,
with `#2` for the second number of a cell. Before a table, `<!-- figures: FILE.json table NAME -->` names the table that
it is.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.docs.blocks import FENCE, ROOT
from tests.docs.test_names import ALL_PAGES

RESULTS: Final = ROOT / "benchmarks" / "results"
CITED: Final = re.compile(r"<!-- figures: (\S+\.json) (.*?) -->\n+(.*?)(?=\n\n|\Z)", re.DOTALL)
NUMBER: Final = re.compile(r"(?<![\w.,-])\d{1,3}(?: \d{3})+(?![\w])|(?<![\w.])\d+(?:\.\d+)?(?!\w)")
NOT_TEXT: Final = re.compile(r"`[^`]*`|\]\([^)]*\)|!\[[^]]*\]")
MEASURED: Final = re.compile(r"\b[Mm]easured\b|\d no-op tasks a second|\d times (?:as|that|Go|the)")
"""What a paragraph says that has figures of ours."""
FIGURE: Final = re.compile(r"\**(?:all, )?\d[\d ]*(?:\.\d+)?(?: m?s)?(?: \([^)]*\))?\**")
NONE_OF_OURS: Final = (
    "A process that is killed leaves to the kernel",  # said to be Redis' words
    "Coroutines that end together cause only a part",
    "The limit of a part",
    "children with 50 threads each can wait for 200 answers",
    "Measured with a producer of one thread, 50 tasks",  # the table below it is cited
    "Measured with SIGKILL of Redis and its start",  # as above
    "| figure | how it is measured |",
)
"""Parts of paragraphs in which the word means something else."""


@cache
def results(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def cell(name: str, source: str) -> str:
    table, row, column = source.split("::")
    found = results(name)["tables"][table]
    return str(found["rows"][row][found["head"].index(column)])


def value(name: str, source: str) -> Decimal:
    """Return the figure that a name stands for."""
    where, _, place = source.partition("#")
    return numbers(cell(name, where))[int(place or 1) - 1][1]


def numbers(text: str) -> list[tuple[str, Decimal]]:
    """Return the numbers of a text, as they are written and as such."""
    words = NUMBER.findall(NOT_TEXT.sub(" ", " ".join(text.split())))
    return [(word, Decimal(word.replace(" ", ""))) for word in words]


def is_rounded(written: str, said: Decimal, measured: Decimal) -> bool:
    """Return whether a number is a measured one, rounded to the digits that it has."""
    whole, _, fraction = written.replace(" ", "").partition(".")
    digit = -len(fraction) if fraction else len(whole) - len(whole.rstrip("0") or whole[:1])
    return abs(said - measured) <= Decimal(10) ** digit / 2


def faults(text: str) -> Iterator[str]:
    """Tell each figure that is not the one of its source."""
    for file, names, block in CITED.findall(text):
        kind, _, rest = names.partition(" ")
        if kind == "table":
            yield from _faults_of_table(file, rest, block)
            continue
        sources = [source.strip() for source in names.replace("\n", " ").split(";")]
        found = numbers(block)
        if len(found) != len(sources):
            yield f"{file}: {len(sources)} sources for {[word for word, _ in found]}"
            continue
        for source, (word, said) in zip(sources, found, strict=True):
            if source != "-" and not is_rounded(word, said, value(file, source)):
                yield f"{word} is not {source} of {file}: {value(file, source)}"


def _faults_of_table(file: str, table: str, block: str) -> Iterator[str]:
    head, _, *rows = map(_cells, block.splitlines())
    known = results(file)["tables"][table]
    expected = [[row, *cells] for row, cells in known["rows"].items()]
    if [head, *rows] != [[known["corner"], *known["head"]], *expected]:
        yield f"the table is not {table} of {file}"


def _cells(line: str) -> list[str]:
    return [part.replace("`", "").strip(" *") for part in line.strip().strip("|").split("|")]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_are_those_of_their_source(page: Path) -> None:
    assert list(faults(page.read_text())) == []


@pytest.mark.parametrize(
    "page", [page for page in ALL_PAGES if page.name == "README.md" or "docs" in page.parts], ids=str
)
def test_a_paragraph_with_figures_cites_their_source(page: Path) -> None:
    if page.parent.name in ("benchmarks", "interop"):
        return  # where the figures are told how they came
    parts = CITED.sub("", FENCE.sub("", page.read_text())).split("\n\n")
    on_a_line = [" ".join(part.split()) for part in parts if has_figures(part)]
    bare = [part for part in on_a_line if not any(each in part for each in NONE_OF_OURS)]
    assert bare == []


def has_figures(part: str) -> bool:
    """Return whether a paragraph tells a measurement, or most cells of a table are numbers."""
    if not part.startswith("|"):
        text = " ".join(NOT_TEXT.sub(" ", part).split())
        return bool(MEASURED.search(text) and NUMBER.search(text))
    cells = [cell.strip() for line in part.splitlines()[2:] for cell in line.strip("|").split("|")[1:]]
    return sum(bool(FIGURE.fullmatch(cell)) for cell in cells) > len(cells) / 2


@pytest.mark.parametrize(
    "text",
    [
        "<!-- figures: compare-epyc.json run::fastq::no-op tasks -->\nIt did 108 000 a second.",
        "<!-- figures: compare-epyc.json run::fastq::no-op tasks -->\nIt did 107 000 a second, 3 times that.",
        "<!-- figures: failover.json table addresses -->\n| old connections |\n|---|\n| are ended |",
    ],
)
def test_a_figure_of_nowhere_is_seen(text: str) -> None:
    assert list(faults(text)) != []
    assert list(faults("<!-- figures: compare-epyc.json run::fastq::no-op tasks -->\nIt did 107 400 a second.")) == []

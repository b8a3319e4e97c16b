"""Bars and sparklines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq.cli.dash.cells import Painted, shares, spark, text_of
from fastq.cli.tables import Cell, shortened


@given(st.dictionaries(st.integers(), st.integers(1, 10**9), min_size=1, max_size=7), st.integers(7, 40))
def test_a_bar_shows_each_state_and_fills_its_width(counts: dict[int, int], width: int) -> None:
    cells = shares(counts, width)
    assert sum(cells.values()) == width
    assert min(cells.values()) >= 1
    assert cells[max(counts, key=counts.__getitem__)] == max(cells.values())


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], "    "),
        ([None, 1.0], "   █"),
        ([0.0, 0.0], "  ▁▁"),
        ([9.0, 0.0, 1.0, 7.0, 3.5], "▁▂█▅"),
        ([None, None, None, None, None], "    "),
    ],
)
def test_a_sparkline_shows_the_last_values(values: list[float | None], drawn: str) -> None:
    assert spark(values, 4) == drawn


def test_cells_keep_their_colours_when_they_are_padded_or_cut() -> None:
    bar = Painted.of([("██", "red"), ("█", "blue")])
    text = text_of(bar, "███  ", "bold")
    assert text.plain == "███  "
    assert [(span.start, span.end, span.style) for span in text.spans] == [(0, 2, "red"), (2, 3, "blue")]
    assert text_of(bar, shortened(bar, 2)).plain == "█…"
    assert text_of(Cell("x", "red", dim=True), "x ").style == "red dim"

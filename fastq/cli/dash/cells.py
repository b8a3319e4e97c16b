"""Cells with several colors, such as bars of a queue's states; sparklines; and conversion of cells to Rich texts."""

from collections.abc import Mapping, Sequence
from typing import Final, Self, TypeVar

from rich.text import Text

from fastq.cli.stats import STATE_COLOURS, STATES
from fastq.cli.tables import Cell
from fastq.common.states import TaskState
from fastq.inspector import QueueInfo
from fastq.text.human import number

K = TypeVar("K")

LEVELS: Final = "▁▂▃▄▅▆▇█"
BLOCK: Final = "█"
SHORT: Final = ("act", "pend", "aggr", "sched", "retry", "arch", "compl")


class Painted(Cell):
    """A text made of parts, each with its color."""

    __slots__ = ("parts",)

    parts: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, parts: Sequence[tuple[str, str]]) -> Self:
        """Join parts, each a text and its color."""
        cell = cls("".join(text for text, _ in parts))
        cell.parts = parts
        return cell


def text_of(cell: str, shown: str, style: str = "") -> Text:
    """Return ``shown``, the padded or shortened text of a cell, in the colors of the cell."""
    if isinstance(cell, Painted) and shown.startswith(cell):
        text = Text(style=style)
        for part, colour in cell.parts:
            text.append(part, style=colour)
        return text.append(shown[len(cell) :])
    if isinstance(cell, Cell):
        return Text(shown, style=" ".join(filter(None, (style, cell.fg, "dim" if cell.dim else ""))))
    return Text(shown, style=style)


def state_bar(info: QueueInfo, width: int) -> Painted:
    """Draw the shares of a queue's states; a state with any task is visible."""
    counts = {state: getattr(info, state.value) for state in STATES if getattr(info, state.value)}
    if not counts:
        return Painted.of([("·" * width, "dim")])
    cells = shares(counts, width)
    return Painted.of([(BLOCK * cells[state], STATE_COLOURS[state]) for state in counts])


def state_texts(info: QueueInfo | None, width: int) -> list[tuple[TaskState, str]]:
    """Format each state with its count; the names are abbreviated if they would not fit on a line."""
    counts = [number(getattr(info, state.value)) if info else "-" for state in STATES]
    names: Sequence[str] = [state.value for state in STATES]
    if sum(map(len, (*names, *counts))) + 3 * len(names) > width:
        names = SHORT
    texts = (f"{name} {count}" for name, count in zip(names, counts, strict=True))
    return list(zip(STATES, texts, strict=True))


def shares(counts: Mapping[K, int], width: int) -> dict[K, int]:
    """Divide ``width`` in proportion to counts, which are not 0; each gets at least 1."""
    total, spare = sum(counts.values()), width - len(counts)
    cells = {key: 1 + count * spare // total for key, count in counts.items()}
    cells[max(counts, key=counts.__getitem__)] += width - sum(cells.values())
    return cells


def spark(values: Sequence[float | None], width: int) -> str:
    """Draw the last values as bars of eighths, the newest on the right; unknown values stay blank."""
    shown = list(values)[-width:]
    most = max((value for value in shown if value is not None), default=0.0)
    return "".join(" " if value is None else _level(value, most) for value in shown).rjust(width)


def _level(value: float, most: float) -> str:
    return LEVELS[min(len(LEVELS) - 1, round(value / most * (len(LEVELS) - 1)))] if most else LEVELS[0]

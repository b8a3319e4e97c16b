"""Lanes as rows of a table, for ``fastq lane`` and for the dashboard."""

from collections.abc import Sequence
from typing import Final

from fastq.cli.tables import Cell, Column
from fastq.inspector import LaneInfo, LaneState
from fastq.text.human import number
from fastq.text.lanes import lane_name, limit_text, places_text, why

LANE_COLUMNS: Final = (
    Column("LANE", cut=True),
    Column("WAITING", right=True),
    Column("RUNNING", right=True),
    Column("LIMIT"),
    Column("WHY IT WAITS", cut=True),
)


def lane_cells(info: LaneInfo) -> Sequence[str]:
    """Return the cells of a lane's row."""
    waiting = "-" if info.lane.endswith("*") or not info.lane else number(info.waiting)
    color = "yellow" if info.state is LaneState.PAUSED or info.lost_holders else None
    return lane_name(info), waiting, places_text(info), limit_text(info), Cell(why(info), fg=color)

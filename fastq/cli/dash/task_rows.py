"""Tasks as rows of a grid: the id, the type, the columns of the state, and then the payload."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from fastq.cli.dash.grid import Row
from fastq.cli.tables import Column
from fastq.cli.task_shown import BY_STATE, COMMON, Show
from fastq.common.states import TaskState
from fastq.info import TaskInfo

GROUP_COLUMNS: Final = (Column("GROUP", cut=True), Column("SIZE", right=True))
MOST_PAYLOAD: Final = 400
"""How many bytes of a payload are shown on a line."""

_RANKS: Final = {"LOST": 5, "MAX RETRY": 4, "LAST FAILED": 3, "RETRIED": 2, "GROUP": 1}
_ID, _TYPE, _PAYLOAD = COMMON


def _shown(state: TaskState) -> list[tuple[Column, Show]]:
    """Return a state's columns in order; ids may be cut, since the task's view shows the whole id."""
    own = [(replace(column, rank=_RANKS.get(column.title, 0)), show) for column, show in BY_STATE[state]]
    return [(replace(_ID[0], cut=True), _ID[1]), _TYPE, *own, _PAYLOAD]


def columns_of(state: TaskState) -> list[Column]:
    """Return the columns of a list of tasks in a state."""
    return [column for column, _ in _shown(state)]


def row_of(info: TaskInfo) -> Row:
    """Return the row of a task."""
    now = datetime.now(UTC)
    small = info if len(info.payload) <= MOST_PAYLOAD else replace(info, payload=_begin(info.payload))
    return Row(info.id, [show(small, now) for _, show in _shown(info.state)])


def _begin(payload: bytes) -> bytes:
    """Cut a payload between two UTF-8 characters, so that text remains valid."""
    end = MOST_PAYLOAD
    while end > MOST_PAYLOAD - 4 and payload[end] & 0xC0 == 0x80:
        end -= 1
    return payload[:end]

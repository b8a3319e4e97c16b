"""Reads of lanes: their names, in pages, and what is known of each."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from fastq.broker.operation import Operation, Word, scripted
from fastq.wire import keys

HOLDERS: Final = 3


class NamePage(NamedTuple):
    """Some names, and the cursor of the next page; "0" after the last one."""

    cursor: str
    names: list[str]


class LaneRow(NamedTuple):
    """A lane or pool as stored in Redis: times in Unix µs, leases in Unix seconds, None for missing values."""

    waiting: int
    running: int
    turn_us: float | None
    full_us: float | None
    rule: str
    arrival_us: float | None
    pool_us: float | None
    holders: list[tuple[str, float | None]]


class LaneRows(NamedTuple):
    """Lanes at one moment, the number of tasks that the queue runs, and whether it is paused."""

    now_us: float
    is_paused: bool
    running: int
    rows: list[LaneRow]


def scan_lanes(queue: str, cursor: str, count: int) -> Operation[NamePage]:
    """Read some names of lanes that have tasks."""
    args = (cursor, "COUNT", count)
    return Operation("SSCAN", (keys.groups(queue),), args, lambda reply: _page(reply[0], reply[1]), idempotent=True)


def scan_limits(queue: str, cursor: str, count: int) -> Operation[NamePage]:
    """Read some names that have rules."""
    args = (cursor, "COUNT", count)
    return Operation(
        "HSCAN", (keys.limits(queue),), args, lambda reply: _page(reply[0], reply[1][::2]), idempotent=True
    )


def read_lanes(queue: str, names: Sequence[tuple[str, str]]) -> Operation[LaneRows]:
    """Read lanes and pools, each named with the pool that it waits for, or ""; at most some hundreds."""
    script_keys = (
        keys.limits(queue),
        keys.turns(queue),
        keys.full(queue),
        keys.rates(queue),
        keys.lease(queue),
        keys.paused(queue),
    )
    prefixes = (keys.group_prefix(queue), keys.held_prefix(queue), keys.pool_prefix(queue))
    # Other programs may write names that are not UTF-8; these go back as the bytes that they were.
    words = [word.encode("utf-8", "surrogateescape") for pair in names for word in pair]
    args: list[Word] = [*prefixes, HOLDERS, *words]
    return scripted("read_lanes", script_keys, args, _rows, idempotent=True)


def _page(cursor: bytes, names: Sequence[bytes]) -> NamePage:
    return NamePage(cursor.decode(), [_text(name) for name in names])


def _rows(reply: list[Any]) -> LaneRows:
    now, is_paused, running, *rows = reply
    return LaneRows(float(now), bool(is_paused), running, [_row(row) for row in rows])


def _row(row: list[Any]) -> LaneRow:
    waiting, running, turn, full, rule, arrival, pool, *holders = row
    return LaneRow(
        waiting,
        running,
        _number(turn),
        _number(full),
        _text(rule),
        _number(arrival),
        _number(pool),
        [(_text(holders[at]), _number(holders[at + 1])) for at in range(0, len(holders), 2)],
    )


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")

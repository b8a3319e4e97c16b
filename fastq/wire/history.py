"""The history of a queue: what servers count of its tasks' runs, and the text in which Redis keeps the counts.

A value has a record for each minute or hour: ``;``, the number of the minute or hour, then the counts that are not 0,
each a letter and a number, such as ``;59a120h118w2``. A letter never changes its meaning, since new code reads old
values.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_letters
from typing import Final

OUTCOMES: Final[Mapping[str, int]] = {"done": 0, "failed": 1, "retried": 2, "archived": 3, "lost": 4}
"""The counters of what became of tasks, in the order in which people see them.

Each has its place among all counters, which is the place of its letter. The buckets of run times and waits begin at
place 5, so a new counter is placed behind them.
"""
BOUNDS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0
)  # fmt: skip
"""The upper bounds of all buckets except the last, which has no bound."""
BUCKETS: Final = len(BOUNDS_S) + 1
RUN_TIMES: Final = slice(5, 5 + BUCKETS)
WAITS: Final = slice(RUN_TIMES.stop, RUN_TIMES.stop + BUCKETS)
COUNTERS: Final = max(WAITS.stop, *(place + 1 for place in OUTCOMES.values()))

ALL_TYPES: Final = ""
"""The field with the sums of all types; no task has this type."""
OTHER_TYPES: Final = "other"
"""The name under which all types beyond ``MAX_TYPES`` are counted together."""
MAX_TYPES: Final = 200

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86_400
STEP_OF_TYPES: Final = 10
"""How many minutes a record of a single type covers; the record has the number of the first of these minutes.

A record for each minute would take 25 MB for 20 queues of 50 types.
"""
MINUTES_KEPT_S: Final = 8 * HOUR_S
HOURS_KEPT_S: Final = 14 * DAY_S

_LETTERS: Final = ascii_letters[:COUNTERS]
_RECORD: Final = re.compile(rb";(\d+)([a-zA-Z0-9]*)")
_COUNT: Final = re.compile(rb"([a-zA-Z])(\d+)")
_PLACES: Final = {letter.encode(): place for place, letter in enumerate(_LETTERS)}


def encode_counts(counts: Sequence[int]) -> str:
    """Return the counts that are not 0 as text."""
    return "".join([f"{letter}{count}" for letter, count in zip(_LETTERS, counts, strict=True) if count])


def decode_records(value: bytes) -> dict[int, tuple[int, ...]]:
    """Return the counts of each minute or hour by its number.

    Unknown parts, such as a later version's letter, are skipped.
    """
    found: dict[int, tuple[int, ...]] = {}
    for number, text in _RECORD.findall(value):
        counts = [0] * COUNTERS
        for letter, count in _COUNT.findall(text):
            if letter in _PLACES:
                counts[_PLACES[letter]] = int(count)
        found[int(number)] = tuple(counts)
    return found


def sum_of(all_counts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Add up counts; all 0 if there are none."""
    return tuple(map(sum, zip((0,) * COUNTERS, *all_counts, strict=True)))

"""The text in which Redis keeps the history of a queue."""

import pytest

from fastq.wire.history import (
    BOUNDS_S,
    BUCKETS,
    COUNTERS,
    OUTCOMES,
    RUN_TIMES,
    WAITS,
    decode_records,
    encode_counts,
    sum_of,
)

COUNTS = tuple(range(COUNTERS))


def test_counts_come_back_as_they_were() -> None:
    assert decode_records(f";59{encode_counts(COUNTS)};7{encode_counts(COUNTS[::-1])}".encode()) == {
        59: COUNTS,
        7: COUNTS[::-1],
    }


def test_letters_keep_their_meaning() -> None:
    """Old values are read by new code: an outcome is known by its letter, a bucket by its place."""
    (found,) = decode_records(b";0a1b2c3d4e5f6x7y8Q9").values()
    assert found[:5] == (1, 2, 3, 4, 5)
    assert {place: count for place, count in enumerate(found[5:]) if count} == {0: 6, 18: 7, 19: 8, 37: 9}
    assert OUTCOMES == {"done": 0, "failed": 1, "retried": 2, "archived": 3, "lost": 4}
    assert (BUCKETS, BOUNDS_S[0], BOUNDS_S[8], BOUNDS_S[-1]) == (19, 0.001, 0.5, 3600.0)


def test_each_place_is_used_once() -> None:
    places = range(COUNTERS)
    assert sorted([*OUTCOMES.values(), *places[RUN_TIMES], *places[WAITS]]) == list(places)


@pytest.mark.parametrize("value", [b"", b"rubbish", b";", b"a1;b", b";x1"])
def test_what_is_no_record_is_skipped(value: bytes) -> None:
    assert decode_records(value) == {}


def test_letters_of_later_versions_are_skipped() -> None:
    assert decode_records(b";3Z9a1") == {3: (1, *(0,) * (COUNTERS - 1))}


def test_only_what_is_not_0_is_written() -> None:
    assert encode_counts((0,) * COUNTERS) == ""
    assert encode_counts((1, *(0,) * (COUNTERS - 2), 12)) == "a1Q12"


def test_counts_are_added_up() -> None:
    assert sum_of([]) == (0,) * COUNTERS
    assert sum_of([COUNTS, COUNTS]) == tuple(2 * count for count in COUNTS)

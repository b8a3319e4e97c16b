"""The limit of log lines: what passes, what is counted."""

import pytest

from fastq.log.limit import LINES, MAX_KINDS, PER_S, LogLimit, until_next_s


def test_the_first_lines_of_a_kind_pass_and_the_rest_is_counted() -> None:
    limit = LogLimit[str]()
    assert [limit.allows("a", 0.0) for _ in range(LINES + 5)] == [True] * LINES + [False] * 5
    assert limit.allows("b", 0.0)
    assert limit.ended(PER_S - 0.1) == []
    assert limit.ended(PER_S) == [("a", 5)]
    assert limit.ended(PER_S) == []
    assert limit.allows("a", PER_S)


def test_the_next_ten_seconds_are_the_clocks_and_begin_anew_whether_the_count_was_told_or_not() -> None:
    limit = LogLimit[str]()
    last_s = 3 * PER_S - 0.1
    assert until_next_s(last_s) == pytest.approx(0.1)
    assert [limit.allows("a", last_s) for _ in range(LINES + 3)] == [True] * LINES + [False] * 3
    assert [limit.allows("a", 3 * PER_S) for _ in range(LINES + 1)] == [True] * LINES + [False]
    assert limit.ended(3 * PER_S) == [("a", 3)]
    assert limit.holds_back
    assert limit.ended(4 * PER_S) == [("a", 1)]
    assert not limit.holds_back


def test_a_line_that_may_not_be_logged_is_counted_and_takes_no_other_s_place() -> None:
    limit = LogLimit[str]()
    assert [limit.allows("a", 0.0, most=0) for _ in range(LINES)] == [False] * LINES
    assert [limit.allows("a", 0.0) for _ in range(LINES + 1)] == [True] * LINES + [False]
    assert limit.ended(PER_S) == [("a", LINES + 1)]


def test_kinds_beyond_a_number_are_one() -> None:
    limit = LogLimit[str]()
    for kind in range(MAX_KINDS):
        assert limit.allows(f"kind {kind}", 0.0)
    assert [limit.allows(str(number), 0.0) for number in range(LINES + 2)] == [True] * LINES + [False] * 2
    assert limit.ended(PER_S) == [(None, 2)]


def test_kinds_of_which_nothing_came_lately_make_room() -> None:
    limit = LogLimit[str]()
    for kind in range(MAX_KINDS):
        assert limit.allows(f"kind {kind}", 0.0)
    assert [limit.allows(str(number), PER_S) for number in range(LINES + 2)] == [True] * (LINES + 2)

"""The limit of log lines: what passes, what is counted."""

from fastq.log.limit import LINES, LOOK_EVERY_S, MAX_KINDS, PER_S, LogLimit


def test_the_first_lines_of_a_kind_pass_and_the_rest_is_counted() -> None:
    limit = LogLimit[str]()
    assert [limit.allows("a", 0.0) for _ in range(LINES + 5)] == [True] * LINES + [False] * 5
    assert limit.allows("b", 0.0)
    assert limit.ended(PER_S - 0.1) == []
    assert limit.ended(PER_S) == [("a", 5)]
    assert limit.ended(PER_S) == []
    assert limit.allows("a", PER_S)


def test_a_window_without_a_line_held_back_ends_by_itself() -> None:
    limit = LogLimit[str]()
    for second in range(100):
        assert limit.allows("a", second * PER_S / LINES)
    assert limit.ended(1e9) == []


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


def test_room_is_looked_for_again_after_a_while() -> None:
    limit = LogLimit[str]()
    for kind in range(MAX_KINDS):
        assert limit.allows(f"kind {kind}", 0.0)
    last_s = PER_S - LOOK_EVERY_S / 2
    assert limit.allows("one too many", last_s)
    assert [limit.allows(str(number), PER_S) for number in range(LINES)] == [True] * (LINES - 1) + [False]
    assert all(limit.allows(f"late {number}", last_s + LOOK_EVERY_S) for number in range(LINES + 2))

"""The pattern index, against Go's matches and against a plain search through all patterns."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastq._muxmatch import PatternIndex

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "errors.json").read_text("utf-8"))["servemux"]
MANY = 10_000

# Few letters, so that patterns share beginnings; some of more than one byte that share their first bytes, too.
names = st.text("ab:éèΩ\U0001f600\U0001f601", max_size=8)


def index_of(*patterns: str) -> PatternIndex:
    index = PatternIndex()
    for pattern in patterns:
        index.add(pattern)
    return index


def slow_find(patterns: set[str], task_type: str) -> str | None:
    return max((pattern for pattern in patterns if task_type.startswith(pattern)), key=len, default=None)


@pytest.mark.parametrize("case", GOLDEN["matches"], ids=lambda case: repr(case["type"]))
def test_matches_are_those_of_go(case: dict[str, str]) -> None:
    index = index_of(*GOLDEN["patterns"])
    assert index.find(case["type"]) == (case["pattern"] or None)
    assert index.find(case["type"].encode()) == (case["pattern"] or None)


@given(st.sets(names, max_size=30), st.lists(names, max_size=30))
def test_the_longest_prefix_is_found_however_patterns_nest(patterns: set[str], types: list[str]) -> None:
    index = PatternIndex()
    added: set[str] = set()
    for pattern in patterns:
        index.add(pattern)
        added.add(pattern)
        for task_type in (*types, *patterns, pattern + "a"):
            assert index.find(task_type) == slow_find(added, task_type)
            assert index.find(task_type.encode()) == slow_find(added, task_type)


@given(st.sets(names, max_size=20), st.sets(names, max_size=20), st.lists(names, max_size=30))
def test_a_name_takes_its_very_text_and_comes_before_prefixes(
    prefixes: set[str], exact: set[str], types: list[str]
) -> None:
    patterns = [*prefixes, *(f"{name}\0" for name in exact)]
    for order in (patterns, patterns[::-1]):
        index = index_of(*order)
        for task_type in (*types, *prefixes, *exact, *(f"{name}a" for name in exact)):
            expected = f"{task_type}\0" if task_type in exact else slow_find(prefixes, task_type)
            assert index.find(task_type) == expected


@given(st.binary(max_size=12), st.sets(names, max_size=10))
def test_bytes_that_are_no_utf8_are_searched_like_any(task_type: bytes, patterns: set[str]) -> None:
    longest = max((p for p in patterns if task_type.startswith(p.encode())), key=len, default=None)
    assert index_of(*patterns).find(task_type) == longest


@given(st.sets(names, max_size=30), names)
def test_steps_are_bounded_by_the_type_and_not_by_the_patterns(patterns: set[str], task_type: str) -> None:
    assert 1 <= index_of(*patterns).steps(task_type) <= len(task_type.encode()) + 1


@pytest.mark.parametrize(
    "patterns",
    [
        pytest.param([f"{number:05}" for number in range(MANY)], id="all branch"),
        pytest.param(["x" * length for length in range(1, MANY + 1)], id="each holds the one before"),
        pytest.param([f"x{'y' * length}z" for length in range(MANY)], id="each leaves the last one's path"),
    ],
)
def test_ten_thousand_patterns_take_no_more_steps_than_the_type_has_bytes(patterns: list[str]) -> None:
    index = index_of(*patterns)
    assert len(index) == MANY
    for task_type in ("x", "xy", "xyyyyyyy!", "00000", "01234:resize", "99999", "", "?"):
        assert index.steps(task_type) <= len(task_type) + 1
        assert index.find(task_type) == slow_find(set(patterns), task_type)
    for pattern in patterns[:: MANY // 100]:
        assert index.find(pattern) == pattern
        assert index.find(pattern + "!") == pattern
        assert index.steps(pattern) <= len(pattern) + 1


def test_patterns_beside_a_path_cost_it_no_step() -> None:
    alone = index_of("image:resize")
    crowded = index_of("image:resize", *(f"{number}:image:resize" for number in range(MANY)))
    assert alone.steps("image:resize:large") == crowded.steps("image:resize:large") == 2


def test_a_pattern_is_not_looked_for_beyond_the_end_of_the_type() -> None:
    assert index_of("a\0\0").find("a") is None  # in memory a zero byte follows the text


def test_the_empty_pattern_matches_everything() -> None:
    index = index_of("", "a")
    assert [index.find("a"), index.find("b"), index.find("")] == ["a", "", ""]


def test_an_empty_index_finds_nothing() -> None:
    assert index_of().find("a") is None
    assert len(index_of()) == 0


def test_patterns_are_kept_in_the_order_of_their_adding() -> None:
    index = index_of("b", "a:b", "a")
    assert list(index) == ["b", "a:b", "a"]
    assert "a" in index
    assert "a:" not in index


def test_a_pattern_is_added_once() -> None:
    index = index_of("a")
    with pytest.raises(ValueError, match="pattern 'a' is already registered"):
        index.add("a")
    assert list(index) == ["a"]


def test_text_without_a_utf8_form_is_refused_and_changes_nothing() -> None:
    index = index_of("a")
    with pytest.raises(UnicodeEncodeError):
        index.add("a\ud800")
    with pytest.raises(UnicodeEncodeError):
        index.find("a\ud800")
    assert list(index) == ["a"]
    assert index.find("ab") == "a"


def test_a_type_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="a task type is str or bytes, not int"):
        index_of("a").find(1)  # type: ignore[arg-type]  # the point of the test

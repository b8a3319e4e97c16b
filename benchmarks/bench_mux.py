"""How long a type takes to find its pattern: the radix tree beside a dict tried at every length, and asynq's scan.

The cases: names as people choose them; patterns of as many lengths as there are patterns, each the beginning of the
next; and a type of 10 kB that follows them to the end, or fits none.
"""

import functools
from bisect import bisect_right
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fastq._muxmatch import PatternIndex
from fastq.mux import ServeMux

Find = Callable[[str], str | None]
SIZES = [10, 100, 1_000, 10_000]


def tree(patterns: list[str]) -> Find:
    """Build ours."""
    index = PatternIndex()
    for pattern in patterns:
        index.add(pattern)
    return index.find


def lengths(patterns: list[str]) -> Find:
    """Build a dict that is asked for the type's beginnings of every length a pattern has, the longest first."""
    known = {pattern: pattern for pattern in patterns}
    sizes = sorted({len(pattern) for pattern in patterns})

    def find(task_type: str) -> str | None:
        for place in range(bisect_right(sizes, len(task_type)) - 1, -1, -1):
            if (found := known.get(task_type[: sizes[place]])) is not None:
                return found
        return None

    return find


def scan(patterns: list[str]) -> Find:
    """Build asynq's way: exact first, then all patterns, the longest first."""
    known = set(patterns)
    by_length = sorted(patterns, key=len, reverse=True)

    def find(task_type: str) -> str | None:
        if task_type in known:
            return task_type
        return next((pattern for pattern in by_length if task_type.startswith(pattern)), None)

    return find


WAYS = {"tree": tree, "lengths": lengths, "scan": scan}


def name(number: int) -> str:
    """Return a name of 13 to 22 bytes, the lengths of a real app's."""
    return f"service{number % 97}:job-{number}{'s' * (number % 7)}:"


def nested(count: int) -> list[str]:
    """Return patterns of as many lengths, each the beginning of the next, the longest 10 kB."""
    return ["x" * (10_000 // count * (number + 1)) for number in range(count)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["exact", "prefix", "unknown"])
def test_names(benchmark: BenchmarkFixture, kind: str, way: str, size: int) -> None:
    benchmark.group = f"names, {kind}"
    find = WAYS[way]([name(number) for number in range(size)])
    task_type = {"exact": name(7), "prefix": name(7) + "large", "unknown": "nobody:knows:this"}[kind]
    assert (find(task_type) is None) is (kind == "unknown")
    benchmark(find, task_type)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["short", "10 kB that follow", "10 kB that do not"])
def test_nested(benchmark: BenchmarkFixture, kind: str, way: str, size: int) -> None:
    benchmark.group = f"nested, {kind}"
    find = WAYS[way](nested(size))
    task_type = {"short": "xy", "10 kB that follow": "x" * 9_999 + "y", "10 kB that do not": "y" * 10_000}[kind]
    benchmark(find, task_type)


@pytest.mark.parametrize("size", SIZES)
def test_dispatch(benchmark: BenchmarkFixture, size: int) -> None:
    benchmark.group = "dispatch with one middleware"
    mux = ServeMux()
    mux.use(functools.partial)
    for number in range(size):
        mux.handle(name(number), print)
    benchmark(mux.dispatch, name(7) + "large")

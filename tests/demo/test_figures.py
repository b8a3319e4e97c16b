"""The figures, from a ledger made by hand."""

import math

import pytest

from fastq.demo.books import Books
from fastq.demo.fates import DELAYED, LATE, STEADY, Lot
from fastq.demo.figures import measure, quantile
from fastq.demo.ledger import Ending, Run
from fastq.demo.workload import Ordered


def books_and_ledger(*tasks: tuple[str, Lot, float, float]) -> tuple[Books, dict[str, list[Run]]]:
    """Take queue, lot, second of the beginning, and second at which it was due."""
    books, ledger = Books(), {}
    for number, (queue, lot, begun_s, due_s) in enumerate(tasks):
        books.by_id[str(number)] = Ordered(lot, queue, "t", round(due_s * 1e9))
        begun_ns = round(begun_s * 1e9)
        ledger[str(number)] = [Run(0, begun_ns, begun_ns + 10**9, Ending.RETURNED)]
    return books, ledger


def test_shares_are_those_until_a_queue_has_no_more_of_its_backlog() -> None:
    figures = measure(
        *books_and_ledger(
            *(("a", STEADY, second, 0) for second in (10, 11, 12, 13)),
            *(("b", STEADY, second, 0) for second in (11.5, 14, 15, 16, 17)),
            ("a", DELAYED, 12.5, 11),  # counts as a run of its queue
            ("a", DELAYED, 20, 11),  # is no sign of a backlog
        )
    )
    assert figures.shares == {"a": 5 / 6, "b": 1 / 6}
    assert figures.busy_runs == 6
    assert figures.busy_seconds == 3
    assert figures.busy_rate == 2
    assert figures.runs == 11
    assert figures.seconds == 11


def test_every_run_counts_and_the_first_alone_tells_of_the_backlog() -> None:
    books, ledger = books_and_ledger(("a", STEADY, 1, 0), ("b", STEADY, 2, 0), ("b", STEADY, 4, 0))
    ledger["0"].append(Run(1, 3 * 10**9, 4 * 10**9, Ending.RETURNED))
    figures = measure(books, ledger)
    assert figures.runs == 4
    assert figures.busy_runs == 1


def test_lateness_counts_from_the_second_apart_for_the_two_waves() -> None:
    figures = measure(
        *books_and_ledger(("a", DELAYED, 13.5, 10), ("a", DELAYED, 11, 10), ("a", LATE, 20.25, 20), ("a", STEADY, 1, 0))
    )
    assert figures.late_busy == [1, 3.5]
    assert figures.late_idle == [0.25]


def test_nothing_gives_no_figures() -> None:
    figures = measure(Books(), {})
    assert (figures.runs, figures.seconds, figures.busy_rate, figures.shares) == (0, 0, 0, {})
    assert math.isnan(quantile(figures.late_idle, 0.5))


@pytest.mark.parametrize(("part", "value"), [(0, 1), (0.5, 3), (0.99, 4), (1, 4)])
def test_quantiles_are_values_that_are_there(part: float, value: float) -> None:
    assert quantile([1, 2, 3, 4], part) == value

"""The same operations through Go asynq and through fastq leave the same in Redis, and fail for the same reasons."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.differential.campaign import Campaign, UnequalError, campaign
from tests.interop.differential.operation import Operation, Outcome
from tests.interop.differential.table import table_of

pytestmark = pytest.mark.interop

SEED = 20261121
AT_MOST = 2000
"""Sequences; about 400 are needed."""


@pytest.fixture
def run(peer_binary: Path) -> Iterator[Campaign]:
    with campaign(SEED, peer_binary) as each:
        yield each


def test_every_operation_does_the_same_200_times_and_meets_each_error_20_times(
    run: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    run.run_until_all_is_reached(AT_MOST)
    with capsys.disabled():
        sys.stdout.write("\n" + table_of(run))
    missing = {(goal.name, goal.ending): count for goal, count in run.generator.missing().items()}
    assert missing == {}
    assert run.intended.unused() == []


@pytest.mark.parametrize(
    "wrong",
    [
        "SADD asynq:queues another",
        "INCR asynq:{default}:processed",
        "SET asynq:left:over 1",
        "LPUSH asynq:{default}:pending id-1000",
        "ZADD asynq:{low}:scheduled 1 id-1000",
        "HSET asynq:{default}:t:id-1000 state pending",
    ],
)
def test_a_wrong_cell_of_fastqs_is_found(run: Campaign, wrong: str) -> None:
    apply = run.fastq.apply
    ours: Any = run.pair.ours

    def apply_wrongly(operation: Operation) -> Outcome:
        outcome = apply(operation)
        ours.execute_command(*wrong.split())
        return outcome

    run.fastq.apply = apply_wrongly  # type: ignore[method-assign]  # a side with a defect
    with pytest.raises(UnequalError, match=wrong.split()[1].replace("{", r"\{")):
        run.run_sequence()


def test_a_wrong_error_of_fastqs_is_found(run: Campaign) -> None:
    apply = run.fastq.apply

    def apply_wrongly(operation: Operation) -> Outcome:
        outcome = apply(operation)
        return Outcome(error="TaskNotFoundError") if outcome.error == "TaskStateError" else outcome

    run.fastq.apply = apply_wrongly  # type: ignore[method-assign]  # a side with a defect
    with pytest.raises(UnequalError, match="Go 'TaskStateError', fastq 'TaskNotFoundError'"):
        run.run_until_all_is_reached(AT_MOST)

"""What a split and an order cost, beside asynq's way: a list with each name repeated by its weight, shuffled."""

import random
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fastq._prioritizer import Prioritizer

QUEUES = {
    "3 queues": {"critical": 6, "default": 3, "low": 1},
    "16 queues": {f"queue-{number}": number + 1 for number in range(16)},
}
EMPTY = frozenset({"critical", "queue-15"})


def shuffled(queues: dict[str, int]) -> Callable[[], list[str]]:
    """Return asynq's choice of an order, in Python."""
    repeated = [name for name, weight in queues.items() for _ in range(weight)]
    rng = random.Random(1)

    def order() -> list[str]:
        rng.shuffle(repeated)
        return list(dict.fromkeys(repeated))

    return order


@pytest.mark.parametrize("queues", QUEUES)
@pytest.mark.parametrize("n", [1, 100, 500])
def test_split(benchmark: BenchmarkFixture, queues: str, n: int) -> None:
    benchmark.group = f"split, {queues}"
    benchmark(Prioritizer(QUEUES[queues], seed=1).split, n)


@pytest.mark.parametrize("queues", QUEUES)
def test_split_with_an_empty_queue(benchmark: BenchmarkFixture, queues: str) -> None:
    benchmark.group = f"split, {queues}"
    benchmark(Prioritizer(QUEUES[queues], seed=1).split, 100, EMPTY)


@pytest.mark.parametrize("queues", QUEUES)
@pytest.mark.parametrize("way", ["ours", "shuffle"])
def test_order(benchmark: BenchmarkFixture, queues: str, way: str) -> None:
    benchmark.group = f"order, {queues}"
    benchmark(Prioritizer(QUEUES[queues], seed=1).order if way == "ours" else shuffled(QUEUES[queues]))

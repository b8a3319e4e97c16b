import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fastq.server.base.retry_delay import default_retry_delay

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "options.json").read_text())["default_retry_delay"]


@pytest.mark.parametrize("case", GOLDEN["observed_over_20000_draws"], ids=lambda case: f"n={case['n']}")
def test_delays_span_exactly_the_range_that_asynq_draws_from(case: dict[str, Any]) -> None:
    rng = Random(20251121)
    delays = {default_retry_delay(case["n"], rng) for _ in range(5_000)}
    step = case["n"] + 1
    assert delays == set(range(case["observed_min_s"], case["observed_max_s"] + 1, step))


def test_the_same_chance_gives_the_same_delay() -> None:
    assert default_retry_delay(3, Random(7)) == default_retry_delay(3, Random(7))


def test_without_a_source_of_chance_the_process_wide_one_is_used() -> None:
    assert 15 <= default_retry_delay(0) <= 44

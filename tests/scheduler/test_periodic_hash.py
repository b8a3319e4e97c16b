import json
from pathlib import Path
from typing import Any

import pytest

from fastq.scheduler.option_list import config_hash

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "options.json").read_text())["periodic_task_config_hash"]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["hash"][:8])
def test_hashes_are_those_of_asynq(case: dict[str, Any]) -> None:
    payload = None if case["payload"] is None else bytes.fromhex(case["payload"])
    options = case["opts_sorted"] or []
    assert config_hash(case["cronspec"], case["type"], payload, options) == case["hash"]
    assert config_hash(case["cronspec"], case["type"], payload, reversed(options)) == case["hash"]


def test_a_changed_option_changes_the_hash() -> None:
    assert config_hash("* * * * *", "t", b"", ["MaxRetry(1)"]) != config_hash("* * * * *", "t", b"", ["MaxRetry(2)"])

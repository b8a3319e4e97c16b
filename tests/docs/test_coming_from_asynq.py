"""The page for those who know asynq has every intended difference."""

import re
import tomllib

from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "coming-from-asynq.md").read_text()


def test_every_intended_difference_is_told() -> None:
    listed = tomllib.loads((ROOT / "tests" / "differences.toml").read_text())
    rows = {row["row"] for kind in ("difference", "differential") for row in listed[kind]}
    assert len(rows) > 5
    told = re.sub(r"\s+", " ", PAGE)
    assert {row for row in rows if re.sub(r" \(§.*\)$", "", row) not in told} == set()

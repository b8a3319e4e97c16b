"""docs/delivery.md: each rule of the simulation's judge, and each guarantee of the fault bench, is a promise there."""

import re
from pathlib import Path

from tests.chaos.checker import GUARANTEES
from tests.simulation.rules import names

PAGE = Path(__file__).parents[2] / "docs" / "delivery.md"
OF_THE_BENCH = {"slots"}
"""Of its own handlers."""


def test_each_rule_is_a_promise() -> None:
    rows = [line.split("|")[3:5] for line in PAGE.read_text().splitlines() if re.match(r"\| .*`", line)]
    rules, guarantees = (set(re.findall(r"`(\w+)`", " ".join(column))) for column in zip(*rows, strict=True))
    assert rules == names()
    assert guarantees - {"make"} == GUARANTEES.keys() - OF_THE_BENCH

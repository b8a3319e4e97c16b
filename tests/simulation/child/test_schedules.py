"""Schedules of one child: the promises hold, a seed is its schedule, and what is planted is found."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.planted import read_mistakes

ROOT = Path(__file__).parents[3]
PLANTED = read_mistakes(Path(__file__).with_name("planted.toml"))
EASY = "the last end of a turn does not ring"

needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are woken by eventfds")


def run(*args: object) -> list[str]:
    words = [sys.executable, "-m", "tests.simulation.child", *map(str, args)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=7200, check=False)
    return done.stdout.splitlines()


def reports(*args: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("--json", *args) if line.startswith("{")]


@needs_linux
@pytest.mark.slow
def test_the_promises_hold() -> None:
    found = reports("--seed", 1, "--count", 150)
    assert len(found) == 150
    assert [one for one in found if one["broken"]] == []
    kinds = {kind for one in found for kind in one["kinds"]}
    assert kinds >= {"DONE", "TIMEOUT", "CANCELED", "CRASHED", "RETURNED", "RERUN"}


@needs_linux
@pytest.mark.slow
def test_a_seed_is_its_schedule() -> None:
    first, again = (reports("--seed", 7, "--count", 5) for _ in range(2))
    assert first == again
    assert len({one["trace"] for one in first}) == 5


@needs_linux
@pytest.mark.slow
def test_a_planted_mistake_is_found() -> None:
    assert run("--plant", EASY, "--count", 20)[-1] == "1 of 1 mistakes found"


def test_each_mistake_can_be_planted() -> None:
    for mistake in PLANTED.values():
        mistake.apply((ROOT / "fastq" / mistake.file).read_text("utf-8"))

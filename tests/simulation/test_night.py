"""A night of the simulation: each seed is counted, whatever breaks on the way."""

import json
import sys

import pytest

from tests.simulation.night import run_night, runners_of, seeds_of

RUNS = """
import json, os, sys
for line in sys.stdin:
    seed, site = line.split()
    if seed == "2":
        os._exit(3)
    print(json.dumps({"seed": int(seed), "site": site, "broken": ["why"] * (seed == "4"), "steps": 10}), flush=True)
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_night_goes_on_after_what_breaks_and_after_a_process_that_dies(
    jobs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    runners = runners_of([sys.executable, "-c", RUNS], jobs)
    assert run_night(runners, seeds_of(1, 6, ["a", "b"]), 3600, tells_all=False) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [
        "seed 2 of a breaks: the process of the seed ended with status 3",
        "seed 4 of a breaks: why",
    ]
    night = json.loads(last)
    assert (night["seeds"], night["broken"], night["by_site"], night["steps"]) == (6, 2, {"a": 3, "b": 3}, 50)
    assert sorted(one["seed"] for one in night["which"]) == [2, 4]
    assert all(runner.process.returncode == 0 for runner in runners)


def test_a_night_whose_time_is_up_begins_no_seed_more(capsys: pytest.CaptureFixture[str]) -> None:
    runners = runners_of([sys.executable, "-c", RUNS], 1)
    assert run_night(runners, seeds_of(5, 0, ["a"]), 0, tells_all=True) == 0
    one, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["seed"], last["seeds"]) == (5, 1)

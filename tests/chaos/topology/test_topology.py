"""The fault bench for topologies itself, short; and that it leaves nothing behind when it is interrupted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.test_chaos import environment, interrupted, left_of
from tests.chaos.test_chaos import place as place
from tests.redis_servers import server_program
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its nodes have addresses of their own in 127.0.0.0/8")


def command(*words: str) -> list[str]:
    server_program()  # else skipped
    return [sys.executable, "-m", "tests.chaos.topology", "--without-go", *words]


@pytest.mark.slow
def test_a_cluster_loses_nothing_in_a_planned_fail_over_and_a_move(place: Path) -> None:
    report = place / "report"
    words = ["--kind", "cluster", "--seed", "7", "--faults", "planned,reshard", "--rounds", "1", "--wait-replicas", "1"]
    done = subprocess.run(
        command(*words, "--json", str(report)), cwd=place, env=environment(place), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert told["violations"] == []
    assert {"planned fail-over", "queues moved to another master"} <= {row["fault"] for row in told["rows"]}
    assert told["figures"]["acknowledged to fastq"] > 0
    report.unlink()
    assert left_of(place) == set()
    assert [path.name for path in place.iterdir() if not path.name.startswith("fastq-test-ports")] == []


def test_an_interrupted_run_leaves_nothing_behind(place: Path) -> None:
    with interrupted(command("--kind", "sentinel", "--minutes", "10"), place) as output:
        output.readline()
        wait_until(lambda: len(left_of(place)) > 5)
    assert [path.name for path in place.iterdir() if not path.name.startswith("fastq-test-ports")] == []

"""The comparison with other queues works from end to end with the contenders that need no network, and counts right."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.compare.__main__ import main
from benchmarks.compare.conditions import PLAIN
from benchmarks.compare.contender import Contender, Kind, Rates
from benchmarks.compare.contenders import CONTENDERS
from benchmarks.compare.environment import UnavailableError, pinned
from benchmarks.compare.faults import main as faults_main
from benchmarks.compare.meter import Counter, Meter
from benchmarks.compare.outcome import TASKS, Event, Fault, Outcome, outcome_of
from benchmarks.compare.record import Entry, Record
from benchmarks.compare.rounds import Rounds
from benchmarks.compare.sizes import LEAST, THOROUGH, fixed, plan
from benchmarks.compare.table import markdown, percentile
from benchmarks.compare.turn import Drained, Figures

RATES = ("each", "many", "each_redis_us", "pss_mb")


def entry(name: str, guarantee: str, *noops: float) -> Entry:
    return Entry(name, f"the {name}", "1.2", guarantee, "detail", "settings", "", list(map(figures, noops)), [])


def figures(noop: float, many: float = 2000.0, each: float = 1000.0) -> Figures:
    return Figures(each, many, latency_ms=[1.0, 3.0], drained={Kind.NOOP: Drained(noop, 1.0, 1.0)})


def contender(name: str) -> Contender:
    return next(one for one in CONTENDERS if one.name == name)


def record(*entries: Entry) -> Record:
    told = dict.fromkeys(("commit", "cores", "processor", "kernel", "python", "redis", "go", "load"), "?")
    return Record("2026-01-01T00:00:00+00:00", 60.0, "loopback", told, entries)


def test_a_small_run_gives_figures_and_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, table = tmp_path / "figures.json", tmp_path / "table.md"
    words = ["--only", "bare,fastq", "--tasks", "200", "--quick", "--json", str(found), "--table", str(table)]
    assert main(words) == 0, capsys.readouterr().err
    entries = {one["name"]: one for one in json.loads(found.read_text())["entries"]}
    assert list(entries) == ["bare", "fastq"]
    for one in entries.values():
        assert one["failures"] == []
        (taken,) = one["rounds"]
        assert [name for name in RATES if taken[name] <= 0] == []
    assert 0 < len(entries["fastq"]["rounds"][0]["latency_ms"]) <= 20  # so many as there was time for
    assert len(entries["fastq"]["rounds"][0]["drained"]) == len(Kind)
    assert table.read_text() == markdown(Record.load(found))
    rows = [line for line in table.read_text().splitlines() if line.startswith("| **fastq** |")]
    assert [row.count("|") for row in rows] == [7, 8, 10]


def test_whose_worker_ends_fails_and_is_left_out_in_the_end(tmp_path: Path) -> None:
    dead = replace(contender("bare"), name="dead", work=lambda place: [[place.program, "-c", "print('Goodbye')"]])
    rounds = Rounds({dead: Path(sys.executable)}, tmp_path, PLAIN)
    for number in range(3):
        rounds.run(number, 3, lambda one, earlier: fixed(one, 10))
    assert rounds.failures == {"dead": ["a worker ended"] * 2}
    assert rounds.figures == {"dead": []}
    assert (tmp_path / "dead.log").read_text() == "Goodbye\n"


def test_a_turn_takes_what_the_rate_so_far_says() -> None:
    bare = replace(contender("bare"), guess=Rates(each=1000, many=1, noop=100_000))
    first = plan(bare, [], THOROUGH)
    assert (first.each, first.many, first.drained, first.loaded_s) == (700, LEAST, {Kind.NOOP: 180_000}, 0.0)
    earlier = [figures(noop, 20_000, 1) for noop in (1e6, 1e4, 1e5)]
    later = plan(bare, earlier, THOROUGH)
    assert (later.each, later.many, later.drained) == (LEAST, 14_000, {Kind.NOOP: 180_000})


def test_the_ratio_is_the_median_of_the_rounds_own() -> None:
    text = markdown(
        record(
            entry("bare", "at least once", 100, 1000, 100),
            entry("fastq", "at least once", 50, 600, 80),
            entry("fast", "at most once", 40, 500, 70),
            entry("slow", "at least once", 5, 50, 5),
            entry("slower", "at least once", 4, 40, 4),
        )
    )
    assert [line for line in text.splitlines() if ": fastq " in line] == [
        "- no-op tasks: fastq is 0.60 x the bare",
        "- no-op tasks: fastq is 12.00 x the slow",
        "- bulk enqueue: fastq 2 000 a second",
        "- idle latency p50: fastq 3.00 ms, the best other queue 3.00 ms (the fast)",
    ]


def test_a_percentile_is_one_of_the_samples() -> None:
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 2.0, 3.0, 3.0]


def test_threads_and_forks_are_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "meter"
    meter = Meter.create(path)
    code = (
        "import os, threading\nfrom benchmarks.compare.meter import run\nrun('noop')\n"
        "thread = threading.Thread(target=run, args=('when',))\nthread.start(); thread.join()\n"
        "child = os.fork()\nrun('ms')\nif child: os.waitpid(child, 0)"
    )
    variables = {**os.environ, "COMPARE_METER": str(path), "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], env=variables, check=True)
    assert meter.count() == 4
    assert meter.processes() == 2
    assert meter.last_began_ns() > 0


def test_each_thread_counts_in_a_slot_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "meter"
    meter = Meter.create(path)
    monkeypatch.setenv("COMPARE_METER", str(path))
    counter = Counter()

    def count() -> None:
        for _ in range(20_000):
            counter.add()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.count() == 80_000
    assert meter.words[0] == 5  # this thread's, and theirs


def test_who_cannot_be_had_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(environment: str) -> Path:
        raise UnavailableError(f"no {environment}")

    monkeypatch.setattr("benchmarks.compare.environment.ensure", refuse)
    assert main(["--only", "asynq", "--quick"]) == 1
    assert "Go asynq is left out: no go" in capsys.readouterr().err


def test_all_requirements_are_pinned() -> None:
    for name in {one.environment for one in CONTENDERS} - {"own", "go"} | {"plot"}:
        pins = [line for line in pinned(name).splitlines() if not line.startswith("# Python ")]
        assert pins
        assert [pin for pin in pins if "==" not in pin] == []


def test_contenders_have_names_of_their_own() -> None:
    names = [one.name for one in CONTENDERS]
    assert len(set(names)) == len(names)
    assert len({one.title for one in CONTENDERS}) == len(names)


def ledger(*lines: str) -> list[Event]:
    """Return events of lines like "began 7 12 1.5": what, task, process, seconds."""
    return [Event(what, id, int(pid), round(float(at_s) * 1e9)) for what, id, pid, at_s in map(str.split, lines)]


def test_what_a_fault_did_follows_from_the_ledger() -> None:
    others = [line for id in range(5, TASKS) for line in (f"began {id} 1 1", f"ended {id} 1 2")]
    events = ledger(
        *("began 0 1 8", "ended 0 1 11"),  # went on
        *("began 1 2 8", "began 1 3 12", "ended 1 3 13"),  # orphaned, ran again
        *("began 2 1 1", "ended 2 1 2", "began 2 3 14", "ended 2 3 15"),  # ran twice
        "began 3 2 9",  # orphaned, and 4 never began
        *others,
    )
    outcome = outcome_of("fastq", Fault.CHILD, events, 10_000_000_000, left=1, restarts=0)
    assert outcome == Outcome("fastq", Fault.CHILD, orphans=2, lost=1, waiting=1, repeated=1, orphans_s=2.0, done_s=3.0)
    assert outcome_of("fastq", Fault.CHILD, events, 10_000_000_000, left=0, restarts=0).lost == 2


@pytest.mark.slow
def test_no_task_is_lost_as_redis_fails_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.compare.faults.DONE_S", 0.5)
    report = tmp_path / "faults.json"
    words = ["--only", "fastq", "--faults", "FAIL_OVER", "--json", str(report)]
    assert faults_main(words) == 0
    (told,) = json.loads(report.read_text())["entries"]
    (outcome,) = told["outcomes"].values()
    assert (outcome["failure"], outcome["lost"], outcome["waiting"]) == ("", 0, 0)

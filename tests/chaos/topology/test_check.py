"""The checker of the fault bench for topologies reports each broken guarantee, and explains nothing too much."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fastq.inspector import Finding, Level
from tests.chaos.topology.books import Ack, Books, Fault, Move, Passage, Refusal, Run, Sample, read_refusals
from tests.chaos.topology.check import GUARANTEES, Violation, check, problems_of
from tests.chaos.topology.faults import SCENARIOS, scenarios_named

TASK = "chaos-b0000001"
FAULT = Fault("SIGSTOP of a master", "node0", ["alpha"], True, 10.0, 12.0, 15.0)


def of_master(at: float, offset: int, history: str = "old", before: str = "", branch: int = -1) -> Sample:
    return Sample(at, history, offset, before, branch)


PROMOTED = {
    "node0": [of_master(1, 100), of_master(2, 200), of_master(3, 300), of_master(16, 400)],
    "node1": [of_master(12, 260, "new", "old", 250)],
}
"""The replica was promoted with the first 249 bytes of its master's history."""


def books(
    acked: float = 1.5, *runs: Run, node: str = "node0", who: str = "fastq", samples: object = None, **more: object
) -> Books:
    """Return what is known of one task, that a master took half a second before it was acknowledged."""
    ack = Ack(TASK, "alpha", who, acked)
    known = Books([ack], runs, frozenset({TASK}), {TASK: [Passage(acked - 0.5, node)]}, PROMOTED, [], [FAULT], {}, 0)
    return replace(known, **{"samples": samples or PROMOTED, **more})  # type: ignore[arg-type]  # fields of its own


def broken(of: Books, observed: Sequence[Violation] = ()) -> list[str]:
    return [violation.guarantee for violation in check(of, observed).violations]


def run(began: float, ended: float, id: str = TASK) -> Run:
    return Run(id, "fastq", began, ended)


def test_a_problem_that_the_doctor_finds_breaks_a_guarantee_and_a_warning_does_not() -> None:
    problem = Finding("lost tasks", Level.PROBLEM, "2", queue="alpha", examples=("a", "b"))
    warning = Finding("persistence", Level.WARNING, "neither append-only file nor snapshots")
    found = problems_of([warning, problem, Finding("role", Level.OK, "master")])
    assert found == [Violation("doctor", "lost tasks alpha 2 a, b")]
    assert broken(books(1.5, run(2, 3)), found) == ["doctor"]
    assert "doctor" in GUARANTEES


def test_a_task_that_ran_once_breaks_nothing() -> None:
    assert broken(books(1.5, run(2, 3))) == []


def test_a_lost_task_is_reported_though_a_replica_was_promoted_if_the_replica_had_it() -> None:
    (violation,) = check(books(1.5)).violations
    assert violation.guarantee == "lost"
    assert f"{TASK}, and the replica had it: acknowledged -8.500 (fastq, alpha); to node0 -9.000" in violation.text


@pytest.mark.parametrize("acked", [2.5, 15.9])
def test_a_lost_task_that_the_promoted_replica_did_not_have_is_explained(acked: float) -> None:
    verdict = check(books(acked))
    assert not verdict.violations
    assert verdict.figures["acknowledged tasks lost that the replica did not have"] == 1
    assert len(verdict.lost) == 1


def test_a_lost_task_of_a_master_that_died_before_it_was_asked_again_is_explained() -> None:
    samples = {"node0": PROMOTED["node0"][:2], "node1": PROMOTED["node1"]}
    assert broken(books(2.5, samples=samples)) == []


def test_a_lost_task_is_reported_where_no_replica_was_promoted() -> None:
    assert broken(books(2.5, samples={"node0": PROMOTED["node0"]})) == ["lost"]
    assert broken(books(2.5, node="node2")) == ["lost"]


def test_a_task_that_the_replica_had_may_be_lost_with_that_one_later() -> None:
    later = [*PROMOTED["node0"][:3], of_master(20, 245, "last", "new", 240)]
    assert broken(books(1.9, samples={**PROMOTED, "node0": later})) == ["lost"]
    early = [*later[:3], of_master(20, 205, "last", "new", 200)]
    assert broken(books(1.9, samples={**PROMOTED, "node0": early})) == []


def test_a_task_may_be_lost_with_the_master_that_its_queue_was_moved_to() -> None:
    samples = {"node2": [of_master(1, 100, "other")], **PROMOTED}
    assert broken(books(1.5, node="node2", samples=samples)) == ["lost"]
    assert broken(books(1.5, node="node2", samples=samples, moves=[Move("alpha", "node0", 2.5)])) == []
    assert broken(books(1.5, node="node2", samples=samples, moves=[Move("beta", "node0", 2.5)])) == ["lost"]


def test_nothing_explains_the_loss_of_a_task_that_replicas_have_confirmed() -> None:
    assert broken(books(2.5, wait_replicas=1)) == ["lost"]
    assert broken(books(2.5, wait_replicas=1, who="Go")) == [], "Go does not ask them"


def test_a_task_whose_only_run_did_not_end_is_lost() -> None:
    assert broken(books(1.5, run(2, 0))) == ["lost"]


@pytest.mark.parametrize(
    ("first", "reported"),
    [
        (run(9.5, 9.6), []),  # its end need not have been replicated
        (run(8, 8.5), ["twice"]),
        (run(8, 11), []),
        (run(14, 14.1), []),
        (run(21, 22), ["twice"]),
    ],
)
def test_a_second_run_is_explained_by_a_fault_between_start_and_ack(first: Run, reported: list[str]) -> None:
    again = run(30, 31)
    assert broken(books(7.5, first, again)) == reported
    delayed = replace(FAULT, repeats=False)
    assert broken(books(7.5, first, again, faults=[delayed])) == ["twice"]


GIVEN_UP = Refusal(TASK, 11.5, "INTERNAL_ERROR: redis eval error: TRYAGAIN Multiple keys request")
MOVED = replace(FAULT, kind="queues moved to another master", repeats=False)


def of_go(began: float, ended: float) -> Run:
    return Run(TASK, "Go", began, ended)


def test_a_second_run_is_explained_by_an_ack_that_go_gave_up_while_slots_moved() -> None:
    runs = (of_go(11, 11.4), run(110, 111))
    verdict = check(books(10.5, *runs, faults=[MOVED], refusals=[GIVEN_UP]))
    assert not verdict.violations
    assert verdict.figures["runs again since Go gave up an ack that a move refused"] == 1
    assert "ack refused 1.500: INTERNAL_ERROR: redis eval error: TRYAGAIN" in verdict.repeated[0]


@pytest.mark.parametrize(
    ("first", "refusal"),
    [
        (of_go(11, 11.4), None),
        (of_go(11, 11.4), GIVEN_UP._replace(id="chaos-b0000002")),
        (of_go(11, 11.4), GIVEN_UP._replace(why="INTERNAL_ERROR: redis eval error: NOT FOUND")),
        (of_go(11, 11.4), GIVEN_UP._replace(at=110.5)),  # that of the second run
        (of_go(11, 11.6), GIVEN_UP),
        (of_go(11, 0), GIVEN_UP),
        (of_go(1, 2), GIVEN_UP._replace(at=2.1)),  # nothing moved then
        (run(11, 11.4), GIVEN_UP),
    ],
)
def test_no_other_second_run_is_explained_by_slots_that_move(first: Run, refusal: Refusal | None) -> None:
    of = books(0.5, first, run(110, 111), faults=[MOVED], refusals=[refusal] if refusal else [], samples={"node0": []})
    assert broken(of) == ["twice"]


def test_acks_that_go_gave_up_are_read_from_its_log() -> None:
    words = 'task id=a type="job" from "asynq:{q}:active" err: ERROR: TRYAGAIN x; Will retry syncing'
    line = f"asynq: pid=7 2026/11/23 03:12:43.250000 WARN: Could not remove {words}\n"
    log = f"{line}asynq: pid=7 2026/11/23 03:12:44.000000 WARN: other\n"
    assert read_refusals(log) == [Refusal("a", 1795403563.25, "ERROR: TRYAGAIN x")]


def test_a_fail_over_that_nobody_ordered_explains_a_second_run_as_a_fault_does() -> None:
    assert broken(books(7.5, run(11, 12), run(20, 21), faults=[])) == []
    assert broken(books(7.5, run(1, 2), run(20, 21), faults=[])) == ["twice"]
    assert broken(books(7.5, run(11, 12), run(20, 21), faults=[], samples={"node0": PROMOTED["node0"]})) == ["twice"]


def test_what_is_left_or_strange_is_reported() -> None:
    assert broken(books(1.5, left={TASK: "retry"})) == ["left"]
    assert broken(books(1.5, run(2, 3), run(2, 3, id="chaos-b0000002"))) == ["strange"]
    assert broken(books(1.5, run(2, 3), left={"chaos-b0000002": "active"})) == ["left", "strange"]


def test_what_the_bench_itself_saw_is_reported() -> None:
    assert broken(books(1.5, run(2, 3)), [Violation("alive", "a worker ended")]) == ["alive"]


def test_a_kind_of_fault_has_a_row_with_its_worst_times() -> None:
    (row,) = check(books(9.9, run(9.95, 9.96), run(15.95, 16.0))).rows
    assert (row["times"], row["promoted after, s"], row["ran again"]) == (1, 2.0, 1)
    assert row["no run for, s"] == 6.0


def test_faults_are_chosen_by_their_names() -> None:
    assert scenarios_named("", "cluster") == list(SCENARIOS)
    assert set(SCENARIOS) - set(scenarios_named("", "sentinel")) == {"reshard", "keys"}
    assert scenarios_named("kill,delays", "sentinel") == ["kill", "delays"]
    with pytest.raises(ValueError, match="no fault is called flood"):
        scenarios_named("flood", "cluster")

"""Seeds of each site: a Sentinel site that fails over, a Cluster whose slots move, and who refuses for a while."""

from typing import Any

import pytest

from tests.simulation.happenings import Acted
from tests.simulation.judge import Answered, Began, Ended, History, RolledBack, Sent, Struck, judge
from tests.simulation.test_simulation import needs_clocks, reports, simulate

SITES = ("sentinel", "cluster")


@needs_clocks
@pytest.mark.slow
@pytest.mark.parametrize("site", SITES)
def test_the_promises_hold_and_a_seed_is_its_world(site: str) -> None:
    found = reports("--site", site, "--seed", "1", "--count", "4", "--tasks", "80")
    assert len(found) == 4
    assert [one for one in found if one["broken"]] == []
    # A fail-over loses what the replica had not got.
    assert (sum(one["rolled back"] for one in found) > 0) == (site == "sentinel")
    again = reports("--site", site, "--seed", "2", "--count", "1", "--tasks", "80")  # as the first of its servers
    assert again[0]["trace"] == found[1]["trace"]
    assert len({one["trace"] for one in found}) == 4


@needs_clocks
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "seed"), [("scripts may find half of a queue", 4), ("replies of nodes are mixed up", 1)]
)
def test_a_planted_mistake_is_found(mistake: str, seed: int) -> None:
    words = simulate("--plant", mistake, "--seed", str(seed), "--count", "12", "--tasks", "80")
    assert words[-1] == "1 of 1 mistakes found"


def rules(*happened: Sent | Answered | Began | Ended | Struck | RolledBack, place: str = "completed") -> set[str]:
    history = History()
    for one in (Sent(1, "a", 1, 0, "", True), Answered(1, "a", True), *happened):
        history.note(one)
    history.places = {"a": [place]} if place else {}
    return {line.partition(":")[0] for line in judge(history)}


TWICE: tuple[Any, ...] = (
    Began(1.1, "a", "s", 0, "s"),
    Ended(2, "a", "s", "DONE", "s", 25),
    Began(30, "a", "t", 0, "t"),
    Ended(31, "a", "t", "DONE", "t", 25),
)


def test_what_redis_has_lost_is_lost_and_may_run_again() -> None:
    assert rules(place="") == {"kept"}
    assert rules(RolledBack(2, "a"), place="") == set()
    assert rules(*TWICE) == {"once_at_most", "reasons"}
    assert rules(*TWICE, RolledBack(2, "a")) == set()


@pytest.mark.parametrize(("places", "is_over"), [({}, True), ({"a": ["completed"]}, True), ({"a": ["active"]}, False)])
def test_what_was_deleted_and_is_there_again_after_a_fail_over_is_to_end(
    places: dict[str, list[str]], is_over: bool
) -> None:
    history = History()  # of the first submit of an id that is submitted again and again
    for one in (Sent(1, "a#0", 1, 0, "", False), Answered(1, "a#0", True), RolledBack(3, "a"), RolledBack(3, "a#0")):
        history.note(one)
    history.others.append(Acted(2, "a#0", "forget", True))
    assert history.are_ended(places) is is_over


def test_a_run_is_not_over_while_an_acknowledged_task_is_nowhere() -> None:
    history = History()
    for one in (Sent(1, "a", 1, 0, "", False), Answered(1, "a", True)):
        history.note(one)
    assert not history.are_ended({})
    history.note(Began(1.1, "a", "s", 0, "s"))
    history.note(Ended(2, "a", "s", "DONE", "s", 25))
    assert history.are_ended({})


def test_of_another_task_nothing_is_excused() -> None:
    assert rules(RolledBack(2, "b"), place="") == {"kept"}


def test_slots_that_move_are_no_reason_to_run_again() -> None:
    assert rules(*TWICE, Struck(1, 20, "slots", "move")) == {"once_at_most", "reasons"}

"""Lanes in a world: their promises hold, and each rule about them can fail."""

from typing import Any

import pytest

from tests.simulation.happenings import (
    Acted,
    Changing,
    Collected,
    Happening,
    InRedis,
    Laned,
    Left,
    Limited,
    Placed,
    Rested,
    Switched,
    Waiting,
)
from tests.simulation.judge import Answered, Began, Ended, History, RolledBack, Sent, Struck
from tests.simulation.rules import judge_all
from tests.simulation.test_simulation import needs_clocks, reports, simulate

IN_LANES = (Laned(0, "a", "p:1", True), Laned(0, "b", "p:1", True), Laned(0, "c", "p:2", False))
RUN = (Began(1.1, "a", "s", 0, "s"), Ended(2, "a", "s", "DONE", "s", 25.0))
PARKED = (Began(1.1, "a", "s", 0, "s"), Ended(2, "a", "s", "RATE_LIMITED", "s", 25.0))
A, B, C, A_ENDS = Placed(1, "a", True), Placed(1.5, "b", True), Placed(1.5, "c", True), Placed(1.2, "a", False)
B_WAITS = Waiting(1, "p:1", ("b",))


def limit(
    name: str,
    concurrency: int = 0,
    interval_s: float = 0.0,
    burst: int = 1,
    *,
    at_s: float = 0.5,
    is_paused: bool = False,
    is_there: bool = True,
) -> Limited:
    return Limited(at_s, name, concurrency, interval_s, burst, is_paused, is_there)


def broken(lanes: tuple[InRedis, ...], *others: Happening, happened: tuple[Any, ...] = RUN) -> set[str]:
    made = History()
    for task_id in "abcde":
        made.note(Sent(1, task_id, 1, 1, "", False))
    made.note(Answered(1, "a", True))
    for one in happened:
        made.note(one)
    made.others, made.lanes, made.places = [*IN_LANES, *others], list(lanes), {"a": ["completed"]}
    return {line.partition(":")[0] for line in judge_all(made)}


@pytest.mark.parametrize(
    ("lanes", "is_kept"),
    [
        ((limit("p:1", 1), A, A_ENDS, B), True),
        ((limit("p:1", 1), A, B), False),
        ((limit("p:1", 2), A, B), True),
        ((limit("p:*", 1), A, C), False),
        ((limit("p:*", 2), A, C), True),
        ((limit("*", 1), A, C), True),
        ((limit("*", 1), A, B), False),
        ((limit("*", 1), limit("p:1", 0), A, B), True),
        ((limit("", 1), A, C), False),
        ((limit("", 2), A, C), True),
        # What ran already when the lane got its first concurrency is not counted.
        ((A, limit("p:1", 1, at_s=1.1), B), True),
        ((limit("p:1", 2), A, limit("p:1", 1, at_s=1.1), B), False),
        ((limit("p:1", 1), A, limit("p:1", at_s=1.1, is_there=False), B), True),
        ((limit("p:1", is_paused=True), A), False),
        ((limit("p:*", is_paused=True), A), False),
        ((limit("p:1", interval_s=0.5), A, B), True),
        ((limit("p:1", interval_s=0.6), A, B), False),
        ((limit("p:1", interval_s=0.6, burst=2), A, B), True),
        ((limit("p:*", interval_s=0.6), A, C), False),
        ((limit("*", interval_s=0.6), A, C), True),
        ((limit("p:1", interval_s=0.6), A, Switched(1.2), B), True),
        # Its end was lost with the former master.
        ((limit("p:1", 1), A, Switched(1.5), B), True),
        ((limit("p:1", 1), A, Switched(1.4), B), False),
        ((limit("p:1", interval_s=0.6), A, limit("p:1", interval_s=0.7, at_s=1.2), B), True),
    ],
)
def test_limits_are_never_exceeded(lanes: tuple[InRedis, ...], is_kept: bool) -> None:
    assert broken(lanes) == (set() if is_kept else {"lane_limits"})


def test_a_server_that_was_cut_off_may_not_know_the_limit_of_the_queue() -> None:
    lanes = limit("", 1), A, C
    assert broken(lanes, happened=(*RUN, Struck(0, 1, "s", "partition"))) == set()
    for who, kind in (("s", "kill"), ("low", "pause")):
        assert broken(lanes, happened=(*RUN, Struck(0, 1, who, kind))) == {"lane_limits"}


def test_what_somebody_runs_by_hand_goes_past_the_limits() -> None:
    assert broken((limit("p:1", 1), A, B), Acted(0.5, "b", "run", True)) == set()


@pytest.mark.parametrize(
    ("lanes", "happened", "is_kept"),
    [
        ((A, Placed(2, "a", False), Placed(3, "b", True)), PARKED, False),
        ((A, Placed(2, "a", False), Placed(6, "b", True)), PARKED, True),
        ((A, Placed(2, "a", False), Placed(3, "c", True)), PARKED, True),
        ((A, Placed(2, "a", False), limit("p:1", 1, at_s=2.5), Placed(3, "b", True)), PARKED, True),
        ((A, Placed(2, "a", False), Changing(3, True), Placed(3, "b", True)), PARKED, True),
        ((Changing(0, True), A, Changing(1.5, False), Placed(2, "a", False), Placed(3, "b", True)), PARKED, False),
        ((A, Placed(2, "a", False), Placed(3, "b", True)), (*PARKED, Struck(1, 2, "s", "lossy")), True),
    ],
)
def test_a_lane_that_is_to_rest_starts_nothing(
    lanes: tuple[InRedis, ...], happened: tuple[Any, ...], is_kept: bool
) -> None:
    ran = Began(20, "a", "s", 0, "s"), Ended(21, "a", "s", "DONE", "s", 25.0)
    assert broken(lanes, Rested(2, "a", 3), happened=(*happened, *ran)) == (set() if is_kept else {"rests"})


LATER = Waiting(9, "p:1", ())
BUSY = tuple(Began(1, task_id, "s", 0, "s") for task_id in "bcde")


@pytest.mark.parametrize(
    ("lanes", "happened", "is_kept"),
    [
        ((B_WAITS, LATER), RUN, False),
        ((B_WAITS, Waiting(6, "p:1", ()), LATER), RUN, True),
        ((B_WAITS, Placed(5, "b", True), LATER), RUN, True),
        ((B_WAITS, LATER), (*RUN, *BUSY), True),
        ((B_WAITS, LATER), (*RUN, Struck(1, 9, "low", "pause")), True),
        ((B_WAITS, LATER), (*RUN, Struck(0, 0.5, "s", "cut")), True),
        ((B_WAITS, LATER._replace(at_s=60)), (*RUN, Struck(0, 0.5, "s", "cut")), False),
        ((B_WAITS, LATER._replace(at_s=60)), (*RUN, Struck(0, 0.5, "s", "kill")), True),
        ((B_WAITS, LATER._replace(at_s=160)), (*RUN, Struck(0, 0.5, "s", "kill")), False),
        ((limit("p:1", 1), A, B_WAITS, LATER), RUN, True),
        ((limit("p:1", 2), A, B_WAITS, LATER), RUN, False),
        ((limit("p:*", 1), A, B_WAITS, LATER), RUN, True),
        ((limit("", 1), A, B_WAITS, LATER), RUN, True),
        ((limit("p:1", is_paused=True), B_WAITS, LATER), RUN, True),
        ((limit("p:1", interval_s=60.0), A, A_ENDS, B_WAITS, LATER), RUN, True),
        # A change holds at once.
        ((limit("p:1", interval_s=60.0), A, A_ENDS, B_WAITS, limit("p:1", interval_s=1.0), LATER), RUN, False),
    ],
)
def test_no_lane_idles(lanes: tuple[InRedis, ...], happened: tuple[Any, ...], is_kept: bool) -> None:
    assert broken(lanes, happened=happened) == (set() if is_kept else {"idle"})


def test_a_lane_that_rests_does_not_idle() -> None:
    assert broken((B_WAITS, LATER), Rested(2, "a", 9)) == set()


STRICT, LIFO = limit("p:1", 1)._replace(order="strict"), limit("p:1")._replace(order="lifo")
AGAIN = Placed(30, "a", True)
RAN_TWICE = (
    Began(1.1, "a", "s", 0, "s"),
    Ended(2, "a", "s", "FAILED", "s", 25.0),
    *(Began(30, "a", "s", 1, "s"), Ended(31, "a", "s", "DONE", "s", 25.0)),
)


@pytest.mark.parametrize(
    ("lanes", "is_kept"),
    [
        ((STRICT, A, A_ENDS, AGAIN, Placed(31, "a", False), Placed(32, "b", True)), True),
        ((STRICT, A, A_ENDS, B, Placed(2, "b", False), AGAIN), False),
        ((STRICT, A, A_ENDS, C, Placed(2, "c", False), AGAIN), True),
        ((limit("p:1", 1), A, A_ENDS, B, Placed(2, "b", False), AGAIN), True),
        ((limit("*", 1)._replace(order="strict"), A, A_ENDS, B, Placed(2, "b", False), AGAIN), False),
        # A pause leaves the order in force, another limit ends it.
        ((STRICT, A, A_ENDS, STRICT._replace(is_paused=True), STRICT, B, Placed(2, "b", False), AGAIN), False),
        ((STRICT, A, A_ENDS, LIFO, STRICT, B, Placed(2, "b", False), AGAIN), True),
        ((STRICT, A, A_ENDS, Switched(1.3), B, Placed(2, "b", False), AGAIN), True),
        # It began before the lane was a sequence, and came back: seed 22018 of single-lanes.
        ((A, STRICT, A_ENDS, B, Placed(2, "b", False), AGAIN, Placed(31, "a", False), Placed(32, "b", True)), True),
        # Its end was lost after that: seed 2 of sentinel-lanes.
        ((STRICT, A, A_ENDS, B, Placed(2, "b", False), Switched(3), AGAIN), True),
    ],
)
def test_a_sequence_starts_nothing_while_a_task_is_to_be_tried_again(lanes: tuple[InRedis, ...], is_kept: bool) -> None:
    assert broken(lanes, happened=RAN_TWICE) == (set() if is_kept else {"sequences"})


def test_a_sequence_that_waits_for_a_retry_does_not_idle() -> None:
    lanes = (STRICT, A, A_ENDS, Waiting(1.2, "p:1", ("b",)), AGAIN)
    assert broken(lanes, happened=RAN_TWICE) == set()
    assert broken((limit("p:1", 1), *lanes[1:]), happened=RAN_TWICE) == {"idle"}


def in_turn(*turns: str, at_s: float = 1.0) -> tuple[InRedis, ...]:
    """Have tasks wait in a lane, and be taken one by one."""
    ids = tuple(sorted(turns))
    made: list[InRedis] = [Waiting(at_s, "p:1", ids[: nth + 1]) for nth in range(len(ids))]
    for nth, task_id in enumerate(turns):
        left = tuple(one for one in ids if one not in turns[: nth + 1])
        made += [Placed(at_s + 1, task_id, True), Waiting(at_s + 1, "p:1", left)]
    return tuple(made)


CAME_BACK = (Waiting(1, "p:1", ("a",)), A, Waiting(1, "p:1", ()), A_ENDS, Waiting(1.2, "p:1", ("a",)))
E_WAITED = (Waiting(1, "p:1", ("e",)), Placed(1.1, "e", True), Waiting(1.1, "p:1", ()))
E_WAITS = (Placed(1.2, "e", False), Waiting(1.2, "p:1", ("e",)), Waiting(1.3, "p:1", ("a", "e")))
A_FIRST = (Placed(1.4, "a", True), Waiting(1.4, "p:1", ("e",)))
OF_B, OF_C = ((one, Waiting(one.at_s, "p:1", ("a",))) for one in (B, C))


@pytest.mark.parametrize(
    ("lanes", "is_kept"),
    [
        (in_turn("a", "b"), True),
        (in_turn("b", "a"), False),
        ((LIFO, *in_turn("b", "a")), True),
        ((LIFO, *in_turn("a", "b")), False),
        (in_turn("d", "a", "e"), True),
        (in_turn("a", "d", "e"), False),
        (in_turn("e", "d", "a"), False),
        ((LIFO, *in_turn("d", "e")), True),
        ((LIFO, *in_turn("e", "d")), False),
        # Where tasks were placed before the order changed, nobody knows.
        ((*in_turn("b", "a")[:2], LIFO._replace(at_s=1.5), *in_turn("b", "a")[2:]), True),
        ((*in_turn("b", "a")[:2], Switched(1.5), *in_turn("b", "a")[2:]), True),
        # What was not run to its end is the next.
        ((*CAME_BACK, Waiting(1.3, "p:1", ("a", "b")), *OF_B), False),
        ((*CAME_BACK, Waiting(1.3, "p:1", ("a", "d")), Placed(1.5, "d", True), Waiting(1.5, "p:1", ("a",))), False),
        ((LIFO, *CAME_BACK, Waiting(1.3, "p:1", ("a", "b")), *OF_B), True),
        (
            (LIFO, *CAME_BACK, Waiting(1.3, "p:1", ("a", "e")), Placed(1.5, "e", True), Waiting(1.5, "p:1", ("a",))),
            False,
        ),
        # Only its take was lost, with the former master: it waits where it was. Seed 400433 of any-lanes.
        ((*E_WAITED, Switched(1.2), *E_WAITS, *A_FIRST), True),
        ((*E_WAITED, *E_WAITS, *A_FIRST), False),
    ],
)
def test_a_lane_keeps_its_order(lanes: tuple[InRedis, ...], is_kept: bool) -> None:
    more = Laned(0, "d", "p:1", True, 5), Laned(0, "e", "p:1", True, -5)
    assert broken(lanes, *more) == (set() if is_kept else {"orders"})


DEADLINE = LIFO._replace(order="deadline")
BEHIND_D = Placed(1.5, "d", True), Waiting(1.5, "p:1", ("a",))
URGENT_FIRST = in_turn("e", "d")


@pytest.mark.parametrize(
    ("lanes", "is_kept"),
    [
        ((DEADLINE, *in_turn("d", "e", "a")), True),
        ((DEADLINE, *URGENT_FIRST), False),
        ((DEADLINE, *in_turn("a", "d")), False),
        (in_turn("a", "d", "e"), True),
        (URGENT_FIRST, False),
        # Where tasks were placed before the order changed, nobody knows; nor that of those that were sent before.
        ((*URGENT_FIRST[:2], DEADLINE._replace(at_s=1.5), *URGENT_FIRST[2:]), True),
        ((Waiting(0.1, "p:1", ("a",)), DEADLINE, *URGENT_FIRST), True),
        # What was not run to its end is the next.
        ((DEADLINE, *CAME_BACK, Waiting(1.3, "p:1", ("a", "d")), *BEHIND_D), False),
    ],
)
def test_a_lane_starts_the_most_urgent_first(lanes: tuple[InRedis, ...], is_kept: bool) -> None:
    more = (Laned(0, one, "p:1", True, deadline_s=due_s) for one, due_s in (("d", 20), ("e", 30)))
    assert broken(lanes, *more) == (set() if is_kept else {"orders"})


def test_a_clock_that_jumped_leaves_only_priorities_in_order() -> None:
    jumped = (*RUN, Struck(0, 0, "laner", "clock"))
    more = Laned(0, "d", "p:1", True, 5), Laned(0, "e", "p:1", True, -5)
    assert broken(in_turn("b", "a"), *more, happened=jumped) == set()
    assert broken(in_turn("e", "d"), *more, happened=jumped) == {"orders"}


@pytest.mark.parametrize(("busy", "is_kept"), [(BUSY, True), (BUSY[1:], False)])
def test_beside_lanes_a_task_may_wait_for_a_child(busy: tuple[Any, ...], is_kept: bool) -> None:
    """Found by seed 21021 of single-lanes: as many tasks came as three servers can run."""
    made: list[Any] = []
    for nth in range(10):
        made += [Sent(1, f"t{nth}", 1, 1, "", True), Answered(1, f"t{nth}", True), Began(3, f"t{nth}", "s", 0, "s")]
        made += [Ended(3, f"t{nth}", "s", "DONE", "s", 25.0)]
    ends = tuple(Ended(3, one.id, "s", "DONE", "s", 25.0) for one in busy)
    assert ("waits" in broken((limit("p:1"),), happened=(*RUN, *busy, *made, *ends))) != is_kept


COMBINED = Collected(3, "x", ("c",))


@pytest.mark.parametrize(
    ("made", "happened", "is_kept"),
    [
        (Collected(3, "x", ("a",)), RUN, False),
        (COMBINED, RUN, True),
        (COMBINED, (*RUN, Began(3, "c", "s", 0, "s"), Ended(4, "c", "s", "DONE", "s", 25.0)), False),
        (COMBINED, (*RUN, RolledBack(2, "c"), Began(3, "c", "s", 0, "s"), Ended(4, "c", "s", "DONE", "s", 25.0)), True),
    ],
)
def test_lanes_are_not_combined(made: Collected, happened: tuple[Any, ...], is_kept: bool) -> None:
    assert broken((), made, happened=happened) == (set() if is_kept else {"combined"})


def test_nothing_of_a_lane_is_left_at_the_end() -> None:
    assert broken((), Left("asynq:{low}:h:p:1", ("a",))) == {"lanes_left"}


@needs_clocks
@pytest.mark.slow
@pytest.mark.parametrize(("site", "seed"), [("single", 13), ("sentinel", 1), ("cluster", 4)])
def test_the_promises_hold(site: str, seed: int) -> None:
    found = reports("--site", f"{site}-lanes", "--seed", str(seed), "--count", "2")
    assert [(one["seed"], one["site"]) for one in found] == [(at, f"{site}-lanes") for at in (seed, seed + 1)]
    assert [one for one in found if one["broken"]] == []
    assert min(one["leases"] for one in found) > 20


@needs_clocks
@pytest.mark.slow
def test_a_planted_mistake_is_found() -> None:
    assert simulate("--plant", "an end frees all places of its lane", "--count", "5")[-1] == "1 of 1 mistakes found"

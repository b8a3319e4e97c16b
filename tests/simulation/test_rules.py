"""Each further rule of the judge: a history that keeps it, and one that breaks it."""

import re
from pathlib import Path
from typing import Any, Final

import pytest

from fastq.broker.scripts import SCRIPTS
from tests.simulation.happenings import (
    Acted,
    Collected,
    Counted,
    Grouped,
    Happening,
    Held,
    Keyed,
    Paused,
    Remembered,
    Saved,
    Ticked,
    Told,
    Undone,
    Wrote,
)
from tests.simulation.judge import Answered, Began, Ended, History, RolledBack, Sent, Struck
from tests.simulation.rules import judge_all
from tests.simulation.story import story_of

DONE = (Began(1.1, "a", "s", 0, "s"), Ended(2, "a", "s", "RESULT", "s", 25.0, "one"))
LONG = (Began(1.1, "a", "s", 0, "s"), Ended(60, "a", "s", "DONE", "s", 25.0))
AGAIN = (
    Began(1.1, "a", "s", 0, "s"),
    Ended(2, "a", "s", "FAILED", "s", 25.0),
    Began(30, "a", "s", 1, "s", "two"),
    Ended(31, "a", "s", "DONE", "s", 25.0),
)
ONCE = Sent(1, "a", 1, 0, "", True)
KILLED = (ONCE, Began(1.1, "a", "s", 0, "s"), Struck(2, 9, "s", "kill"))
LIMITED = (ONCE, Began(1.1, "a", "s", 0, "s"), Ended(2, "a", "s", "RATE_LIMITED", "s", 25.0))
FORGOTTEN = (Counted("Redis", "failed", 1), Acted(30, "a", "forget", True))
FROM_ONE = (*AGAIN[:2], Began(30, "a", "s", 1, "s", "one"), AGAIN[3])
FAILED = (Began(1.1, "a", "s", 0, "s"), Ended(2, "a", "s", "FAILED", "s", 25.0))
KEPT = {"a": ["completed"]}
WROTE = (Wrote(1.2, "a", "CHECKPOINT", "one"), Wrote(1.3, "a", "CHECKPOINT", "two"))
BATCHES = (Collected(3, "x", ("m",)), Collected(4, "y", ("m",)))
MOVE = Struck(1.5, 20, "slots", "move")
MUCH_LATER = (Began(40, "a", "s", 0, "s"), Ended(41, "a", "s", "RESULT", "s", 25.0, "one"))
LATER = (Began(3, "a", "s", 0, "s"), Ended(4, "a", "s", "DONE", "s", 25.0))
THAWED = (Struck(3, 39, "s", "stop"), Began(39.1, "a", "s", 0, ""), Ended(39.2, "a", "s", "CANCELED", "", 0))
OWNED = (THAWED[0], Began(39.1, "a", "s", 0, "s"), Ended(39.2, "a", "s", "CANCELED", "s", 25.0))
HELD = (Held(50, "y", 55), Held(53, "z", 56))
TICKS = (Ticked(1, "t", 6, "a"), Ticked(1, "t", 6, "b"))
BY_KEY = tuple(
    one
    for number, at_s in ((1, 1.1), (2, 3))
    for one in (
        Sent(1, f"k#{number}", 1, 1, "", True),
        Began(at_s, f"k#{number}", "s", 0, "s"),
        Ended(at_s + 1, f"k#{number}", "s", "DONE", "s", 25.0),
    )
)
LATE_ONE = (*BY_KEY, Began(6, "k#1", "s", 0, "s"), Ended(7, "k#1", "s", "DONE", "s", 25.0))
LATE_WITHOUT = (Struck(5, 40, "s", "stop"), Began(40, "k#1", "s", 0, ""), Ended(41, "k#1", "s", "CANCELED", "", 0))
STORED = (Keyed(1, "k", 1, True), Keyed(2, "k", 2, True))
SAVED = (Wrote(1.2, "k#1", "CHECKPOINT", "one"), Saved(1.3, "k#1", "one"))
FEW_TICKS = (Ticked(1, "t", 6, "a"), Ticked(2, "t", 12, "a"), Ticked(3, "t", 24, "a"))

KNOWN_TO_THE_JUDGE: Final = {
    "tests.simulation",
    "tests.simulation.happenings",
    "tests.simulation.judge",
    *(
        f"tests.simulation.rules.{name}"
        for name in ("by_hand", "counting", "keyed", "lanes", "limits", "making", "orders", "results")
    ),
}


def test_a_story_has_what_names_the_task_and_all_faults() -> None:
    sha = SCRIPTS["dequeue"].sha
    trace = [
        "1.5 request s#1 [[b'EVALSHA', b'" + sha + "', b'5', b't1']]",
        "2.0 fault s 'kill' 3.0",
        "3.0 push s#2 b't2'",
    ]
    told = [line.split() for line in story_of("t1", trace)]
    assert [words[1] for words in told] == ["request", "fault"]
    assert told[0][3].startswith("[[dequeue,")


def broken(runs: tuple[Any, ...], others: tuple[Happening, ...], places: dict[str, list[str]]) -> set[str]:
    made = History()
    made.note(Sent(1, "a", 1, 1, "", True))
    made.note(Answered(1, "a", True))
    for one in runs:
        made.note(one)
    made.others, made.places = list(others), places
    return {line.partition(":")[0] for line in judge_all(made)}


@pytest.mark.parametrize(
    ("runs", "others", "places", "fault"),
    [
        (DONE, (Told(2.1, "a", "done", "one", True),), KEPT, ""),
        (DONE, (Told(2.1, "a", "done", "two", True),), KEPT, "results"),
        (DONE, (Told(2.1, "a", "done", "one", False),), KEPT, "results"),
        (DONE, (Told(2.1, "a", "failed", "", True),), KEPT, "results"),
        (DONE, (Told(2.1, "a", "gone", "", True),), KEPT, "results"),
        (DONE, (Told(40, "a", "done", "one", True),), KEPT, "results_in_time"),
        (DONE, (Told(600, "a", "nothing", "", True),), KEPT, "results_in_time"),
        (AGAIN, (*WROTE, Saved(1.4, "a", "two")), KEPT, ""),
        (AGAIN, WROTE[:1], KEPT, "checkpoints"),
        (FROM_ONE, (*WROTE, Saved(1.4, "a", "two")), KEPT, "checkpoints"),
        (FROM_ONE, (*WROTE, Saved(1.25, "a", "one"), Undone(1.3, "two"), Saved(1.4, "a", "two")), KEPT, ""),
        (FROM_ONE, (*WROTE, Saved(1.4, "a", "two"), Undone(1.5, "one")), KEPT, "checkpoints"),
        ((RolledBack(1.5, "a"), *FROM_ONE), (*WROTE, Saved(1.4, "a", "two")), KEPT, "checkpoints"),
        ((*AGAIN[:2], Began(30, "a", "s", 1, "", "one"), AGAIN[3]), (*WROTE, Saved(1.4, "a", "two")), KEPT, "owned"),
        (LONG, (Acted(20, "a", "cancel", True),), KEPT, "canceled"),
        (LONG, (Acted(55, "a", "cancel", True),), KEPT, ""),
        (
            (*LONG, Sent(1, "b", 1, 1, "", True), Began(1.1, "b", "s", 0, "s")),
            (Acted(20, "a", "cancel", True),),
            KEPT,
            "",
        ),
        ((Began(1.1, "a", "s", 0, "s"), Ended(2, "a", "s", "RERUN", "s", 25.0), *LATER), (), KEPT, ""),
        # Its server was cut off before the slot was whole, and the end could be written: seed 600005 of cluster-lanes.
        ((*DONE, MOVE, Struck(18, 60, "s", "partition"), *MUCH_LATER), (), KEPT, ""),
        ((*DONE, MOVE, *MUCH_LATER), (), KEPT, "reasons"),
        ((*DONE, Struck(18, 60, "s", "partition"), *MUCH_LATER), (), KEPT, "reasons"),
        (DONE, (Acted(3, "a", "delete", True),), {}, ""),
        (DONE, (Acted(3, "a", "delete", True),), KEPT, "deleted"),
        (AGAIN, (*WROTE, Acted(3, "a", "delete", True)), {}, "deleted"),
        (DONE, (Paused(5, "low", ()),), KEPT, ""),
        (DONE, (Paused(5, "low", ("a",)),), KEPT, "paused"),
        ((*DONE, *BY_KEY), STORED, KEPT, ""),
        ((*DONE, *BY_KEY), (*STORED, Keyed(3, "k", 3, True)), KEPT, "newest"),
        ((*DONE, *BY_KEY), (*STORED, Keyed(3, "k", 3, None)), KEPT, ""),
        ((*DONE, *BY_KEY), (*STORED, Keyed(3, "k", 3, False)), KEPT, ""),
        ((*DONE, *LATE_ONE), STORED, KEPT, "in_turn"),
        # It woke after its lease had ended, and was stopped: seed 400589 of any-lanes.
        ((*DONE, *BY_KEY, *LATE_WITHOUT), STORED, KEPT, ""),
        ((*DONE, *BY_KEY[:3], *LATE_WITHOUT), STORED[:1], KEPT, ""),
        ((*DONE, BY_KEY[0], *LATE_WITHOUT), STORED[:1], KEPT, "newest"),
        ((*DONE, RolledBack(5, "k"), RolledBack(5, "k#1"), *LATE_ONE), STORED, KEPT, ""),
        ((*DONE, RolledBack(5, "k"), RolledBack(5, "k#1"), *LATE_ONE), (*STORED, *SAVED), KEPT, ""),
        ((*DONE, *LATE_ONE), (*STORED, *SAVED), KEPT, "checkpoints"),
        (DONE, (Grouped(1, "m", True), BATCHES[0]), KEPT, ""),
        (DONE, (Grouped(1, "m", True),), KEPT, "groups"),
        (DONE, (Grouped(1, "m", True), *BATCHES), KEPT, "groups"),
        (DONE, (Grouped(1, "m", False), BATCHES[0]), KEPT, "groups"),
        (DONE, TICKS, KEPT, ""),
        (DONE, TICKS, {**KEPT, "b": ["pending"]}, "ticks"),
        (DONE, FEW_TICKS, KEPT, "ticks_come"),
        (FAILED, (), {"a": ["archived"]}, "tried_enough"),
        (LIMITED, (), {"a": ["archived"]}, "tried_enough"),
        # It was put back, and lost with the server that had it next: seed 540333 of any-lanes.
        ((*LIMITED, Struck(50, 90, "s", "kill")), (), {"a": ["archived"]}, ""),
        ((ONCE, *DONE, Struck(50, 90, "s", "kill")), (), {"a": ["archived"]}, "tried_enough"),
        (DONE, (Counted("Redis", "processed", 1), Counted("history", "done", 1)), KEPT, ""),
        (DONE, (Counted("Redis", "processed", 0),), KEPT, "counters"),
        (DONE, (Counted("Redis", "processed", 2),), KEPT, "counters"),
        (DONE, (Counted("Redis", "failed", 1),), KEPT, "counters"),
        (DONE, (Counted("history", "done", 2),), KEPT, "counters"),
        (DONE, (Counted("history", "done", 0),), KEPT, "counters"),
        ((*DONE, Struck(5, 9, "redis", "fail-over")), (Counted("history", "done", 0),), KEPT, ""),
        # It woke after its lease had ended, and began what was in its hands: seed 1201659 of single, short.
        ((*DONE, *THAWED), (Counted("history", "failed", 0),), KEPT, ""),
        ((*DONE, *OWNED), (Counted("history", "failed", 0),), KEPT, "counters"),
        (KILLED, FORGOTTEN, {}, ""),
        (KILLED, (Counted("Redis", "failed", 2), *FORGOTTEN[1:]), {}, "counters"),
        (KILLED[1:], FORGOTTEN, {}, "counters"),
        ((ONCE, *DONE), FORGOTTEN, {}, "counters"),
        ((ONCE, *FAILED), FORGOTTEN, {}, ""),
        (DONE, (*HELD, Held(60, "x", 61)), KEPT, ""),
        (DONE, (*HELD, Held(54, "x", 55)), KEPT, "semaphores"),
        (DONE, (*HELD, Held(54, "x", None)), KEPT, ""),
        (DONE, (*HELD, Held(56.5, "x", None)), KEPT, "semaphores"),
        (DONE, (*HELD, Held(55.5, "x", None)), KEPT, ""),
        (DONE, 2 * (Remembered(90, "a", "s", "way"),), KEPT, ""),
        (DONE, 3 * (Remembered(60, "a", "s", "way"),), KEPT, ""),
        (DONE, 3 * (Remembered(90, "a", "s", "way"),), KEPT, "memory"),
        ((*DONE, Struck(3, 40, "s", "stop")), 3 * (Remembered(90, "a", "s", "way"),), KEPT, ""),
        ((*DONE, Struck(3, 20, "s", "stop")), 3 * (Remembered(90, "a", "s", "way"),), KEPT, "memory"),
        ((*DONE, Struck(3, 40, "other", "stop")), 3 * (Remembered(90, "a", "s", "way"),), KEPT, "memory"),
    ],
)
def test_the_judge_names_the_broken_rule(
    runs: tuple[Any, ...], others: tuple[Happening, ...], places: dict[str, list[str]], fault: str
) -> None:
    found = broken(runs, others, places)
    assert (fault in found) if fault else not found


def test_the_judge_knows_nothing_of_fastq() -> None:
    here = Path(__file__).parent
    for path in (here / "judge.py", here / "happenings.py", *here.glob("rules/*.py")):
        modules = [line.split()[1] for line in path.read_text().splitlines() if re.match("(from|import) ", line)]
        assert not [name for name in modules if name.startswith("fastq")], path
        assert {name for name in modules if name.startswith("tests")} <= KNOWN_TO_THE_JUDGE, path

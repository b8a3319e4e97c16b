"""The judge of a history: what was promised of tasks, against what was seen. It knows nothing of fastq.

A history says what was sent and how it was answered, who ran what and how it ended, and what was struck when. Each rule
is a sentence of docs/delivery.md; it yields a line for each task that breaks it.
"""

from collections import defaultdict
from collections.abc import Iterator
from copy import copy
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple, TypeVar

from tests.simulation.happenings import Acted, Collected, Happening, InRedis, Laned, Limited

H = TypeVar("H", bound=NamedTuple)

OF_ALL: Final = "redis"
"""Who is struck where that strikes all servers."""
OF_SLOTS: Final = "slots"
"""Who is struck where slots move: no server, but ends may have to wait until the slot is whole again."""
DONE: Final = ("DONE", "RESULT")
CHARGED: Final = ("FAILED", "CRASHED", "TIMEOUT", "SKIP_RETRY", "CANCELED")
RETURNED: Final = ("ABORTED", "RERUN", "RATE_LIMITED")
"""How a run ends that is not to blame: with its server, with the child of its call, or as its lane has to rest."""
AFTERMATH_S: Final = 40.0
"""For so long after a fault its consequences may show: a lease of 30 s, and a round of who looks for ended ones."""
WRITTEN_S: Final = 5.0
"""Within so long an end is written where nothing fails."""
BEAT_S: Final = 15.0
"""Within so long a server that is well again has heard which leases it has lost, and has ended what ran on them."""
LEAST_LEFT_S: Final = 10.0
"""What a lease has left at least, of a server that is well."""
RETRY_S: Final = 10.0
"""No retry comes sooner."""
BRIEFLY_S: Final = 45.0
"""The longest wait beside faults that end no server and hold none up: what was lost on the wire is looked for."""
DEATHS: Final = ("kill", "stop", "partition", "clock", "stall")
BRIEF_FREEZE_S: Final = 25.0
"""No lease ends in a freeze that is shorter: it lasts for 30 s, and is extended every 5 s."""
BY_PEERS_S: Final = 12.0
"""Within so long the tasks of a killed server are taken: eight seconds without a sign, and one sign of each side."""
BY_SUCCESSOR_S: Final = 2.5
"""The same, from its restart."""
AFTER_REFUSAL_S: Final = 62.0
"""A server whose sign was refused gives none for a minute, and takes nothing meanwhile."""
CHILDREN: Final = 4
"""Of a server; each runs one task."""
STARTED_S: Final = 0.6
"""Until then the first servers start their children: nobody takes a task."""
SKEW_S: Final = 2.0
"""How far clocks may differ that did not jump, and Redis' seconds may be rounded."""
HEALTHY_WAIT_S: Final = 0.3
"""The median wait of tasks that come while nothing fails, not counting the time that they wait for a busy child."""
LONGEST_WAIT_S: Final = 180.0
"""The longest wait beside faults, without their own length: a lost dequeue is found by the next recoverer."""


class Sent(NamedTuple):
    """A task that is to be enqueued; ``due_s`` is when it may run at the earliest."""

    at_s: float
    id: str
    due_s: float
    max_retry: int
    unique: str
    keeps: bool


class Answered(NamedTuple):
    """What a producer was told at last: acknowledged, or refused."""

    at_s: float
    id: str
    is_acknowledged: bool


class Began(NamedTuple):
    """A handler began; ``retried`` is what its message says, ``owner`` is the server that has its lease, if any."""

    at_s: float
    id: str
    server: str
    retried: int
    owner: str
    checkpoint: str = ""


class Ended(NamedTuple):
    """The last handler that began for this task on this server has ended; ``left_s`` is what its lease had left."""

    at_s: float
    id: str
    server: str
    kind: str
    owner: str
    left_s: float
    result: str = ""


class Struck(NamedTuple):
    """A fault, while it lasted."""

    at_s: float
    until_s: float
    who: str
    kind: str


class Freed(NamedTuple):
    """A server that was killed at a time has no lease any more."""

    at_s: float
    who: str
    killed_s: float


class RolledBack(NamedTuple):
    """A write about a task was lost with its Redis, whose successor had not got it."""

    at_s: float
    id: str


class Run(NamedTuple):
    """A run of a handler; ``ended_s`` is infinite, and ``kind`` empty, for one whose server died in it."""

    began_s: float
    server: str
    retried: int
    owner: str
    ended_s: float = float("inf")
    kind: str = ""
    last_owner: str = ""
    left_s: float = 0.0
    checkpoint: str = ""
    result: str = ""


class History:
    """All that happened, and where each task is at the end (the names of all lists and sets that have its id)."""

    def __init__(self, skew_s: float = SKEW_S) -> None:
        self.skew_s = skew_s
        self.sent: dict[str, Sent] = {}
        self.answered: dict[str, Answered] = {}
        self.struck: list[Struck] = []
        self.freed: list[Freed] = []
        self.places: dict[str, list[str]] = {}
        self.left: list[str] = []
        """Keys that should not be there at the end."""
        self.runs: defaultdict[str, list[Run]] = defaultdict(list)
        self.all_runs = self.runs
        """Also those of the tasks that a part of a history is without: they took children, too."""
        self.others: list[Happening] = []
        self.lanes: list[InRedis] = []
        """What Redis had of lanes, in order."""
        self.stuck: list[str] = []
        """Who has not come to the end of what it does."""
        self.rolled_back: dict[str, float] = {}
        """The tasks that Redis has lost writes about, and when it last did."""
        self.raised: list[str] = []
        """What callbacks have raised."""
        self.stale: list[str] = []
        """Who talked to a server that was no master any more, though that could be known."""

    def all_of(self, kind: type[H]) -> list[H]:
        """Return all that happened of one kind, in order."""
        return [one for one in self.others if isinstance(one, kind)]

    def by_hand(self) -> set[str]:
        """Return the tasks to which an inspector has done something."""
        return {one.id for one in self.all_of(Acted) if one.what != "forget"}

    def without(self, ids: set[str]) -> "History":
        """Return the same history without some tasks."""
        fewer = copy(self)
        fewer.sent = {task_id: one for task_id, one in self.sent.items() if task_id not in ids}
        fewer.answered = {task_id: one for task_id, one in self.answered.items() if task_id not in ids}
        runs = {task_id: one for task_id, one in self.runs.items() if task_id not in ids}
        fewer.runs = defaultdict(list, runs)
        return fewer

    def note(self, what: Sent | Answered | Began | Ended | Struck | Freed | RolledBack) -> None:
        """Add what happened, in the order of time."""
        match what:
            case Sent():
                self.sent[what.id] = what
            case Answered():
                self.answered[what.id] = what
            case Struck():
                self.struck.append(what)
            case Freed():
                self.freed.append(what)
            case RolledBack():
                self.rolled_back[what.id] = what.at_s
            case Began():
                self.runs[what.id].append(
                    Run(what.at_s, what.server, what.retried, what.owner, checkpoint=what.checkpoint)
                )
            case Ended():
                runs = self.runs[what.id]
                at = max(at for at, run in enumerate(runs) if run.server == what.server and not run.kind)
                runs[at] = runs[at]._replace(
                    ended_s=what.at_s,
                    kind=what.kind,
                    last_owner=what.owner,
                    left_s=what.left_s,
                    result=what.result,
                )

    def is_struck(self, who: str, from_s: float, to_s: float, kinds: tuple[str, ...] = ()) -> bool:
        """Return whether a fault of a server, or of all, was on in a stretch of time; of any kind, or of some."""
        return any(
            one.who in (who, OF_ALL) and one.at_s <= to_s and one.until_s >= from_s and (not kinds or one.kind in kinds)
            for one in self.struck
        )

    def may_be_unwritten(self, run: Run) -> bool:
        """Return whether a fault could have kept Redis from hearing of a run's end, or its server from its lease."""
        until_s = min(run.ended_s, run.began_s + 1e9) + WRITTEN_S
        for one in self.struck:  # in the order of their beginnings
            if one.who == OF_SLOTS and one.at_s <= until_s:
                until_s = max(until_s, one.until_s + WRITTEN_S)
        return self.is_struck(run.server, run.began_s - AFTERMATH_S, until_s)

    def is_quiet(self, from_s: float, to_s: float) -> bool:
        """Return whether no fault at all could show in a stretch of time."""
        return not any(one.at_s <= to_s and one.until_s + AFTERMATH_S >= from_s for one in self.struck)

    def is_among_others(self, run: Run) -> bool:
        """Return whether a run began by a call that runs others, too."""
        began = [one for runs in self.runs.values() for one in runs if one.began_s == run.began_s]
        return sum(one.server == run.server for one in began) > 1

    def waited_s(self, could_s: float, run: Run) -> float:
        """Return for how long a task that could run waited for a run while its server had a child free."""
        from_s = max(could_s, STARTED_S)
        of_server = (one for runs in self.all_runs.values() for one in runs if one.server == run.server and one.kind)
        others = [one for one in of_server if one.began_s < run.began_s and one.ended_s > from_s]
        turns_s = {from_s, run.began_s, *(at_s for one in others for at_s in (one.began_s, one.ended_s))}
        return sum(
            (
                until_s - at_s
                for at_s, until_s in pairwise(sorted(turns_s))
                if from_s <= at_s < run.began_s and sum(one.began_s <= at_s < one.ended_s for one in others) < CHILDREN
            ),
            0.0,
        )

    @property
    def acknowledged(self) -> list[str]:
        return [task_id for task_id, answer in self.answered.items() if answer.is_acknowledged]

    @property
    def gone(self) -> set[str]:
        """The tasks that were deleted or combined."""
        deleted = {one.id for one in self.all_of(Acted) if one.what in ("delete", "forget")}
        return deleted | {member for one in self.all_of(Collected) for member in one.members}

    def are_ended(self, places: dict[str, list[str]]) -> bool:
        """Return whether all tasks that are anywhere have ended, and all others may be nowhere."""
        # Of all, as a fail-over may lose the end of a task and its deletion: seed 1000003 of sentinel.
        if not all(set(names) <= {"completed", "archived"} for names in places.values()):
            return False
        ended = {task_id for task_id, runs in self.runs.items() if any(run.kind in DONE for run in runs)}
        return set(self.acknowledged) <= self.gone | ended | places.keys() | self.rolled_back.keys()


def kept(history: History) -> Iterator[str]:
    """An acknowledged task is in one place, or has ended well and was not to be kept."""
    gone = history.gone
    for task_id in history.acknowledged:
        places = history.places.get(task_id, [])
        if not places and task_id in gone:
            continue
        is_done = any(run.kind in DONE for run in history.runs[task_id])
        if len(places) > 1:
            yield f"{task_id} is in {' and '.join(places)}"
        elif not places and (not is_done or history.sent[task_id].keeps) and task_id not in history.rolled_back:
            yield f"{task_id} is lost: {describe(history, task_id)}"
        elif places and places[0] not in ("completed", "archived"):
            yield f"{task_id} is {places[0]} for ever: {describe(history, task_id)}"
        elif places == ["completed"] and not is_done:
            yield f"{task_id} is completed, but never ended well: {describe(history, task_id)}"


def never_ran(history: History) -> Iterator[str]:
    """A task whose enqueue was refused never runs."""
    for task_id, answer in history.answered.items():
        if not answer.is_acknowledged and history.runs.get(task_id):
            yield f"{task_id} was refused, and ran: {describe(history, task_id)}"


def once_at_most(history: History) -> Iterator[str]:
    """A task with max_retry=0 begins once at most."""
    for task_id, runs in history.runs.items():
        ran = sum(run.kind != "RATE_LIMITED" for run in runs)
        if history.sent[task_id].max_retry == 0 and ran > 1 and task_id not in history.rolled_back:
            yield f"{task_id} may run once: {describe(history, task_id)}"


def ran_again(history: History) -> Iterator[tuple[str, Run, Run]]:
    """Yield the runs of a task that followed one which had not failed by then, with that."""
    for task_id, runs in history.runs.items():
        for before, after in pairwise(runs):
            if before.kind not in (*CHARGED, *RETURNED) or before.ended_s > after.began_s:
                yield task_id, before, after


def reasons(history: History) -> Iterator[str]:
    """A task runs again only if its run failed, or if its server was struck, so that its end may be unknown."""
    for task_id, before, _ in ran_again(history):
        is_undone = history.rolled_back.get(task_id, -1.0) >= before.began_s
        if not is_undone and not history.may_be_unwritten(before):
            yield f"{task_id} ran again without a reason: {describe(history, task_id)}"


def frozen(history: History) -> Iterator[str]:
    """A server that only stood still, for less than a lease, loses nothing."""
    for task_id, before, after in ran_again(history):
        near = [
            one
            for one in history.struck
            if one.kind == "clock" or (one.at_s <= after.began_s and one.until_s >= before.began_s - AFTERMATH_S)
        ]
        only_froze = {(one.who, one.kind) for one in near} == {(before.server, "stop")}
        if only_froze and sum(one.until_s - one.at_s for one in near) < BRIEF_FREEZE_S:
            yield f"{task_id} was taken from a frozen server: {describe(history, task_id)}"


def charges(history: History) -> Iterator[str]:
    """No attempt is charged that did not fail; one that is canceled before it begins has failed."""
    canceled_s = [(one.id, one.at_s) for one in history.all_of(Acted) if one.what == "cancel"]
    for task_id, runs in history.runs.items():
        for at, run in enumerate(runs):
            failed = sum(before.kind in CHARGED for before in runs[:at])
            failed += sum(one == task_id and at_s < run.began_s for one, at_s in canceled_s)
            if run.retried > failed:
                yield f"{task_id} was charged {run.retried} for {failed}: {describe(history, task_id)}"


def uncharged(history: History) -> Iterator[str]:
    """Each attempt that failed is charged, and no more are made than max_retry allows."""
    for task_id, runs in history.runs.items():
        most = history.sent[task_id].max_retry
        for at, (before, after) in enumerate(pairwise(runs)):
            if task_id in history.rolled_back or any(history.may_be_unwritten(run) for run in runs[: at + 1]):
                break
            failed = sum(run.kind in CHARGED for run in runs[: at + 1])
            if before.kind == "SKIP_RETRY":
                yield f"{task_id} was not to be retried: {describe(history, task_id)}"
            if after.retried < failed:
                yield f"{task_id} was charged {after.retried} for {failed}: {describe(history, task_id)}"
            if failed > most:
                yield f"{task_id} was retried more than {most} times: {describe(history, task_id)}"
            has_jumped = any(one.kind == "clock" and one.at_s <= after.began_s for one in history.struck)
            if before.kind in CHARGED and after.began_s < before.ended_s + RETRY_S and not has_jumped:
                pause_s = after.began_s - before.ended_s
                yield f"{task_id} was retried after {pause_s:.1f} s: {describe(history, task_id)}"


def tried_enough(history: History) -> Iterator[str]:
    """A task is archived only once all its attempts have failed, or one that was the last by its own word."""
    for task_id, runs in history.runs.items():
        failed = sum(run.kind in CHARGED for run in runs)
        is_final = any(run.kind == "SKIP_RETRY" or history.may_be_unwritten(run) for run in runs)
        is_final |= task_id in history.rolled_back
        # It was in a batch that died with its child, and may begin only once.
        is_final |= history.sent[task_id].max_retry == 0 and any(run.kind == "RERUN" for run in runs)
        # It came back without a charge, and may have been lost before it began again: seed 540333 of any-lanes.
        came_back = [run.ended_s for run in runs[-1:] if run.kind not in DONE]
        is_lost = any(one.at_s > ended_s for one in history.struck for ended_s in came_back)
        is_final |= history.sent[task_id].max_retry == 0 and is_lost
        if history.places.get(task_id) == ["archived"] and failed <= history.sent[task_id].max_retry and not is_final:
            yield f"{task_id} was archived after {failed} attempts: {describe(history, task_id)}"


def owned(history: History) -> Iterator[str]:
    """A server that is well has the lease of what it runs, from the beginning to the end, with time left."""
    for task_id, runs in history.runs.items():
        for run in runs:
            is_struck = history.is_struck(run.server, run.began_s - AFTERMATH_S, run.ended_s)
            if not run.kind or is_struck or history.is_struck(run.server, 0, run.ended_s, ("clock",)):
                continue
            if (run.owner, run.last_owner) != (run.server, run.server):
                owners = f"{run.owner!r}, then {run.last_owner!r}"
                yield f"{task_id} ran on a lease of {owners}: {describe(history, task_id)}"
            elif run.left_s < LEAST_LEFT_S:
                yield f"{task_id} had {run.left_s:.1f} s of its lease left: {describe(history, task_id)}"


def apart(history: History) -> Iterator[str]:
    """Two runs of a task are side by side only until the server that lost its lease has heard of it."""
    for task_id, runs in history.runs.items():
        for at, before in enumerate(runs):
            for after in runs[at + 1 :]:
                until_s = min(before.ended_s, after.ended_s)
                if not before.kind or until_s - after.began_s <= BEAT_S:
                    continue
                if not history.is_struck(before.server, until_s - BEAT_S, until_s):
                    yield f"{task_id} ran twice side by side: {describe(history, task_id)}"


def early(history: History) -> Iterator[str]:
    """No task begins before it is due, as far as the clocks agree."""
    jumps_s = [one.at_s for one in history.struck if one.kind == "clock"]
    for task_id, runs in history.runs.items():
        due_s = history.sent[task_id].due_s
        if runs and runs[0].began_s < due_s - history.skew_s and not any(at_s <= due_s for at_s in jumps_s):
            yield f"{task_id} began before it was due: {describe(history, task_id)}"


def waits(history: History) -> Iterator[str]:
    """A task that could run waits for moments while nothing fails, and no longer than its causes explain."""
    healthy = []
    is_limited = any(isinstance(one, Limited) and one.name == "" and one.is_there for one in history.lanes)
    otherwise = {one.id for one in history.all_of(Laned) if one.lane or is_limited}  # see ``idle``
    for task_id in history.acknowledged:
        if task_id in otherwise:
            continue
        runs, sent = history.runs[task_id], history.sent[task_id]
        could_s = max(sent.due_s, history.answered[task_id].at_s)
        began_s = runs[0].began_s if runs else float("inf")
        waited_s = history.waited_s(could_s, runs[0]) if runs else began_s
        if history.is_quiet(could_s, min(began_s, could_s + 1)):
            healthy.append(waited_s)
        near = [one for one in history.struck if one.at_s <= began_s and one.until_s >= could_s - AFTERMATH_S]
        longest_s = LONGEST_WAIT_S if any(one.kind in DEATHS for one in near) else BRIEFLY_S
        longest_s += sum(one.until_s - one.at_s for one in near)
        if runs and waited_s > longest_s:
            yield f"{task_id} waited for {waited_s:.1f} s: {describe(history, task_id)}"
    if len(healthy) >= 10 and median(healthy) > HEALTHY_WAIT_S:
        yield f"{len(healthy)} tasks waited for {median(healthy):.2f} s (median) while nothing failed"


def taken_over(history: History) -> Iterator[str]:
    """What a killed server had is taken by a peer, or by its successor on the same host if that is there sooner."""
    servers = {run.server for runs in history.runs.values() for run in runs}
    for one in history.freed:
        kill = next(kill for kill in history.struck if (kill.who, kill.at_s) == (one.who, one.killed_s))
        by_s = min(kill.at_s + BY_PEERS_S, kill.until_s + BY_SUCCESSOR_S)
        is_alone = not any(
            other.kind == "clock" or (other.at_s <= by_s and other.until_s + after_s >= kill.at_s)
            for other in history.struck
            for after_s in [AFTER_REFUSAL_S if other.kind == "refuse" else BY_PEERS_S]
            if other is not kill and other.who in (*servers, one.who, OF_ALL)
        )
        if is_alone and one.at_s > by_s:
            yield f"what {one.who} had at {kill.at_s:.1f} s was free only after {one.at_s - kill.at_s:.1f} s"


def unique(history: History) -> Iterator[str]:
    """Of tasks with the same lock, the next is acknowledged only after the one before has ended."""
    by_lock = defaultdict(list)
    for task_id in history.acknowledged:
        if history.sent[task_id].unique:
            by_lock[history.sent[task_id].unique].append(task_id)
    for lock, ids in by_lock.items():
        for before, after in pairwise(ids):
            done_s = [run.ended_s for run in history.runs[before] if run.kind in (*DONE, *CHARGED)]
            if before not in history.rolled_back and (not done_s or min(done_s) > history.answered[after].at_s):
                yield f"{after} has the lock {lock} of {before}: {describe(history, before)}"


def nothing_left(history: History) -> Iterator[str]:
    """At the end nothing is left in Redis that serves no task."""
    for key in history.left:
        if key.rpartition(":")[2] in history.rolled_back:
            continue
        yield f"{key} is left"
    for name in history.stuck:
        yield f"{name} goes on for ever"


def moved_on(history: History) -> Iterator[str]:
    """Nobody talks to a former master once the sentinels have named another for a while."""
    yield from history.stale


def handled(history: History) -> Iterator[str]:
    """No callback raises anything."""
    yield from history.raised


def describe(history: History, task_id: str) -> str:
    """Tell the story of a task in one line."""
    sent = history.sent[task_id]
    words = [f"sent {sent.at_s:.3f}, due {sent.due_s:.3f}, max_retry {sent.max_retry}"]
    for run in history.runs[task_id]:
        end = f"{run.kind} {run.ended_s:.3f}" if run.kind else "no end"
        words.append(f"{run.server} {run.began_s:.3f} (retried {run.retried}) {end}")
    words.append("+".join(history.places.get(task_id, ["nowhere"])))
    return "; ".join(words)


RULES: Final = (kept, never_ran, charges, owned, apart, taken_over, nothing_left, moved_on, handled)
OF_UNTOUCHED: Final = (once_at_most, reasons, frozen, uncharged, tried_enough, early, waits, unique)
"""The rules on tasks to which no inspector has done anything."""


def judge(history: History) -> list[str]:
    """Return all broken promises."""
    alone = history.without(history.by_hand())
    found = [f"{rule.__name__}: {fault}" for rule in RULES for fault in rule(history)]
    return found + [f"{rule.__name__}: {fault}" for rule in OF_UNTOUCHED for fault in rule(alone)]

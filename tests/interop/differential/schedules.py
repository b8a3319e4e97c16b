"""Runs schedulers of both sides beside each other, with the same entries, for some seconds of real time.

They have no common clock: so how often an entry has ticked is not compared, but what its first ticks left.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from fastq import Client
from tests.interop.differential.generator import Goals
from tests.interop.differential.goal import HOUR_S, OK, Goal
from tests.interop.differential.intended import Intended, Step
from tests.interop.differential.operation import Operation
from tests.interop.differential.published import entries_of, published, ticked
from tests.interop.differential.scheduling import BAD, GoScheduler, OurScheduler, Wish, wishes
from tests.interop.peer import GoPeer
from tests.keyspace import Cells, Difference, Place
from tests.redis_servers import redis_server
from tests.waiting import PATIENCE_S, wait_until

AGREE_WITHIN_S = PATIENCE_S
REGISTER, UNREGISTER, TICK, SHUTDOWN = (
    "scheduler_register",
    "scheduler_unregister",
    "scheduler_tick",
    "scheduler_shutdown",
)
MOST_AT_ONCE: Final = 5
UNREGISTERED: Final = 42


def schedule_goals() -> Iterator[Goal]:
    endings = {
        REGISTER: (OK, "CronSpecError"),
        UNREGISTER: (OK, "SchedulerEntryNotFoundError"),
        TICK: (OK, "DuplicateTaskError", "TaskIDConflictError"),
    }
    for name, each in endings.items():
        for ending in each:
            yield Goal(name, ending, lambda _state, _rng: None)


class ScheduleCampaign:
    """Run rounds: register entries, wait until they have ticked, unregister most of them, shut down."""

    asyncs = 0

    def __init__(self, seed: int, go: tuple[GoPeer, Path, Any], ours: tuple[str, Any]) -> None:
        self._rng = Random(seed)
        self.generator = Goals(list(schedule_goals()))
        self.intended = Intended()
        self.sequences = 0
        self._peer, self._socket, self._theirs = go
        self._url, self._ours = ours

    def run_until_all_is_reached(self, limit: int) -> None:
        while self.generator.missing() and self.sequences < limit:
            self.run_sequence()

    def run_sequence(self) -> None:
        """Make a round; ``AssertionError`` tells how the sides differ."""
        self.sequences += 1
        for db in (self._theirs, self._ours):
            db.flushall()
        self._peer.request("connect", socket=str(self._socket))
        entries = list(wishes(self._rng))
        self._put_in_the_way(entries)
        go, ours = GoScheduler(self._peer), OurScheduler(self._url)
        try:
            self._run_round(entries, go, ours)
        finally:
            ours.shutdown()  # one that differs must not go on beside the tests that follow

    def _run_round(self, entries: list[Wish], go: GoScheduler, ours: OurScheduler) -> None:
        half = len(entries) // 2
        for side in (go, ours):
            side.start(entries[:half])
        self._count(REGISTER, [OK] * half)
        self._both(REGISTER, [(go.register(wish), ours.register(wish)) for wish in entries[half:]])
        bad = [Wish("bad", spec, "") for spec in self._rng.sample(BAD, MOST_AT_ONCE)]
        self._both(REGISTER, [(go.register(wish), ours.register(wish)) for wish in bad])
        self._wait_for_ticks(entries, go, ours)
        self._compare(TICK, go, ours)
        self._count(TICK, [wish.ending for wish in entries if wish.ending])
        gone = self._rng.sample([wish.name for wish in entries], UNREGISTERED)
        self._both(
            UNREGISTER, [(go.unregister(name), ours.unregister(name)) for name in [*gone, *["none"] * MOST_AT_ONCE]]
        )
        for db in (self._theirs, self._ours):
            wait_until(lambda db=db: len(entries_of(db)) == len(entries) - UNREGISTERED, PATIENCE_S)  # type: ignore[misc]  # bound now
        self._compare(UNREGISTER, go, ours)
        go.shutdown()
        ours.shutdown()
        self._compare(SHUTDOWN, go, ours)
        self._count(SHUTDOWN, [OK])

    def _put_in_the_way(self, entries: list[Wish]) -> None:
        with Client(self._url) as client:
            for wish in entries:
                options = in_the_way(wish)
                if options is not None:
                    client.enqueue("report", wish.payload, **options)
        for key in self._ours.keys("*"):
            self._theirs.restore(key, max(self._ours.pttl(key), 0), self._ours.dump(key))

    def _wait_for_ticks(self, entries: list[Wish], go: GoScheduler, ours: OurScheduler) -> None:
        ticking = [wish for wish in entries if wish.ending]
        for db, ids in ((self._theirs, go.ids), (self._ours, ours.ids)):

            def all_have_ticked(db: Any = db, ids: Mapping[str, str] = ids) -> bool:
                listed = entries_of(db)
                return all(listed.get(ids[wish.name]) for wish in ticking) and all(
                    ticked(db, ids[wish.name]) for wish in ticking if wish.ending == OK
                )

            wait_until(all_have_ticked, PATIENCE_S)

    def _both(self, name: str, outcomes: list[tuple[str, str]]) -> None:
        differ = [outcome for outcome in outcomes if outcome[0] != outcome[1]]
        assert not differ, f"{name}: {differ}"
        self._count(name, [ours for _, ours in outcomes])

    def _count(self, name: str, endings: list[str]) -> None:
        for ending in endings:
            self.generator.count(name, ending)

    def _compare(self, name: str, go: GoScheduler, ours: OurScheduler) -> None:
        """Wait until both have left the same; on a busy machine one may be a beat behind."""
        try:
            wait_until(lambda: not self._left(name, go, ours), AGREE_WITHIN_S)
        except AssertionError:
            left = self._left(name, go, ours).items()
            lines = [f"  {place}: Go {theirs!r}, fastq {found!r}" for place, (theirs, found) in left]
            raise AssertionError(f"round {self.sequences} differs after {name}:\n" + "\n".join(lines)) from None

    def _left(self, name: str, go: GoScheduler, ours: OurScheduler) -> Mapping[Place, Difference]:
        theirs, found = published(self._theirs, go.ids), published(self._ours, ours.ids)
        differences = {place: Difference(theirs.get(place), found.get(place)) for place in _unlike(theirs, found)}
        return self.intended.unexplained(Step(Operation(name, name), OK, {}), differences)


def _unlike(one: Cells, other: Cells) -> Iterator[Place]:
    return (place for place in sorted(one.keys() | other.keys()) if one.get(place) != other.get(place))


def in_the_way(wish: Wish) -> Mapping[str, Any] | None:
    """Return the options of a task that is there before, so that the entry's cannot be enqueued."""
    if wish.ending == "DuplicateTaskError":
        return {"queue": wish.queue, "task_id": f"before-{wish.name}", "unique": HOUR_S}
    return {"queue": wish.queue, "task_id": wish.name} if wish.ending == "TaskIDConflictError" else None


@contextmanager
def schedule_campaign(seed: int, peer_binary: Path) -> Iterator[ScheduleCampaign]:
    """Start two Redis servers and the peer."""
    with ExitStack() as stack:
        servers = [stack.enter_context(redis_server()) for _ in "gf"]
        theirs, ours = (stack.enter_context(server.client()) for server in servers)
        peer = stack.enter_context(GoPeer(peer_binary))
        yield ScheduleCampaign(seed, (peer, Path(servers[0].socket_path), theirs), (servers[1].url, ours))

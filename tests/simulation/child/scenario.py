"""A run of one seed: what happens to the pool and when, and what must hold of it."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from fastq.pool.main.child_queue import Event, Submission
from fastq.pool.main.config import PoolConfig
from fastq.pool.main.pool import ProcessPool
from fastq.pool.main.protocol import CancelOutcome, PoolListener
from fastq.pool.shared.event_kind import EventKind
from tests.simulation.child import baton
from tests.simulation.child.judge import judge
from tests.simulation.child.tasks import Ledger, Plan, draw_plan
from tests.simulation.child.world import Processes, SimLoop

LIMIT_S = 40.0
"""Of simulated time, within which all tasks end once nothing more happens."""


@dataclass(frozen=True)
class Deed:
    """Something that is done to the pool, so long after the deed before."""

    after_s: float
    what: str  # submit, cancel, reload, grow, withdraw, stop; kill: at a point
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """How the seed chooses who goes on."""

    cost_ns: int
    switches: int
    changes: tuple[int, ...]


def draw(seed: int) -> tuple[PoolConfig, Schedule, dict[int, Plan], list[Deed]]:
    """Draw all of a run before it begins, so that taking away one deed moves no other."""
    chance = random.Random(seed)
    sorts = chance.choice(
        (("plain",), ("coroutine",), ("thread",), ("coroutine", "thread"), ("plain", "coroutine", "thread"))
    )
    ring_bytes = chance.choice((4096, 4096, 8192, 65536))
    config = PoolConfig(
        "a:b",
        processes=chance.choice((1, 1, 2)),
        timeout_grace=chance.choice((0, 0.01, 0.2, 5.0)),
        max_tasks_per_child=chance.choice((0, 0, 1, 3, 10)),
        max_memory_per_child=chance.choice((0, 200 << 20)),
        async_concurrency=chance.choice((1, 2, 4)),
        threads=chance.choice((1, 2, 3)) if "thread" not in sorts else chance.choice((2, 3)),
        prefetch_time=chance.choice((0.005, 0.05)),
        prefetch_records=chance.choice((2, 8, 64)),
        ring_bytes=ring_bytes,
    )
    changes = tuple(chance.randrange(100, 20_000) for _ in range(chance.choice((2, 6, 20))))
    schedule = Schedule(chance.choice((100, 1000, 20_000)), chance.choice((0, 3, 12, 40, 128)), changes)
    plans: dict[int, Plan] = {}
    deeds: list[Deed] = []
    for _ in range(chance.randrange(2, 9)):
        first = len(plans)
        for number in range(first, first + chance.choice((1, 2, 3, 8))):
            plans[number] = draw_plan(chance, number, sorts, ring_bytes)
        after_s = chance.choice((0, 0.0001, 0.002, 0.03))
        deeds.append(Deed(after_s, "submit", tuple(range(first, len(plans)))))
        for _ in range(chance.choice((0, 0, 1, 3))):
            deeds.append(Deed(chance.choice((0, 0, 0.00002, 0.001)), "cancel", (chance.randrange(first, len(plans)),)))
        if chance.random() < 0.1:
            deeds.append(Deed(chance.choice((0, 0.001)), chance.choice(("reload", "grow"))))
    for _ in range(chance.choice((0, 0, 1, 2))):
        deeds.append(Deed(0, "kill", (chance.randrange(50, chance.choice((3000, 20_000))),)))
    if chance.random() < 0.3:
        deeds.append(Deed(chance.choice((0, 0.001, 0.01)), chance.choice(("withdraw", "stop"))))
    return config, schedule, plans, deeds


class Scenario(PoolListener):
    """One run."""

    def __init__(self, seed: int, without: frozenset[int] = frozenset()) -> None:
        config, schedule, self.plans, deeds = draw(seed)
        self.config = config
        self.deeds = [deed for number, deed in enumerate(deeds) if number not in without]
        self.count = len(deeds)
        self.story: list[str] = []
        self.broken: list[str] = []
        self.submissions: dict[int, Submission] = {}
        self.events: dict[int, list[Event]] = {}
        self.cancels: dict[int, list[CancelOutcome]] = {}
        self.withdrawn: set[int] = set()
        self.ledger = Ledger(self.note)
        kills = [deed.numbers[0] for deed in self.deeds if deed.what == "kill"]
        self.is_peaceful = not kills
        baton.start(seed, schedule.cost_ns, schedule.switches, kills, schedule.changes)
        self.processes = Processes(self.note, self.broken.append, self.ledger)

    def note(self, text: str) -> None:
        """Write a line of the story."""
        points, _, now = baton.figures()
        self.story.append(f"{points:6} {(now - 10**12) / 1e6:11.4f} ms  actor {baton.own_actor()}: {text}")

    def run(self) -> dict[str, Any]:
        """Run it; return what was found."""
        loop = SimLoop()
        loop.set_exception_handler(self._on_error)
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._run())
        except baton.Stuck as stuck:
            self.broken.append(f"stuck: {stuck}")
            for line in baton.waiting():
                self.note(line)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            self.broken.append(f"main ends with {error!r}")
        if not self.broken:
            self.broken += judge(self)
        points, trace, now = baton.figures()
        return {
            "broken": self.broken,
            "points": points,
            "trace": trace,
            "simulated_s": now / 1e9 - 1000,
            "tasks": len(self.submissions),
            "kinds": sorted({event.kind.name for events in self.events.values() for event in events}),
            "deeds": [(one.after_s, one.what, one.numbers) for one in self.deeds],
        }

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.broken.append(f"main: {context['message']}: {context.get('exception')!r}")

    async def _run(self) -> None:
        self.pool = ProcessPool(self.config, self.processes)  # type: ignore[arg-type]
        await self.pool.start(self)
        for deed in self.deeds:
            if deed.after_s:
                await asyncio.sleep(deed.after_s)
            self.note(f"{deed.what} {deed.numbers}")
            await self._do(deed)
        if any(deed.what == "stop" for deed in self.deeds):
            return
        if not await self.pool.drain(LIMIT_S):
            names = [str(one.key) for one in self.pool.submissions()]
            self.broken.append(f"after {LIMIT_S:g} s these have not ended: {', '.join(names)}")
        await asyncio.sleep(0.1)  # so that children come to rest

    async def _do(self, deed: Deed) -> None:
        match deed.what:
            case "submit":
                self._submit(deed.numbers)
            case "cancel":
                self._cancel(deed.numbers[0])
            case "reload":
                self.processes.reload()
            case "grow":
                self.processes.grown |= self.processes.served.keys()
            case "withdraw":
                self.withdrawn |= {submission.key for submission in self.pool.withdraw_all()}  # type: ignore[misc]
            case "stop":
                await self.pool.stop()

    def _submit(self, numbers: tuple[int, ...]) -> None:
        batch = []
        for number in numbers:
            plan = self.plans[number]
            is_async = plan.sort != "plain"
            made = Submission(number, plan.data(), plan.sort, timeout=plan.timeout_s, is_async=is_async)
            made.is_threaded, made.is_awaited = plan.sort == "thread", plan.is_awaited
            self.submissions[number] = made
            batch.append(made)
        self.pool.submit(batch)

    def _cancel(self, number: int) -> None:
        if number not in self.submissions:
            return
        outcome = self.pool.cancel(self.submissions[number])
        self.note(f"cancel of {number}: {outcome.name}")
        self.cancels.setdefault(number, []).append(outcome)
        if outcome is CancelOutcome.WITHDRAWN:
            self.withdrawn.add(number)

    # What the pool tells ------------------------------------------------------------------------------------------

    def on_events(self, events: list[Event]) -> None:
        """Take events."""
        for event in events:
            number: int = event.submission.key  # type: ignore[assignment]
            self.note(f"task {number}: {event.kind.name} {event.data[:40]!r}")
            self.events.setdefault(number, []).append(event)
            if event.kind is EventKind.CHECKPOINT:
                self.pool.note_saved(event.submission, event.ran_ns)

    def on_failed(self, error: Exception) -> None:
        """Hear that children cannot be started."""
        self.broken.append(f"the pool fails: {error}")

    def on_notice(self, text: str) -> None:
        """Note a problem."""
        self.note(text)

    def on_info(self, text: str) -> None:
        """Note a text."""
        self.note(text)

"""Lanes in a world: who enqueues into them and changes their limits, and a watch of what Redis has of them."""

import asyncio
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

from fastq import AsyncClient, AsyncInspector, Limit
from fastq.pool.main.protocol import Event, EventKind
from fastq.wire.limit import read_rule
from fastq.worker.shared.report import FailureReport
from tests.simulation.actors import KEEPS_S, until_done
from tests.simulation.happenings import Changing, Laned, Limited, Placed, Rested, Switched, Waiting
from tests.simulation.judge import Sent
from tests.simulation.keyspace import OF_LANES
from tests.simulation.loop import Machine
from tests.simulation.pool import Fate
from tests.simulation.store import pack, texts_in

if TYPE_CHECKING:
    from tests.simulation.world import World

LANES: Final = ("acct:1", "acct:2", "acct:3", "big:1", "big:2", "solo", "slow")
POOLS: Final = ("acct:*", "big:*")
TASKS: Final = 60
DEADLINES_S: Final = (7200, 7201, 7300, 9000)
"""How far ahead the deadlines of tasks are: beyond the end of a world, so that none ends an attempt."""
SETTLED_S: Final = 30.0
"""A place whose task is gone is found when it is asked for; rates are forgotten by those who sweep."""
ORDERS: Final[tuple[Literal["strict", "lifo", "deadline"], ...]] = ("strict", "lifo", "deadline")
_PREFIX: Final = f"asynq:{{{OF_LANES}}}:"
_MARK: Final = _PREFIX.encode()
_ELSEWHERE: Final = b"-ASK "
"""What a node says of a key that has moved already; what becomes of it there is not seen from here."""


async def use_lanes(world: "World", machine: Machine) -> None:
    """Enqueue into lanes, with ``lane=`` or, as a producer of Go does, as groups; change limits meanwhile."""
    draw = Random(f"{world.seed} {machine}")
    client, inspector = AsyncClient(world.url, timeout=10), AsyncInspector(world.url)
    changing = asyncio.gather(_change_limits(world, inspector, Random(f"{world.seed} {machine} limits")))
    tasks = world.size.of(TASKS)
    for number in range(tasks):
        await asyncio.sleep(draw.expovariate(2.0) + world.size.calm_before(number, tasks))
        await _put(world, client, f"l{number:03}", draw)
    world.are_limits_final = True
    await changing
    world.history.lanes.append(Changing(world.now_s, True))
    await _end_limits(inspector, draw)
    world.history.lanes.append(Changing(world.now_s, False))
    world.tell("limits", "at the end")
    await client.close()
    await inspector.close()


async def _put(world: "World", client: AsyncClient, task_id: str, draw: Random) -> None:
    lane, is_own = draw.choice(LANES), draw.random() < 0.6
    max_retry, delay_s = (
        min(draw.choice((0, 1, 2)), world.size.retries),
        draw.uniform(0.1, 10) if draw.random() < 0.1 else 0.0,
    )
    options: dict[str, Any] = {"queue": OF_LANES, "max_retry": max_retry, "retention": draw.choice((0, KEEPS_S))}
    priority = draw.choice((0, 0, 1, -1, 100, -100)) if is_own else 0
    options |= {"lane": lane, "priority": priority} if is_own else {"group": lane}
    options |= {"process_in": delay_s} if delay_s else {}
    options |= {"timeout": draw.uniform(5, 20)} if draw.random() < 0.3 else {}
    world.queue_of[task_id] = OF_LANES
    deadline_s = int(world.loop.wall_ns() / 1e9) + draw.choice(DEADLINES_S) if draw.random() < 0.5 else None
    options |= {"deadline": datetime.fromtimestamp(deadline_s, UTC)} if deadline_s else {}
    world.history.others.append(Laned(world.now_s, task_id, lane, is_own, priority, deadline_s if is_own else None))
    sent = Sent(world.now_s, task_id, world.now_s + delay_s, max_retry, "", options["retention"] > 0)
    world.history.note(sent)
    await world.send(client, task_id, task_id.encode(), options)


async def _change_limits(world: "World", inspector: AsyncInspector, draw: Random) -> None:
    """Set, remove, pause and resume; the first limit comes when tasks may wait, and all may go for a while."""
    await asyncio.sleep(draw.uniform(0, 12))
    note, pause_s = world.history.lanes.append, draw.choice((3, 3, 20))
    while not world.are_limits_final:
        note(Changing(world.now_s, True))
        name: Any = draw.choice((*LANES, *POOLS, *POOLS, "*", "*", None))
        limit = draw_limit(draw, name)
        match draw.choice(("set", "set", "set", "remove", "pause", "none")):
            case "set":
                await until_done(partial(inspector.set_limit, OF_LANES, name, limit))
                world.tell("limit", name, str(limit))
            case "remove":
                await until_done(partial(inspector.set_limit, OF_LANES, name, None))
                world.tell("limit", name, None)
            case "pause" if name is not None:
                await until_done(partial(inspector.pause_lane, OF_LANES, name))
                world.tell("lane paused", name)
                note(Changing(world.now_s, False))
                await asyncio.sleep(draw.uniform(1, 10))
                note(Changing(world.now_s, True))
                await until_done(partial(inspector.resume_lane, OF_LANES, name))
                world.tell("lane resumed", name)
            case "none" if draw.random() < 0.5:
                await _remove_all(inspector)
                world.tell("limits", "none")
        note(Changing(world.now_s, False))
        await asyncio.sleep(draw.expovariate(1 / pause_s))


def draw_limit(draw: Random, name: str | None) -> Limit:
    """Draw a limit that such a name can have."""
    concurrency = draw.choice((None, 1, 1, 2, 3))
    if name is None:
        return Limit(draw.choice((None, 2, 4, 8)))
    if name[-2:] != ":*" and draw.random() < 0.4:
        order = draw.choice(ORDERS)
        return Limit(1 if order == "strict" else concurrency, order=order)
    rate = draw.choice((None, None, "1/s", "5/s", "1/4s", "1/m"))
    burst = draw.choice((1, 1, 3)) if rate else 1
    weight = draw.choice((1, 1, 3)) if name[-2:] != ":*" else 1
    return Limit(concurrency, rate, burst, weight)


async def _remove_all(inspector: AsyncInspector) -> None:
    for name in (*LANES, *POOLS, "*", None):
        await until_done(partial(inspector.set_limit, OF_LANES, name, None))


async def _end_limits(inspector: AsyncInspector, draw: Random) -> None:
    """Let nothing wait for ever: remove all limits, and have each lane limited, or none."""
    for name in (*LANES, *POOLS, "*"):
        await until_done(partial(inspector.resume_lane, OF_LANES, name))
    await _remove_all(inspector)
    if draw.random() < 0.7:
        orders = [Limit(1 if order == "strict" else 2, order=order) for order in ORDERS]
        last = draw.choice((Limit(2, "5/s"), *orders))
        await until_done(partial(inspector.set_limit, OF_LANES, "*", last))


def fate_in_lane(fate: Fate, draw: Random) -> Fate:
    """Have some attempts end by ``RateLimited``."""
    if draw.random() >= 0.1:
        return fate
    report = FailureReport("snoozed", False, draw.uniform(0.3, 8), is_snoozed=True, rests_lane=True)
    return fate._replace(kind=EventKind.FAILED, data=report.encode(), takes_s=min(fate.takes_s, 5.0))


def note_rest(world: "World", task_id: str, event: Event) -> str:
    """Note that a handler asks its lane to rest, and return the judge's word for such an end; "" for any other."""
    report = FailureReport.decode(event.data) if event.kind is EventKind.FAILED and event.data else FailureReport("")
    if not report.rests_lane:
        return ""
    world.history.others.append(Rested(world.now_s, task_id, report.retry_in_s or 0.0))
    return "RATE_LIMITED"


class LimitWatch:
    """Looks at what Redis has of lanes after each command about their queue; that takes no simulated time."""

    def __init__(self, world: "World") -> None:
        self._world, self._site = world, world.network.site
        self._leased: set[str] = set()
        self._waiting: dict[str, list[str]] = {lane: [] for lane in LANES}
        self._rules: dict[str, str] = {}
        self._master: object = None
        world.network.watch = self._look
        self._asked = [("ZRANGE", f"{_PREFIX}lease", "0", "-1"), ("HGETALL", f"{_PREFIX}limits")]
        self._asked += [("ZRANGE", f"{_PREFIX}g:{lane}", "0", "-1") for lane in LANES]
        self._packed = pack([[word.encode() for word in words] for words in self._asked])
        self._seen = b""

    def _look(self, packed: bytes) -> None:
        if _MARK not in packed:
            return
        now_s, note = self._world.now_s, self._world.history.lanes.append
        master = getattr(self._site, "master", None)
        if master is not self._master:
            self._master = master
            note(Switched(now_s))
        replies = self._site.replies_of(_PREFIX, self._packed)
        is_elsewhere = _ELSEWHERE in replies
        if replies == self._seen and not is_elsewhere:
            return
        self._seen = replies
        asked = self._asked
        leased, rules, *lanes = self._site.ask_all(asked) if is_elsewhere else texts_in(replies, len(asked))
        self._note_rules(dict(zip(rules[::2], rules[1::2], strict=True)))
        here = set(leased)
        for task_id in sorted(self._leased - here):
            note(Placed(now_s, task_id, False))
        for task_id in sorted(here - self._leased):
            note(Placed(now_s, task_id, True))
        self._leased = here
        for lane, ids in zip(LANES, lanes, strict=True):
            if self._waiting[lane] != ids:
                self._waiting[lane] = ids
                note(Waiting(now_s, lane, tuple(ids)))

    def _note_rules(self, rules: dict[str, str]) -> None:
        for name in sorted(rules.keys() | self._rules.keys()):
            if rules.get(name) != self._rules.get(name):
                self._world.tell("rule", name, rules.get(name))
                self._world.history.lanes.append(limited(self._world.now_s, name, rules.get(name)))
        self._rules = rules

    async def settle(self) -> None:
        """Let the last repairs happen, and note which other tasks were in the queue."""
        await asyncio.sleep(SETTLED_S)
        others, known = self._world.history.others, {one.id for one in self._world.history.all_of(Laned)}
        for task_id, queue in self._world.queue_of.items():
            if queue == OF_LANES and task_id not in known:
                others.append(Laned(0.0, task_id, "", True))
        others += self._world.keyspace.left_of_lanes(self._world.loop.wall_ns() / 1e9 - SETTLED_S)


def limited(at_s: float, name: str, text: str | None) -> Limited:
    """Return what a rule of Redis says."""
    rule = read_rule(text) if text is not None else None
    limit = (rule and rule.limit) or Limit()
    is_paused = rule is not None and rule.is_paused
    order = None if rule is not None and rule.limit is None else limit.order or ""
    return Limited(
        at_s, name, limit.concurrency or 0, limit.interval_us / 1e6, limit.burst, is_paused, text is not None, order
    )

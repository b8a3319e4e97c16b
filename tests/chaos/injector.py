"""The injector: strikes as the plan says, ends each fault in its time, starts again what was ended.

It runs in one thread, a step at a time: what is due is done, nothing waits. A fault whose target is not there, or is
under another fault of the same sort, is missed, not put off.
"""

import contextlib
import heapq
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Final

from tests.chaos.database import Database
from tests.chaos.fleet import Fleet, Generation, family_of, parent_of
from tests.chaos.journal import Journal, Strike
from tests.chaos.ledger import LedgerTail
from tests.chaos.plan import NET, Fault, Kind
from tests.chaos.proxy import Proxies, Proxy

__all__ = ["Injector", "Targets"]

_ASK_AGAIN_S: Final = 0.02
_REDIS: Final = {Kind.RESTART_REDIS, Kind.KILL_REDIS, Kind.FREEZE_REDIS, Kind.FREEZE_REDIS_LONG}
_DELAY_S: Final = 0.05


class Targets:
    """Hold what can be struck; the last proxy is the producer's."""

    def __init__(self, fleet: Fleet, database: Database, proxies: Proxies, tail: LedgerTail) -> None:
        self.fleet: Final = fleet
        self.database: Final = database
        self.proxies: Final = proxies
        self.tail: Final = tail


class Injector:
    """Carry out a plan."""

    def __init__(self, plan: list[Fault], targets: Targets) -> None:
        self._targets = targets
        self._numbers: Iterator[int] = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._began_s = 0.0
        self._plan = plan
        self._frozen: set[int] = set()  # servers
        self._broken: set[int] = set()  # proxies
        self._is_redis_away = False
        self.journal = Journal()
        self.self_ended: list[Generation] = []

    @property
    def is_through(self) -> bool:
        """Tell whether every fault is over, and everything runs again."""
        return not self._due

    def begin(self) -> None:
        """Start the clock of the plan."""
        self._began_s = time.monotonic()
        for fault in self._plan:
            self._at(self._began_s + fault.at_s, self._striking(fault))

    def _striking(self, fault: Fault) -> Callable[[], None]:
        return lambda: self._strike(fault)

    def _at(self, when_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when_s, next(self._numbers), do))

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        self._at(time.monotonic() + seconds, do)

    def step(self) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()
        for server, generation in list(self._targets.fleet.current.items()):
            if not generation.lives() and not generation.is_expected_to_end:
                self.self_ended.append(generation)
                self._targets.fleet.start(server)

    def _strike(self, fault: Fault) -> None:
        if fault.kind in NET:
            struck = self._strike_net(fault)
        elif fault.kind in _REDIS:
            struck = self._strike_redis(fault)
        else:
            struck = self._strike_any(fault)
        if not struck:
            self.journal.miss(fault)

    # Networks ---------------------------------------------------------------------------------------------------

    def _strike_net(self, fault: Fault) -> bool:
        if fault.server in self._broken:
            return False
        proxies = self._targets.proxies
        proxy = proxies.all[fault.server]
        strike = self.journal.strike(fault)
        match fault.kind:
            case Kind.NET_DROP:
                proxies.call(proxy.drop())
                strike.end()
                return True
            case Kind.NET_REFUSE:
                proxies.call(proxy.refuse())
            case Kind.NET_HALF_OPEN:
                proxies.call(proxy.silence())
            case Kind.NET_DELAY:
                proxies.call(proxy.delay(_DELAY_S))
            case _:
                proxies.call(proxy.cut(fault.n_bytes))
        self._broken.add(fault.server)
        self._after(fault.for_s, lambda: self._mend(proxy, strike))
        return True

    def _mend(self, proxy: Proxy, strike: Strike) -> None:
        self._targets.proxies.call(proxy.mend())
        self._broken.discard(strike.server)
        strike.end()

    # Redis ------------------------------------------------------------------------------------------------------

    def _strike_redis(self, fault: Fault) -> bool:
        database = self._targets.database
        if self._is_redis_away:
            return False
        self._is_redis_away = True
        strike = self.journal.strike(fault)
        if fault.kind in (Kind.FREEZE_REDIS, Kind.FREEZE_REDIS_LONG):
            database.signal(signal.SIGSTOP)
            self._after(fault.for_s, lambda: self._thaw_redis(strike))
        else:
            database.signal(signal.SIGKILL if fault.kind is Kind.KILL_REDIS else signal.SIGTERM)
            self._after(fault.for_s, lambda: self._start_redis(strike))
        return True

    def _thaw_redis(self, strike: Strike) -> None:
        self._targets.database.signal(signal.SIGCONT)
        self._expect_redis(strike)

    def _start_redis(self, strike: Strike) -> None:
        database = self._targets.database
        if not database.has_ended():
            self._after(_ASK_AGAIN_S, lambda: self._start_redis(strike))
            return
        database.start()
        self._expect_redis(strike)

    def _expect_redis(self, strike: Strike) -> None:
        database = self._targets.database
        if database.has_ended():
            raise RuntimeError(f"redis-server did not come back; see {database.directory / 'redis.log'}")
        if not database.answers():
            self._after(_ASK_AGAIN_S, lambda: self._expect_redis(strike))
            return
        self._is_redis_away = False
        strike.end()

    # Processes --------------------------------------------------------------------------------------------------

    def _strike_any(self, fault: Fault) -> bool:
        """Strike the server that was drawn, or the next one that can be struck."""
        current = self._targets.fleet.current
        turns = (replace(fault, server=(fault.server + turn) % len(current)) for turn in range(len(current)))
        return any(self._strike_processes(turned) for turned in turns)

    def _strike_processes(self, fault: Fault) -> bool:
        generation = self._targets.fleet.current[fault.server]
        if fault.server in self._frozen or generation.is_expected_to_end or not generation.lives():
            return False
        match fault.kind:
            case Kind.KILL_SERVER | Kind.STOP_SERVER:
                return self._end_server(fault, generation)
            case Kind.FREEZE_SERVER | Kind.FREEZE_SHORT:
                return self._freeze(fault, generation, [generation.pid])
            case Kind.FREEZE_FAMILY:
                return self._freeze(fault, generation, sorted(family_of(generation.mark)))
            case _:
                return self._strike_children(fault, generation)

    def _end_server(self, fault: Fault, generation: Generation) -> bool:
        strike = self.journal.strike(fault, generation.number)
        generation.is_expected_to_end = True
        generation.signal(signal.SIGKILL if fault.kind is Kind.KILL_SERVER else signal.SIGTERM)
        self._after(fault.for_s, lambda: self._start_server(strike, generation))
        return True

    def _start_server(self, strike: Strike, generation: Generation) -> None:
        if generation.lives():
            self._after(_ASK_AGAIN_S, lambda: self._start_server(strike, generation))
            return
        self._targets.fleet.start(strike.server)
        strike.end()

    def _freeze(self, fault: Fault, generation: Generation, pids: list[int]) -> bool:
        if self._frozen and len(self._targets.fleet.current) > 1:
            return False  # with all servers frozen nothing would be under fire
        strike = self.journal.strike(fault, generation.number)
        self._frozen.add(fault.server)
        _send(pids, signal.SIGSTOP)
        self._after(fault.for_s, lambda: self._thaw(strike, pids))
        return True

    def _thaw(self, strike: Strike, pids: list[int]) -> None:
        self._frozen.discard(strike.server)
        strike.end()
        _send(pids, signal.SIGCONT)

    def _strike_children(self, fault: Fault, generation: Generation) -> bool:
        children = self._children(generation)
        preloader = parent_of(children[0]) if children else 0
        match fault.kind:
            case Kind.KILL_CHILDREN:
                victims, signum = children, signal.SIGKILL
            case Kind.KILL_PRELOADER:
                victims, signum = [preloader] if preloader > 1 else [], signal.SIGKILL
            case Kind.KILL_HOOKS:
                victims, signum = self._hook_children(generation, preloader), signal.SIGKILL
            case Kind.FREEZE_CHILD:
                victims, signum = children[fault.pick % max(1, len(children)) :][:1], signal.SIGSTOP
            case _:
                victims, signum = children[fault.pick % max(1, len(children)) :][:1], signal.SIGKILL
        if not victims:
            return False
        # The death of a preloader ends all its children, of which it has struck every one.
        of_all = fault.kind in (Kind.KILL_PRELOADER, Kind.KILL_HOOKS)
        strike = self.journal.strike(fault, generation.number, () if of_all else tuple(victims))
        _send(victims, signum)
        if signum is signal.SIGSTOP:
            self._after(fault.for_s, lambda: self._thaw_child(strike, victims))
        else:
            strike.end()
        return True

    def _thaw_child(self, strike: Strike, pids: list[int]) -> None:
        strike.end()
        _send(pids, signal.SIGCONT)

    def _children(self, generation: Generation) -> list[int]:
        """Return the children that have worked; the running ones, if there are any, since they have something to lose.

        One that never worked is left alone: five of those in a row, and the pool rightly gives up.
        """
        self._targets.tail.update()
        for pids in self._targets.tail.workers(generation.number):
            if living := [pid for pid in pids if parent_of(parent_of(pid)) == generation.pid]:
                return sorted(living)
        return []

    def _hook_children(self, generation: Generation, preloader: int) -> list[int]:
        if preloader <= 1:
            return []
        family = family_of(generation.mark) - {generation.pid, preloader}
        return sorted(pid for pid in family if preloader not in (parent_of(pid), parent_of(parent_of(pid))))


def _send(pids: list[int], signum: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)

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

from tests.chaos.fleet import Generation, family_of, parent_of
from tests.chaos.journal import Journal, Strike
from tests.chaos.plan import NET, Fault, Kind
from tests.chaos.proxy import Proxy
from tests.chaos.shortage import take_descriptors
from tests.chaos.targets import Targets

_ASK_AGAIN_S: Final = 0.02
_REDIS: Final = {Kind.RESTART_REDIS, Kind.KILL_REDIS, Kind.FREEZE_REDIS, Kind.FREEZE_REDIS_LONG}
_DELAY_S: Final = 0.05
_CALM_S: Final = 5.0
"""For how long nothing else must have been wrong before Redis goes away for long."""
_BEGUN_S: Final = 3.0
"""How long tasks that are to outlast that have to begin."""


class Injector:
    """Carry out a plan."""

    def __init__(self, plan: list[Fault], targets: Targets, enqueue_outlasting: Callable[[], None]) -> None:
        self._targets = targets
        self._enqueue_outlasting = enqueue_outlasting
        self._numbers: Iterator[int] = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._began_s = 0.0
        self._plan = plan
        self._frozen: set[int] = set()  # servers
        self._broken: set[int] = set()  # proxies
        self._short: set[int] = set()  # processes without descriptors
        self._unread: set[int] = set()  # generations
        self._is_redis_away = False
        self.journal = Journal()
        self.self_ended: list[Generation] = []
        self.deaf: list[Generation] = []

    @property
    def is_through(self) -> bool:
        """Return whether every fault is over, and everything runs again."""
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
        if fault.kind is Kind.OUTAGE:
            self._await_calm(fault)
            return
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
        self._after(fault.for_s, lambda: self._repair(proxy, strike))
        return True

    def _repair(self, proxy: Proxy, strike: Strike) -> None:
        self._targets.proxies.call(proxy.repair())
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

    def _await_calm(self, fault: Fault) -> None:
        """Let Redis go away once everything else is over and all servers run."""
        if self._due or not all("ready: " in one.text for one in self._targets.fleet.current.values()):
            self._after(_ASK_AGAIN_S, lambda: self._await_calm(fault))
            return
        self._after(_CALM_S, self._enqueue_outlasting)
        self._after(_CALM_S + _BEGUN_S, lambda: self._begin_outage(fault))

    def _begin_outage(self, fault: Fault) -> None:
        strike = self.journal.strike(fault)
        self._targets.database.signal(signal.SIGSTOP)
        self._after(fault.for_s, lambda: self._thaw_redis(strike))

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
            case Kind.FDS_SERVER:
                # One that has no child yet ends, with a line that says why, after a few tries.
                return bool(self._targets.children(generation)) and self._take_descriptors(
                    fault, generation, generation.pid
                )
            case Kind.FDS_CHILD:
                children = _one_of(self._targets.children(generation), fault)
                return bool(children) and self._take_descriptors(fault, generation, children[0])
            case Kind.UNREAD_STDERR | Kind.UNREAD_STOP:
                return self._leave_unread(fault, generation)
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

    def _take_descriptors(self, fault: Fault, generation: Generation, pid: int) -> bool:
        if pid in self._short:
            return False
        strike = self.journal.strike(fault, generation.number, (pid,))
        self._short.add(pid)
        descriptors = take_descriptors(pid)

        def give_back() -> None:
            self._short.discard(pid)
            if descriptors is not None:
                descriptors.give_back()
            strike.end()

        self._after(fault.for_s, give_back)
        return True

    def _leave_unread(self, fault: Fault, generation: Generation) -> bool:
        """Let a server write its log into a full pipe, and let it have something to log."""
        children = _one_of(self._targets.children(generation), fault)
        if generation.number in self._unread or not children:
            return False
        is_stop = fault.kind is Kind.UNREAD_STOP
        strike = self.journal.strike(fault, generation.number, () if is_stop else tuple(children))
        self._unread.add(generation.number)
        generation.pipe.stand_still()
        if is_stop:
            generation.is_expected_to_end = True
            generation.signal(signal.SIGTERM)
            self._await_end(strike, generation, time.monotonic() + fault.for_s)
        else:
            _send(children, signal.SIGKILL)
            self._after(fault.for_s, lambda: self._read_again(strike, generation))
        return True

    def _read_again(self, strike: Strike, generation: Generation) -> None:
        self._unread.discard(generation.number)
        generation.pipe.go_on()
        strike.end()

    def _await_end(self, strike: Strike, generation: Generation, until_s: float) -> None:
        is_deaf = time.monotonic() > until_s
        if generation.lives() and not is_deaf:
            self._after(_ASK_AGAIN_S, lambda: self._await_end(strike, generation, until_s))
            return
        if is_deaf:
            self.deaf.append(generation)
        self._unread.discard(generation.number)
        generation.pipe.go_on()
        self._start_server(strike, generation)

    def _strike_children(self, fault: Fault, generation: Generation) -> bool:
        children = self._targets.children(generation)
        preloader = parent_of(children[0]) if children else 0
        match fault.kind:
            case Kind.KILL_CHILDREN:
                victims, signum = children, signal.SIGKILL
            case Kind.KILL_PRELOADER:
                victims, signum = [preloader] if preloader > 1 else [], signal.SIGKILL
            case Kind.KILL_HOOKS:
                victims, signum = self._targets.hook_children(generation, preloader), signal.SIGKILL
            case Kind.FREEZE_CHILD:
                victims, signum = _one_of(children, fault), signal.SIGSTOP
            case _:
                victims, signum = _one_of(children, fault), signal.SIGKILL
        if not victims:
            return False
        # The death of a preloader ends all its children, of which it has struck every one.
        of_all = fault.kind is Kind.KILL_PRELOADER
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


def _send(pids: list[int], signum: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


def _one_of(children: list[int], fault: Fault) -> list[int]:
    return children[fault.pick % max(1, len(children)) :][:1]

"""``--long``: children whose handlers hold the interpreter for minutes; their leases must not be lost.

The commands of the server's heartbeater are watched in Redis: how much later than its interval each beat came.
"""

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from signal import SIGTERM
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from fastq.broker.scripts import SCRIPTS
from fastq.client import Client
from fastq.terminal.interruption import Interruption
from tests.chaos.bench import place_for, start_database
from tests.chaos.fleet import Fleet, Plant
from tests.chaos.ledger import read_ledger, runs_of
from tests.chaos.options import ChaosOptions, timing_of

_QUEUE: Final = "high"
_MOST_LAG_S: Final = 1.0
_START_S: Final = 60.0
_EXTEND: Final = "extend_leases"


@dataclass(frozen=True)
class Endurance:
    """The result of an endurance run; lags are in seconds."""

    options: ChaosOptions
    took_s: float
    runs: int
    returned: int
    leases_lost: int
    lags_s: list[float]

    @property
    def p99_s(self) -> float:
        return statistics.quantiles(self.lags_s, n=100, method="inclusive")[98] if len(self.lags_s) > 1 else -1.0

    @property
    def is_good(self) -> bool:
        once_each = self.runs == self.returned == self.options.children
        return once_each and self.leases_lost == 0 and 0 <= self.p99_s < _MOST_LAG_S

    def figures(self) -> dict[str, Any]:
        """Return what is printed."""
        return {
            "children": self.options.children,
            "seconds in loops": self.options.seconds,
            "runs": self.runs,
            "runs that returned": self.returned,
            "leases lost": self.leases_lost,
            "heartbeats": len(self.lags_s) + 1,
            "heartbeat lag p50 [s]": round(statistics.median(self.lags_s), 3) if self.lags_s else None,
            "heartbeat lag p99 [s]": round(self.p99_s, 3),
            "heartbeat lag most [s]": round(max(self.lags_s), 3) if self.lags_s else None,
            "took [s]": round(self.took_s, 1),
            "ok": self.is_good,
        }


def run_long(options: ChaosOptions, interruption: Interruption, say: Callable[[str], None]) -> Endurance:
    """Let every child of one server hold the interpreter, and look at the server's heartbeats and leases."""
    began_s = time.monotonic()
    with ExitStack() as stack:
        place = stack.enter_context(place_for(options))
        database = start_database(options, place, stack)
        timing = timing_of(options.lease_s)
        plant = Plant(place, options.children, asdict(timing), [database.url])
        fleet = Fleet(plant)
        stack.callback(fleet.kill_all)
        server = fleet.start(0)
        _until(lambda: "ready: " in server.text, _START_S, interruption)
        beats = stack.enter_context(_Beats(database.client()))
        with Client(database.url) as client:
            for _ in range(options.children):
                client.enqueue("spin", {"ms": options.seconds * 1000}, queue=_QUEUE, timeout=36_000)
        say(f"{options.children} children are to hold their interpreters for {options.seconds:g} s each")
        with database.client() as db:
            _until(lambda: not _is_left(db), 2 * options.seconds + _START_S, interruption)
        server.is_expected_to_end = True
        server.signal(SIGTERM)
        _until(lambda: not server.lives(), _START_S, interruption)
        runs = [run for of_task in runs_of(read_ledger(plant.ledger)).values() for run in of_task]
        lost = server.text.count("lost the lease") + server.text.count("lost its lease before its outcome")
        interval_s = timing.heartbeat_interval_s
        lags_s = [max(0.0, gap_s - interval_s) for gap_s in beats.gaps_s()]
        took_s = time.monotonic() - began_s
        return Endurance(options, took_s, len(runs), sum(run.returned for run in runs), lost, lags_s)


def _until(is_so: Callable[[], bool], within_s: float, interruption: Interruption) -> None:
    until_s = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > until_s:
            raise TimeoutError(f"waited {within_s:g} s in vain")
        interruption.wait(0.1)


def _is_left(db: Redis) -> bool:
    ask: Any = db
    prefix = f"asynq:{{{_QUEUE}}}:"
    return bool(sum(ask.llen(prefix + state) for state in ("pending", "active")) + ask.zcard(prefix + "retry"))


class _Beats:
    """Note when leases are extended, by Redis' own clock."""

    def __init__(self, db: Redis) -> None:
        self._sha = SCRIPTS[_EXTEND].sha
        self._at_s: list[float] = []
        self._db = db
        self._thread = threading.Thread(target=self._watch, name="chaos monitor")
        self._stopping = False

    def __enter__(self) -> "_Beats":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        with Redis(unix_socket_path=self._db.connection_pool.connection_kwargs["path"]) as other:
            other.ping()  # something to hear, so that the watcher looks up
        self._thread.join()
        self._db.close()

    def gaps_s(self) -> list[float]:
        """Return the seconds between one beat and the next."""
        return [after - before for before, after in zip(self._at_s, self._at_s[1:], strict=False)]

    def _watch(self) -> None:
        db: Any = self._db
        try:
            with db.monitor() as monitor:
                for command in monitor.listen():
                    if self._stopping:
                        return
                    if self._sha in command["command"]:
                        self._at_s.append(command["time"])
        except RedisError:
            return

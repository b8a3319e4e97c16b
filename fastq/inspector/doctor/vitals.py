"""Data about Redis itself, read once; a ``Refused`` replaces data that Redis refuses to return."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastq.broker.inspect.redis_state import (
    SlowCommand,
    cluster_info,
    read_setting,
    read_time,
    redis_info,
    slow_commands,
)
from fastq.broker.operation import Flow, Operation
from fastq.broker.operations.health import ping
from fastq.inspector.doctor.finding import Refused, ask

SLOW_ENTRIES: Final = 128
NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Vitals:
    """Redis' INFO (in a cluster: of one node), some settings, the slow log, and the offset of Redis' clock.

    ``skew_s`` is the time by which Redis' clock is ahead of this machine's, within ``doubt_s``.
    """

    info: dict[str, str] | Refused
    save: str | Refused | None
    max_clients: str | Refused | None
    min_replicas: str | Refused | None
    slow: Sequence[SlowCommand] | Refused
    cluster: dict[str, str] | Refused
    now_s: float
    skew_s: float | Refused
    doubt_s: float

    @property
    def redis_now_s(self) -> float:
        """Return the time of Redis' clock; if that is unknown, of this machine's clock."""
        return self.now_s + (0.0 if isinstance(self.skew_s, Refused) else self.skew_s)

    def number(self, name: str) -> int | None:
        """Return a number of INFO, None if it is missing."""
        text = "" if isinstance(self.info, Refused) else self.info.get(name, "")
        return int(text) if text.isdecimal() else None

    def text(self, name: str) -> str:
        """Return a text of INFO, "" if it is missing."""
        return "" if isinstance(self.info, Refused) else self.info.get(name, "").strip()


def read_vitals(now_ns: Callable[[], int]) -> Flow[Vitals]:
    """Read all vitals; a Redis that does not answer, or refuses the login, is an error."""
    info = yield from ask(redis_info())
    if isinstance(info, Refused):
        yield ping()  # raises for a wrong password, and needs no right to read INFO
    elif info.get("loading", "0").strip() == "1":
        loading = Refused("Redis is loading its data")
        return Vitals(info, loading, loading, loading, loading, loading, now_ns() / NS, loading, 0.0)
    cluster: Any = Refused("no cluster")
    if not isinstance(info, Refused) and info.get("cluster_enabled", "").strip() == "1":
        cluster = yield from ask(cluster_info())
    skew_s, doubt_s = yield from _skew(now_ns)
    return Vitals(
        info=info,
        save=(yield from ask(read_setting("save"))),
        max_clients=(yield from ask(read_setting("maxclients"))),
        min_replicas=(yield from ask(read_setting("min-replicas-to-write"))),
        slow=(yield from ask(slow_commands(SLOW_ENTRIES))),
        cluster=cluster,
        now_s=now_ns() / NS,
        skew_s=skew_s,
        doubt_s=doubt_s,
    )


def _skew(now_ns: Callable[[], int]) -> Flow[tuple[float | Refused, float]]:
    """Return by how much Redis' clock is ahead, and the doubt: half of the time that the request took."""
    time: Operation[float] = read_time()
    yield from ask(time)  # opens the connection before the time is measured
    before_s = now_ns() / NS
    theirs_s = yield from ask(time)
    after_s = now_ns() / NS
    if isinstance(theirs_s, Refused):
        return theirs_s, 0.0
    return theirs_s - (before_s + after_s) / 2, (after_s - before_s) / 2

"""What Redis says of itself, read once; what it does not tell stands as a refusal."""

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

__all__ = ["Vitals", "read_vitals"]

SLOW_ENTRIES: Final = 128
NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Vitals:
    """Redis' INFO (in a cluster: of one node), some settings, the slow log, and the offset of Redis' clock.

    ``skew_s`` is how far Redis' clock is ahead of this machine's, within ``doubt_s``.
    """

    info: dict[str, str] | Refused
    save: str | Refused | None
    max_clients: str | Refused | None
    slow: Sequence[SlowCommand] | Refused
    cluster: dict[str, str] | Refused
    now_s: float
    skew_s: float | Refused
    doubt_s: float

    @property
    def redis_now_s(self) -> float:
        """Return what Redis' clock says, as far as is known."""
        return self.now_s + (0.0 if isinstance(self.skew_s, Refused) else self.skew_s)

    def number(self, name: str) -> int | None:
        """Return a number that INFO has, None if it does not say."""
        text = "" if isinstance(self.info, Refused) else self.info.get(name, "")
        return int(text) if text.isdecimal() else None

    def text(self, name: str) -> str:
        """Return what INFO has, "" if it does not say."""
        return "" if isinstance(self.info, Refused) else self.info.get(name, "").strip()


def read_vitals(now_ns: Callable[[], int]) -> Flow[Vitals]:
    """Read all of it; a Redis that does not answer, or refuses the login, is an error."""
    info = yield from ask(redis_info())
    if isinstance(info, Refused):
        yield ping()  # a user who may not ask is told apart from one whose password is wrong
    elif info.get("loading", "0").strip() == "1":
        loading = Refused("Redis is loading its data")
        return Vitals(info, loading, loading, loading, loading, now_ns() / NS, loading, 0.0)
    cluster: Any = Refused("no cluster")
    if not isinstance(info, Refused) and info.get("cluster_enabled", "").strip() == "1":
        cluster = yield from ask(cluster_info())
    skew_s, doubt_s = yield from _skew(now_ns)
    return Vitals(
        info=info,
        save=(yield from ask(read_setting("save"))),
        max_clients=(yield from ask(read_setting("maxclients"))),
        slow=(yield from ask(slow_commands(SLOW_ENTRIES))),
        cluster=cluster,
        now_s=now_ns() / NS,
        skew_s=skew_s,
        doubt_s=doubt_s,
    )


def _skew(now_ns: Callable[[], int]) -> Flow[tuple[float | Refused, float]]:
    """Compare the clocks: Redis read its own somewhere between asking and the answer."""
    time: Operation[float] = read_time()
    yield from ask(time)  # so that no connection is made within the measured time
    before_s = now_ns() / NS
    theirs_s = yield from ask(time)
    after_s = now_ns() / NS
    if isinstance(theirs_s, Refused):
        return theirs_s, 0.0
    return theirs_s - (before_s + after_s) / 2, (after_s - before_s) / 2

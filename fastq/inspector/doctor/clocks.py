"""Checks of clocks: Redis' clock against this machine's, and each server's against Redis'."""

from collections.abc import Sequence
from typing import Final

from fastq.broker.inspect.registry import RegistryEntry
from fastq.inspector.doctor.finding import Finding, Level, Refused, unseen
from fastq.inspector.doctor.vitals import Vitals

WARN_S: Final = 2.0
BAD_S: Final = 10.0
"""A lease lasts 30 s by its owner's clock. Other servers wait 30 s more, by their clocks, before they take it over."""
RENEWED_S: Final = 6.0
"""A server renews its entry within this time."""
WHY: Final = (
    "times are compared across machines: tasks run too early or late, and leases expire while their servers live"
)
ADVICE: Final = "synchronize the clocks of all machines by NTP (chrony, systemd-timesyncd)"


def check_clock(vitals: Vitals) -> Finding:
    """Compare Redis' clock with this machine's."""
    if isinstance(vitals.skew_s, Refused):
        return unseen("clock", vitals.skew_s.why)
    apart_s = max(0.0, abs(vitals.skew_s) - vitals.doubt_s)
    side = "ahead of" if vitals.skew_s > 0 else "behind"
    if apart_s < WARN_S:
        return Finding("clock", Level.OK, f"Redis and this machine differ by at most {apart_s:.1f} s")
    return Finding("clock", _level(apart_s), f"Redis' is {apart_s:.1f} s {side} this machine's", WHY, ADVICE)


def check_server_clocks(registry: Sequence[RegistryEntry], vitals: Vitals, passed_s: float) -> Finding:
    """Compare servers' and schedulers' clocks with Redis'.

    Servers and schedulers write the expiry of their entries by their own clocks, and Redis counts down the TTL by its
    clock. The registry was read at most ``passed_s`` after the vitals.
    """
    if isinstance(vitals.skew_s, Refused):
        return unseen("server clocks", vitals.skew_s.why)
    skews = _skews(registry, vitals)
    # Servers write whole seconds, and a heartbeat takes a moment to arrive.
    doubt_s = WARN_S + vitals.doubt_s
    wrong = {name: skew_s for name, skew_s in skews.items() if not -doubt_s < skew_s < doubt_s + passed_s}
    if not wrong:
        return Finding("server clocks", Level.OK, f"servers and schedulers: {len(skews)}, the same as Redis")
    said = [f"{name}: {abs(skew_s):.0f} s {'ahead' if skew_s > 0 else 'behind'}" for name, skew_s in wrong.items()]
    level = _level(max(map(abs, wrong.values())))
    seen = f"{len(wrong)} of {len(skews)} differ from Redis' clock"
    return Finding("server clocks", level, seen, WHY, ADVICE, count=len(wrong), examples=tuple(sorted(said)[:5]))


def check_renewal(
    before: Sequence[RegistryEntry],
    registry: Sequence[RegistryEntry],
    vitals: Vitals,
    before_passed_s: float,
    passed_s: float,
) -> list[Finding]:
    """Compare the entries of servers whose clocks seem wrong with those read ``RENEWED_S`` earlier, in ``before``. If a
    clock is wrong, the difference is the same both times. If Redis accepts only a part of each heartbeat, the entry's
    TTL is renewed but its expiry is not, so the clock seems to fall behind.
    """
    first, between_s = _skews(before, vitals), passed_s - before_passed_s
    stuck = {
        name
        for name, skew_s in _skews(registry, vitals).items()
        if name in first and skew_s - between_s < first[name] - WARN_S
    }
    clocks = check_server_clocks([one for one in registry if _name(one) not in stuck], vitals, passed_s)
    if not stuck:
        return [clocks]
    refused = Finding(
        "heartbeats",
        Level.PROBLEM,
        f"{len(stuck)} servers cannot renew their entries",
        "Redis refuses a part of their heartbeats: others take them for gone, and may take over their tasks",
        "see memory and role above, the rights of their Redis user (fastq acl worker), and their logs",
        count=len(stuck),
        examples=tuple(sorted(stuck)[:5]),
    )
    return [clocks, refused]


def _skews(registry: Sequence[RegistryEntry], vitals: Vitals) -> dict[str, float]:
    return {
        _name(one): one.expires_s - (vitals.redis_now_s + one.ttl_ms / 1000)
        for one in registry
        if one.ttl_ms > 0 and one.listed_in != "workers"
    }


def _name(one: RegistryEntry) -> str:
    """Return host and process of a server, or the id of a scheduler, which has the same form."""
    return one.key.partition("{")[2].rstrip("}").rpartition(":")[0] or one.key


def _level(apart_s: float) -> Level:
    return Level.PROBLEM if apart_s >= BAD_S else Level.WARNING

"""Checks of the entries that servers and schedulers publish."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from fastq.broker.inspect.registry import RegistryEntry
from fastq.broker.operations.signs import Takeover
from fastq.inspector.doctor.finding import Finding, Level
from fastq.inspector.doctor.vitals import Vitals

STALE_S: Final = 60
"""How long after its expiry an entry is stale. A live server renews its entry every 5 s, a scheduler every 10 s."""
LATELY_S: Final = 3600


def stale_before(vitals: Vitals) -> int:
    """Return a time in Unix seconds: a member of the registry that expired before it is stale."""
    return int(vitals.redis_now_s) - STALE_S


def check_registry(registry: Sequence[RegistryEntry], vitals: Vitals) -> Finding:
    """Find members that their owners have not renewed for a while, as killed servers leave them."""
    stale = [one for one in registry if one.expires_s < stale_before(vitals)]
    live = Counter(one.listed_in for one in registry if one not in stale)
    if not stale:
        return Finding(
            "server lists", Level.OK, f"servers: {live['servers']}, schedulers: {live['schedulers']}; nothing stale"
        )
    return Finding(
        "server lists",
        Level.WARNING,
        f"{len(stale)} entries of servers that are gone",
        why="killed servers leave them behind; they only disturb people who read the lists by hand",
        advice="--repair removes them; so does fastq server ls",
        count=len(stale),
        examples=tuple(sorted(one.key for one in stale)[:5]),
    )


def check_takeovers(takeovers: Sequence[Takeover], vitals: Vitals) -> list[Finding]:
    """Find takeovers within the last hour: tasks that servers took from servers that were dead or cut off."""
    lately = [one for one in takeovers if one.at_s > vitals.redis_now_s - LATELY_S]
    if not lately:
        return []
    return [
        Finding(
            "takeovers",
            Level.WARNING,
            f"{sum(one.tasks for one in lately)} tasks were taken within the last hour, from servers that were gone: "
            f"{len({one.server for one in lately})}",
            why="the servers did not end in order: they were killed, or lost Redis",
            advice="see their logs, and whether the system has killed them for lack of memory",
            count=len(lately),
            examples=tuple(
                f"{one.taker} took {one.tasks} tasks of queue {one.queue} from {one.server}: {one.why}"
                for one in lately[:5]
            ),
        )
    ]

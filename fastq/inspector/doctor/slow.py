"""A check of Redis' slow log for scripts and commands on asynq's keys: each one blocks all clients."""

from collections import Counter
from typing import Final

from fastq.inspector.doctor.finding import Finding, Level, Refused, unseen
from fastq.inspector.doctor.vitals import Vitals

RECENT_S: Final = 3600


def check_slow_commands(vitals: Vitals) -> Finding:
    """Check the slow log's entries of the last hour."""
    if isinstance(vitals.slow, Refused):
        return unseen("slow commands", vitals.slow.why)
    slow = [one for one in vitals.slow if one.is_ours and one.at_s > vitals.redis_now_s - RECENT_S]
    if not slow:
        return Finding("slow commands", Level.OK, "none in the slow log in the last hour")
    worst = max(slow, key=lambda one: one.took_us)
    counts = Counter(one.name for one in slow).most_common(5)
    return Finding(
        "slow commands",
        Level.WARNING,
        f"{len(slow)} in the last hour, the slowest {worst.name} with {worst.took_us / 1000:.0f} ms",
        why="Redis does one thing at a time: while a slow script runs, no server fetches or ends tasks",
        advice="see SLOWLOG GET; big payloads, asynq's inspector on long queues, a busy machine or a swapping Redis "
        "are the usual causes",
        count=len(slow),
        examples=tuple(f"{name}: {count}" for name, count in counts),
    )

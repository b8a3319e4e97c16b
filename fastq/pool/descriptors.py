"""How many descriptors a process may open: the main process and the preloader as many as the system lets them.

The limit that this process was given is the children's: old code may count on it (``select``, closing all that there
may be).
"""

import contextlib
import resource

__all__ = ["check_descriptors", "given_soft_limit", "raise_own_limit", "raise_soft_limit", "set_soft_limit"]

PER_CHILD = 2
OTHERS = 64
"""Connections to Redis, log, wake-ups, the hooks' and the aggregator's child."""

_given: list[int] = []


def raise_soft_limit() -> int:
    """Raise this process' soft limit to its hard one, as far as the system lets it; return what it was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS has another limit besides
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def raise_own_limit() -> None:
    """Raise the soft limit of this main process, and note the one that its children are to have."""
    _given[:] = [given_soft_limit()]
    raise_soft_limit()


def given_soft_limit() -> int:
    """Return the soft limit with which this process was started."""
    return _given[0] if _given else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def set_soft_limit(soft: int) -> None:
    """Set this process' soft limit, to the hard one if that is less."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    unlimited = hard == resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft if unlimited or 0 <= soft < hard else hard, hard))


def check_descriptors(processes: int) -> str:
    """Return why so many children cannot be started, "" if they can as far as descriptors go."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = processes * PER_CHILD + OTHERS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return ""
    return (
        f"{processes} child processes take {needed} file descriptors, and this process may open {soft}: "
        f"raise its hard limit (ulimit -Hn, LimitNOFILE= in systemd, --ulimit nofile= in Docker) or lower concurrency"
    )

"""Limits of open descriptors: the main process and the preloader raise theirs as far as the system lets them.

Children get the limit with which the main process was started. Old code may rely on it (``select``, or closing every
possible descriptor).
"""

import contextlib
import resource

PER_CHILD = 2
OTHERS = 64
"""For connections to Redis, the log, wake-ups, and the children for hooks and aggregator."""

_given: list[int] = []


def raise_soft_limit() -> int:
    """Raise the soft limit of this process to its hard limit, as far as allowed; return the old soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS has a further limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def raise_own_limit() -> None:
    """Raise the soft limit of this main process, and remember the old limit for its children."""
    _given[:] = [given_soft_limit()]
    raise_soft_limit()


def given_soft_limit() -> int:
    """Return the soft limit with which this process was started."""
    return _given[0] if _given else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def set_soft_limit(soft: int) -> None:
    """Set the soft limit of this process, at most to its hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    unlimited = hard == resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft if unlimited or 0 <= soft < hard else hard, hard))


def check_descriptors(processes: int) -> str:
    """Return why ``processes`` children would need too many descriptors, "" if they would not."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = processes * PER_CHILD + OTHERS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return ""
    return (
        f"{processes} child processes take {needed} file descriptors, and this process may open {soft}: "
        f"raise its hard limit (ulimit -Hn, LimitNOFILE= in systemd, --ulimit nofile= in Docker) or lower concurrency"
    )

"""The fates of tasks, and the lots: similar tasks with the same expected fate."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from fastq.options import EnqueueOptions

_NO_RETRY: Final[EnqueueOptions] = {"max_retry": 0}
_SHORT: Final[EnqueueOptions] = {"max_retry": 0, "timeout": 2}


class Fate(Enum):
    """The fate of a task, in the words of the summary; the last two are never expected."""

    DONE = "done"
    KEPT = "done, result kept and recomputed"
    RETRIED = "failed, retried, done"
    EXHAUSTED = "failed three times, archived"
    SKIPPED = "raised SkipRetry, archived at once"
    REVOKED = "raised RevokeTask, deleted"
    TIMED_OUT = "hung, timed out, archived"
    CANCELED = "hung, canceled, archived"
    CRASHED = "crashed its process, archived"
    REFUSED = "refused at enqueue as duplicates"
    LOST = "lost"
    LEFT = "left in Redis"


@dataclass(frozen=True, slots=True, eq=False)
class Lot:
    """A number of similar tasks: at most ``most`` of them, or one in ``one_in`` if that is fewer.

    ``type`` is empty for one of the three kinds of text work. ``runs`` is the number of runs of each task, ``failures``
    the number of runs that count as failed.
    """

    name: str
    fate: Fate
    type: str = ""
    options: EnqueueOptions = field(default_factory=EnqueueOptions)
    most: int = 1
    one_in: int = 1
    runs: int = 1
    failures: int = 0

    def count(self, tasks: int) -> int:
        """Return the number of tasks of this lot, given the number of all tasks."""
        return min(self.most, tasks // self.one_in)


STEADY: Final = Lot("steady", Fate.DONE)
KEPT: Final = Lot("kept", Fate.KEPT, options={"retention": 3600}, most=200, one_in=50)
UNIQUE: Final = Lot("unique", Fate.DONE, "text:squeeze", {"unique": 3600}, most=50, one_in=100)
DUPLICATE: Final = Lot("duplicate", Fate.REFUSED, runs=0)
DELAYED: Final = Lot("delayed", Fate.DONE, most=500, one_in=20)
LATE: Final = Lot("late", Fate.DONE, most=60, one_in=50)
"""Delayed tasks that are enqueued once all others are done, so that they find an idle server."""

SCATTERED: Final = (
    KEPT,
    UNIQUE,
    DELAYED,
    Lot("flaky", Fate.RETRIED, "flaky:fingerprint", {"max_retry": 3}, most=10**6, one_in=100, runs=2, failures=1),
    Lot("hopeless", Fate.EXHAUSTED, "fail:always", {"max_retry": 2}, most=20, one_in=100, runs=3, failures=3),
    Lot("unreadable", Fate.SKIPPED, "fail:skip", most=10, one_in=100, failures=1),
    Lot("withdrawn", Fate.REVOKED, "fail:revoke", most=10, one_in=100),
)
"""The lots that are scattered randomly over the first wave."""

STUCK: Final = Lot("stuck", Fate.CANCELED, "hang:sleep", _NO_RETRY, failures=1)
"""Canceled by the demo as soon as it has begun."""

SINGLES: Final = (
    (Lot("looping", Fate.TIMED_OUT, "hang:loop", _SHORT, failures=1), 0, 0.15),
    (Lot("sleeping", Fate.TIMED_OUT, "hang:sleep", _SHORT, failures=1), 0, 0.45),
    (Lot("stubborn", Fate.TIMED_OUT, "hang:stubborn", _SHORT, failures=1), 0, 0.75),
    (Lot("crashing", Fate.CRASHED, "crash:exit", _NO_RETRY, failures=1), 1, 0.1),
    (STUCK, 1, 0.25),
)
"""Lots of one task, their queue numbers, and their positions in the first wave: apart, so that one hangs at a time."""

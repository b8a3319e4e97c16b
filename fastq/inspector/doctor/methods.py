"""What an inspector offers of the doctor: an examination, and the repairs that it found to be safe."""

from collections.abc import Iterable

from fastq.broker.operation import Flow
from fastq.inspector.checks import check_count, check_queue
from fastq.inspector.doctor.examination import LIMIT, Order, Report, examine
from fastq.inspector.doctor.repairs import Repair
from fastq.inspector.driver import Driver, operation
from fastq.inspector.progress import OnProgress, Progress, stoppable

__all__ = ["DoctorMethods"]

MOST: int = 10**15


class DoctorMethods(Driver):
    """What an inspector offers of the doctor."""

    @operation
    def examine(
        self, queues: Iterable[str] = (), *, limit: int | None = LIMIT, progress: OnProgress | None = None
    ) -> Flow[Report]:
        """Look for what is wrong with Redis, the servers and the queues (all unless some are named); changes nothing.

        At most ``limit`` tasks are looked at, and three times as many keys; None is all. What looks wrong is looked at
        a second time before it is told. Redis is asked in pieces of a few milliseconds.
        """
        named = tuple(dict.fromkeys(map(check_queue, [queues] if isinstance(queues, str) else queues)))
        if limit is not None:
            check_count(limit, "limit", MOST)
        now = Progress()

        def note(looked_at: int, of: int) -> None:
            now.done, now.total = looked_at, max(of, looked_at)
            if progress is not None:
                progress(now)

        return examine(Order(self._now_ns, named, limit, note))

    @operation
    def repair(self, repair: Repair, *, progress: OnProgress | None = None) -> Flow[int]:
        """Carry out one of the repairs of a ``Report``; returns how many were repaired.

        Each script looks again in the moment in which it repairs. ``progress`` is called before each step of it.
        """
        now = Progress(repair.count)
        return stoppable(repair.carry_out(), lambda: progress and progress(now))

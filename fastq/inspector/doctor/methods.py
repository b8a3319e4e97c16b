"""The inspector's methods for the doctor: an examination, and its safe repairs."""

from collections.abc import Iterable

from fastq.broker.operation import Flow
from fastq.inspector.checks import check_count, check_queue
from fastq.inspector.doctor.examination import LIMIT, Order, Report, examine
from fastq.inspector.doctor.repairs import Repair
from fastq.inspector.driver import Driver, action, operation
from fastq.inspector.progress import OnProgress, Progress, stoppable

MOST: int = 10**15


class DoctorMethods(Driver):
    """The inspector's methods for the doctor."""

    @operation
    def examine(
        self, queues: Iterable[str] = (), *, limit: int | None = LIMIT, progress: OnProgress | None = None
    ) -> Flow[Report]:
        """Find problems with Redis, the servers and the queues (all unless some are named); changes nothing.

        At most ``limit`` tasks are examined, and three times as many keys; None means all. Suspects are examined a
        second time before they are reported. Each call takes a few milliseconds of Redis' time.
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

    @action
    def repair(self, repair: Repair, *, progress: OnProgress | None = None) -> Flow[int]:
        """Carry out one of the repairs of a ``Report``; returns the number of cases repaired.

        Each script checks again, atomically, before it repairs. ``progress`` is called before each step.
        """
        now = Progress(repair.count)
        return stoppable(repair.carry_out(), lambda: progress and progress(now))

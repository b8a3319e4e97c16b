"""The figures of a run, all computed from the times in the handlers' ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastq.demo.books import Books
from fastq.demo.fates import LATE
from fastq.demo.ledger import Run


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates in runs a second, shares from 0 to 1, lateness in seconds.

    The busy time lasts from the start of the first run until the first queue has no backlog. ``busy_runs`` are the runs
    that started in that time, and ``shares`` are the queues' shares of these runs. ``late_busy`` is how late the
    delayed tasks of the first wave began, behind the backlog; ``late_idle`` is the same for the second wave.
    """

    runs: int
    seconds: float
    busy_runs: int
    busy_seconds: float
    shares: Mapping[str, float]
    late_busy: Sequence[float]
    late_idle: Sequence[float]

    @property
    def busy_rate(self) -> float:
        """Return the runs a second while all queues were full; 0 if they never were."""
        return self.busy_runs / self.busy_seconds if self.busy_seconds else 0.0


def measure(books: Books, ledger: Mapping[str, Sequence[Run]]) -> Figures:
    """Compute the figures of a run from the enqueued tasks and the handlers' ledger."""
    begun: list[tuple[int, str]] = []
    last_of_backlog: dict[str, int] = {}
    ended_ns = 0
    for task_id, order in books.by_id.items():
        runs = ledger.get(task_id, ())
        begun += ((run.begun_ns, order.queue) for run in runs)
        ended_ns = max([ended_ns, *(run.ended_ns for run in runs)])
        if runs and not order.due_ns:
            last_of_backlog[order.queue] = max(last_of_backlog.get(order.queue, 0), runs[0].begun_ns)
    start_ns = min(begun)[0] if begun else 0
    busy_until_ns = min(last_of_backlog.values(), default=0)
    busy = Counter(queue for begun_ns, queue in begun if begun_ns <= busy_until_ns)
    return Figures(
        runs=len(begun),
        seconds=max(0, ended_ns - start_ns) / 1e9,
        busy_runs=busy.total(),
        busy_seconds=max(0, busy_until_ns - start_ns) / 1e9,
        shares={queue: busy[queue] / (busy.total() or 1) for queue in last_of_backlog},
        late_busy=_lateness(books, ledger, late=False),
        late_idle=_lateness(books, ledger, late=True),
    )


def _lateness(books: Books, ledger: Mapping[str, Sequence[Run]], *, late: bool) -> list[float]:
    delayed = (
        (task_id, order) for task_id, order in books.by_id.items() if order.due_ns and (order.lot is LATE) is late
    )
    return sorted((ledger[task_id][0].begun_ns - order.due_ns) / 1e9 for task_id, order in delayed if task_id in ledger)


def quantile(ascending: Sequence[float], part: float) -> float:
    """Return the value below which a given part of the values lies; NaN without values."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * part))] if ascending else float("nan")

"""``fastq stats --since``: the recent runs of all queues, by queue and type."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from fastq.cli.session import Session, askable, emit
from fastq.cli.tables import Column, heading, table
from fastq.common.times import read_duration
from fastq.errors import QueueNotFoundError
from fastq.inspector import RunHistory, RunStats
from fastq.inspector.json_records import history_record
from fastq.inspector.runs import OTHERS, check_since, outcomes_of
from fastq.text.human import bound_text, clean, number, share, span
from fastq.wire.history import MINUTES_KEPT_S

_RANKS: Final = {"retried": 5, "archived": 3, "lost": 2}
_SHORT: Final = {"archived": "ARCH"}
_NUMBERS: Final = (
    Column("DONE", right=True),
    Column("FAILED", right=True),
    Column("ERRORS", right=True, rank=1),
    *(Column(name.upper(), right=True, short=_SHORT.get(name, ""), rank=_RANKS.get(name, 4)) for name in OTHERS),
    Column("RUN P50", right=True, rank=6),
    Column("RUN P95", right=True),
    Column("WAIT P50", right=True, rank=7),
    Column("WAIT P95", right=True),
)
_QUEUE: Final = Column("QUEUE", cut=True)
_TYPE: Final = Column("TYPE", cut=True)


def show_history(session: Session, since: str, *, as_json: bool) -> None:
    """Print the history of all queues."""
    since_s = check_since(read_duration(since))
    by_type = since_s <= MINUTES_KEPT_S
    found = []
    for name in askable(session.inspector.queues()):
        with suppress(QueueNotFoundError):  # the queue was deleted after it was listed
            found.append(session.inspector.run_history(name, since_s, by_type=by_type))
    if as_json:
        emit({"since_s": since_s, "queues": [history_record(one) for one in found]})
    else:
        _show(session, found, since_s)


def _show(session: Session, found: Sequence[RunHistory], since_s: float) -> None:
    screen = session.screen
    heading(screen, f"The last {span(timedelta(seconds=since_s))}")
    rows = [(one.queue, one.total) for one in found if _is_any(one.total)]
    if not rows:
        screen.say("No fastq server has written of any run; those of Go write nothing.")
        return
    table(screen, (_QUEUE, *_NUMBERS), [[clean(name), *_numbers(total)] for name, total in rows])
    types = [(one.queue, name, of_type) for one in found for name, of_type in one.types.items()]
    if types:
        screen.say()
        heading(screen, "By type")
        rows_of_types = [[clean(queue), clean(name), *_numbers(of_type)] for queue, name, of_type in types]
        table(screen, (_QUEUE, _TYPE, *_NUMBERS), rows_of_types)


def _is_any(total: RunStats) -> bool:
    return any((*outcomes_of(total).values(), total.run.count, total.wait.count))


def _numbers(stats: RunStats) -> list[str]:
    return [
        number(stats.done),
        number(stats.failed),
        share(stats.failed, stats.processed),
        *(number(getattr(stats, name)) for name in OTHERS),
        *(bound_text(times.quantile(part)) for times in (stats.run, stats.wait) for part in (0.5, 0.95)),
    ]

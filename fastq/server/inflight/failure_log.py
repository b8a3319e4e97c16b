"""The log lines of tasks that did not simply succeed: one per task, up to a limit; lines beyond it are only counted."""

import asyncio
import logging
from typing import Any, Final, NamedTuple

from fastq.broker.operations.finish import FATES, Archived, Disposition, Retried
from fastq.common.clock import Clock
from fastq.common.durations import format_duration
from fastq.log.limit import LINES, PER_S, LogLimit, until_next_s
from fastq.pool.main.protocol import EventKind
from fastq.server.inflight.dispositions import overrides
from fastq.server.inflight.tasks import InFlightTask
from fastq.worker.shared.report import FailureReport

MAX_ERROR: Final = 1000
"""Characters of an error in its line; the complete error is stored with the task."""

_log = logging.getLogger("fastq.pool")


class _LineKind(NamedTuple):
    """The word for a task's fate, and the level of its log line."""

    word: str
    level: int


_SNOOZED: Final = _LineKind("snoozed", logging.DEBUG)
_LINE_KINDS: Final = {end: _LineKind(fate.word, fate.level) for end, fate in FATES.items()}


class FailureLog:
    """The lines about tasks that did not simply succeed.

    For each type, error class and disposition, at most ten lines are written in ten seconds. No line has a payload.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limit = LogLimit[tuple[_LineKind, str, str]]()
        self._timer: asyncio.TimerHandle | None = None

    def add(
        self, task: InFlightTask, kind: EventKind, disposition: Disposition, report: FailureReport, ran_ns: int = 0
    ) -> None:
        """Log the fate of a task, or count it; ``ran_ns`` is 0 if it did not run."""
        is_snoozed = report.is_snoozed and isinstance(disposition, Retried)
        line_kind = _SNOOZED if is_snoozed else _LINE_KINDS[type(disposition)]
        if not _log.isEnabledFor(line_kind.level):
            return
        view = task.view
        # A child makes no traceback for a failure that is surely beyond the limit. Such a failure gets no line.
        most = 0 if report.trace is None else LINES
        if not self._limit.allows((line_kind, view.type, report.error_class), self._clock.monotonic_s(), most=most):
            if self._timer is None:
                self._log_later()
            return
        now_s = self._clock.unix_ns() // 1_000_000_000
        about = _about(task, line_kind.word, disposition, report, now_s)
        follows = _follows(disposition, now_s)
        if isinstance(disposition, Archived):
            follows = f"{follows}: {_why_final(task, kind, report)}"
        what = "failed" if isinstance(disposition, Retried | Archived) and not is_snoozed else "ended"
        error = report.error if len(report.error) <= MAX_ERROR else f"{report.error[:MAX_ERROR]}…"
        _log.log(
            line_kind.level,
            "task %s (%s, queue %s) %s at attempt %d of %d%s: %s; %s",
            *(task.id, view.type, task.queue, what, about["attempt"], about["max_attempts"]),
            *(f" after {ran_ns / 1e9:.3f} s" if ran_ns else "", error, follows),
            extra={"about": {**about, "ran_s": round(ran_ns / 1e9, 6)}, "below": report.trace, "is_limited": True},
        )

    def finish(self) -> None:
        """Log how many lines were suppressed since the last such count."""
        if self._timer is not None:
            self._timer.cancel()
        self._log_suppressed(self._clock.monotonic_s() + PER_S)

    def _log_later(self) -> None:
        delay_s = until_next_s(self._clock.monotonic_s())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._log_rest)

    def _log_rest(self) -> None:
        self._timer = None
        self._log_suppressed(self._clock.monotonic_s())
        if self._limit.holds_back:
            self._log_later()

    def _log_suppressed(self, now_s: float) -> None:
        for kind, count in self._limit.ended(now_s):
            line_kind, task_type, error_class = kind or (_LINE_KINDS[Retried], "other types", "other errors")
            _log.log(
                line_kind.level,
                "%d more tasks of %s ended with %s in %.0f s and were %s",
                *(count, task_type, error_class, PER_S, line_kind.word),
                extra={
                    "about": {"task_type": task_type, "error": error_class, "outcome": line_kind.word, "count": count},
                    "is_limited": True,
                },
            )


def _about(
    task: InFlightTask, outcome: str, disposition: Disposition, report: FailureReport, now_s: int
) -> dict[str, Any]:
    view = task.view
    return {
        "task_id": task.id,
        "task_type": view.type,
        "queue": task.queue,
        "attempt": view.retried + 1,
        "max_attempts": report.limit(view.retry) + 1,
        "outcome": outcome,
        "error": report.error,
        **({"retry_in_s": disposition.retry_at_s - now_s} if isinstance(disposition, Retried) else {}),
    }


def _why_final(task: InFlightTask, kind: EventKind, report: FailureReport) -> str:
    """Return why a task is archived."""
    if task.canceled is not None and overrides(task, kind):
        return "it was canceled so"
    if kind is EventKind.INVALID:
        return "its message cannot be read"
    return report.final or f"out of retries (max_retry {report.limit(task.view.retry)})"


def _follows(disposition: Disposition, now_s: int) -> str:
    if not isinstance(disposition, Retried):
        return FATES[type(disposition)].word
    free = "" if disposition.is_failure else ", not counted as a failure"
    return f"next try in {format_duration((disposition.retry_at_s - now_s) * 1_000_000_000)}{free}"

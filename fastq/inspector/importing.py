"""The import of tasks that ``export_tasks`` wrote, in the states that they had."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from fastq.broker.inspect.put import PutOutcome, TaskToPut, put_tasks
from fastq.broker.inspect.queues import list_queues
from fastq.broker.operation import Flow
from fastq.broker.operations.archive_rule import ArchiveRule, read_archive_rule
from fastq.broker.operations.enqueue import register_queue
from fastq.broker.operations.lease import id_word
from fastq.common.states import TaskState
from fastq.errors import BadLinesError
from fastq.inspector.driver import Driver, action, operation
from fastq.inspector.line_reading import Line, read_line
from fastq.inspector.records import ImportReport
from fastq.inspector.search import sources_of
from fastq.log.printable import clean
from fastq.options import check_queue_name

LINES_A_CALL: Final = 200
MAX_CALL_BYTES: Final = 256_000
NAMED: Final = 20
"""How many of the lines that are left out are listed, for each kind."""


class ImportMethods(Driver):
    """The inspector's import."""

    @action
    def import_tasks(
        self,
        lines: Iterable[str | bytes],
        *,
        queue: str | None = None,
        skip_bad: bool = False,
        active_as_pending: bool = False,
        progress: Callable[[ImportReport], object] | None = None,
    ) -> Flow[ImportReport]:
        """Import tasks that ``export_tasks`` wrote, in the states that they had; all into ``queue`` if it is given.

        If ``lines`` can be iterated twice, like a list, all lines are checked before anything is written; the lines of
        an iterator are checked 200 at a time. Bad lines raise ``BadLinesError``, or are left out with ``skip_bad``.
        Active tasks are left out unless ``active_as_pending`` is set, and so are archived tasks for which the archive
        has no room. Tasks whose id exists in the queue are left out, too, so an interrupted import can be run again.

        A unique lock is set if it has not expired and no other task has it. ``progress`` is called before each chunk,
        and may end the import by raising.
        """
        wishes = _Wishes(queue, False, skip_bad, active_as_pending)
        return _Importing(wishes, progress).run(lines)

    @operation
    def check_import(
        self,
        lines: Iterable[str | bytes],
        *,
        queue: str | None = None,
        skip_bad: bool = False,
        active_as_pending: bool = False,
        progress: Callable[[ImportReport], object] | None = None,
    ) -> Flow[ImportReport]:
        """Return the report that ``import_tasks`` would return for these lines; nothing is written."""
        wishes = _Wishes(queue, True, skip_bad, active_as_pending)
        return _Importing(wishes, progress).run(lines)


@dataclass(frozen=True, slots=True)
class _Wishes:
    """The options of an import; with ``queue`` None, each line's own queue is used."""

    queue: str | None
    is_trial: bool
    skip_bad: bool
    active_as_pending: bool

    def __post_init__(self) -> None:
        if self.queue is not None:
            check_queue_name(self.queue, "queue")


class _Numbered(NamedTuple):
    """A line, and its number, counted from 1."""

    number: int
    line: Line


class _Importing:
    """One import: reads lines, and writes them to Redis in chunks."""

    def __init__(self, wishes: _Wishes, progress: Callable[[ImportReport], object] | None) -> None:
        self._report = ImportReport()
        self._wishes = wishes
        self._progress = progress or (lambda _: None)
        self._registered: set[str] = set()
        self._would_archive: Counter[str] = Counter()
        self._rules: dict[str, ArchiveRule] = {}

    def run(self, lines: Iterable[str | bytes]) -> Flow[ImportReport]:
        """Import all lines; the report is always the same object."""
        if isinstance(lines, str | bytes):
            raise TypeError("lines must be an iterable of lines; use text.splitlines()")
        yield list_queues()  # fail early if Redis is down, before waiting for a line
        if iter(lines) is not lines and not self._wishes.skip_bad:
            yield from self._check(lines)
        for first, chunk in _chunks(lines):
            yield from self._put_all(first, chunk)
        self._progress(self._report)
        return self._report

    # Reading

    def _check(self, lines: Iterable[str | bytes]) -> Flow[None]:
        """Read all lines, record bad lines, and warn of tasks for which an archive has no room."""
        archived: Counter[str] = Counter()
        for first, chunk in _chunks(lines):
            found = self._read_all(first, chunk)
            archived.update(each.line.queue for each in found if each.line.state is TaskState.ARCHIVED)
            self._report.checked += len(chunk)
            self._progress(self._report)
        if self._report.bad:
            raise BadLinesError(self._report, self._report.checked)
        for queue, count in archived.items():
            yield from self._warn(queue, count)
        self._progress(self._report)

    def _warn(self, queue: str, count: int) -> Flow[None]:
        (source,) = yield from sources_of(queue, [TaskState.ARCHIVED])
        size: int = yield source.size()
        most = (yield from self._rule(queue)).most
        if (left_out := min(count, size + count - most)) > 0:
            self._report.warnings.append(
                f"the archive of {clean(queue)} has {size:,} tasks, and its limit is {most:,}, "
                f"so {left_out:,} of {count:,} archived tasks will be left out"
            )

    def _rule(self, queue: str) -> Flow[ArchiveRule]:
        if queue not in self._rules:
            self._rules[queue] = yield read_archive_rule(queue)
        return self._rules[queue]

    def _read_all(self, first: int, chunk: Sequence[bytes]) -> list[_Numbered]:
        """Read the valid lines, and record the others."""
        found = []
        for at, text in enumerate(chunk, first):
            try:
                line = read_line(text)
                if self._wishes.queue is not None:
                    line = line.of_queue(self._wishes.queue)
                check_queue_name(line.queue, "queue")
            except ValueError as error:
                self._note_bad(at, error)
            else:
                found.append(_Numbered(at, line))
        return found

    def _note_bad(self, number: int, error: ValueError) -> None:
        self._report.bad += 1
        if len(self._report.bad_lines) < NAMED:
            self._report.bad_lines.append({"line": number, "error": str(error)})

    # Writing

    def _put_all(self, first: int, chunk: Sequence[bytes]) -> Flow[None]:
        found = self._read_all(first, chunk)
        if self._report.bad and not (self._wishes.skip_bad or self._wishes.is_trial):
            raise BadLinesError(self._report, first + len(chunk) - 1)
        for some in _of_one_queue(found):
            self._progress(self._report)
            yield from self._put(some)
            self._report.lines += len(some)
        self._report.lines += len(chunk) - len(found)

    def _put(self, lines: Sequence[_Numbered]) -> Flow[None]:
        now, queue = datetime.now(UTC), lines[0].line.queue
        kept = [(each, self._task_to_put(each.line, now)) for each in lines]
        wanted = [(each, task) for each, task in kept if task is not None]
        if not wanted:
            return
        if queue not in self._registered and not self._wishes.is_trial:
            yield register_queue(queue)
            self._registered.add(queue)
        most = (yield from self._rule(queue)).most - self._would_archive[queue]
        tasks, is_trial = [task for _, task in wanted], self._wishes.is_trial
        outcomes: list[PutOutcome] = yield from put_tasks(queue, tasks, is_trial=is_trial, most_archived=most)
        for (each, task), outcome in zip(wanted, outcomes, strict=True):
            self._note(each, outcome)
            if is_trial and outcome > 0:
                self._would_archive[queue] += task.state == TaskState.ARCHIVED

    def _note(self, each: _Numbered, outcome: PutOutcome) -> None:
        report = self._report
        report.count += outcome in (PutOutcome.DONE, PutOutcome.WITHOUT_LOCK)
        report.locks_held += outcome is PutOutcome.WITHOUT_LOCK
        report.archive_full += outcome is PutOutcome.ARCHIVE_FULL
        if outcome is PutOutcome.ID_CONFLICT:
            report.exists += 1
            if len(report.conflicts) < NAMED:
                report.conflicts.append({"line": each.number, "queue": each.line.queue, "id": each.line.id})

    def _task_to_put(self, line: Line, now: datetime) -> TaskToPut | None:
        """Return a task in the form to be stored, None if it is left out."""
        fields = {**line.fields, b"msg": line.message}
        state = line.state
        if state is TaskState.ACTIVE:
            if not self._wishes.active_as_pending:
                self._report.active += 1
                return None
            state = TaskState.PENDING
            fields[b"pending_since"] = str(time.time_ns()).encode()
        if state is TaskState.COMPLETED and (line.score or 0) <= now.timestamp():
            self._report.expired += 1
            return None
        lock, lock_ms = line.lock if line.unique_until else "", None
        if lock and line.unique_until and line.unique_until.year < datetime.max.year:
            lock_ms = int((line.unique_until - now).total_seconds() * 1000)
            if lock_ms <= 0:
                self._report.locks_expired += 1
                lock = ""
        score = "" if state is TaskState.PENDING else repr(line.score)
        return TaskToPut(id_word(line.id), state.value, fields, score, id_word(line.group), lock, lock_ms)


def _chunks(lines: Iterable[str | bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Cut lines into chunks; yields each chunk with the number of its first line."""
    chunk: list[bytes] = []
    first, size = 1, 0
    for text in lines:
        chunk.append(text.encode() if isinstance(text, str) else text)
        size += len(chunk[-1])
        if len(chunk) >= LINES_A_CALL or size >= MAX_CALL_BYTES:
            yield first, chunk
            first, chunk, size = first + len(chunk), [], 0
    if chunk:
        yield first, chunk


def _of_one_queue(lines: Sequence[_Numbered]) -> Iterator[list[_Numbered]]:
    """Split lines wherever the queue changes."""
    some: list[_Numbered] = []
    for each in lines:
        if some and each.line.queue != some[0].line.queue:
            yield some
            some = []
        some.append(each)
    if some:
        yield some

"""``fastq task import``: puts tasks into queues that ``task export`` wrote, in the states that they had."""

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, Final

import click

from fastq.broker.inspect.bulk import Source
from fastq.broker.inspect.put import Kept, put_tasks
from fastq.broker.inspect.queues import list_queues
from fastq.broker.operations.archive_rule import read_archive_rule
from fastq.broker.operations.enqueue import register_queue
from fastq.broker.operations.lease import id_word
from fastq.cli.bulk import EXIT_SIGNAL
from fastq.cli.commands import QueueName, Verb, json_option
from fastq.cli.human import number
from fastq.cli.import_lines import Numbered, chunks, of_one_queue
from fastq.cli.import_report import Report
from fastq.cli.progress import StatusLine
from fastq.cli.session import Session, emit, pass_session, say_failure
from fastq.cli.task_lines import Line, read_line
from fastq.demo.interruption import Interrupted, Interruption
from fastq.errors import BrokerError
from fastq.states import TaskState
from fastq.wire import keys

__all__ = ["import_tasks"]

STDIN: Final = "-"
SIGINT: Final = 2


@click.command(
    "import",
    cls=Verb,
    examples=[
        "task import low.jsonl",
        "task import low.jsonl --queue bulk --dry-run",
        "task import cut.jsonl --skip-bad",
    ],
    exits="0 done, with tasks left out, too; 1 failed, or lines were bad; 2 misused, 130 Ctrl-C, 143 SIGTERM",
)
@click.argument("file", default=STDIN, metavar="[FILE]")
@click.option("--queue", "-q", type=QueueName(), metavar="QUEUE", help="put all into this queue, whatever was theirs")
@click.option("--dry-run", is_flag=True, help="check every line, say what would be done, and do nothing")
@click.option("--skip-bad", is_flag=True, help="leave out lines that cannot be read, say which, and go on")
@click.option(
    "--active-as-pending", is_flag=True, help="put those that were active into pending; else they are left out"
)
@json_option
@pass_session
def import_tasks(session: Session, /, file: str, queue: str | None, as_json: bool, **more: bool) -> int:
    """Put tasks back that task export wrote, from FILE or stdin, each into the state that it had.

    All lines of a file are checked before anything is written: bad ones are named, and nothing is done. Out of a pipe
    lines are taken 200 at a time, checked and put in one step; the first bad one ends it, and nothing of its 200 is
    done. With --skip-bad only the bad lines are left out, and the exit code is 1. A task whose id the queue has is
    left out, so that an import that was interrupted can be run again. So is what a queue's archive has no room for.
    Completed tasks keep the end of their retention. A unique lock is set if it has not expired and nobody has it.
    """
    session.broker.run(list_queues())  # before a line is waited for: is there a Redis?
    importing = _Importing(session, _Wishes(queue, **more))
    with _opened(file) as source:
        code = importing.run(source)
    report = importing.report
    if as_json:
        emit(report.record(dry_run=more["dry_run"]))
    else:
        session.screen.say(f"{'Would import' if more['dry_run'] else 'Imported'} {report}.")
    return code


def _opened(file: str) -> BinaryIO:
    if file == STDIN and sys.stdin is None:
        raise click.UsageError("stdin is closed: name a file")
    try:
        return click.open_file(file, "rb")  # type: ignore[return-value]  # click says IO[Any]
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {os.strerror(error.errno or 0)}") from None


@dataclass(frozen=True, slots=True)
class _Wishes:
    """Say what is wished of an import; ``queue`` None is that of each line."""

    queue: str | None
    dry_run: bool
    skip_bad: bool
    active_as_pending: bool


class _BadLineError(Exception):
    """Tell what is to be said of bad lines, which end it."""


class _Importing:
    """Read lines, and put them into Redis in pieces."""

    def __init__(self, session: Session, wishes: _Wishes) -> None:
        self.report = Report()
        self._session = session
        self._wishes = wishes
        self._registered: set[str] = set()
        self._would_archive: Counter[str] = Counter()
        self._archive_maxima: dict[str, int] = {}
        self._shown = StatusLine(session.notes)

    def run(self, source: BinaryIO) -> int:
        """Import all; what ends it early is said, with how far it came, and decides the code."""
        try:
            if source.seekable() and not self._wishes.skip_bad:
                self._check(source)
            for first, chunk in chunks(source):
                self._put_all(first, chunk)
                self._shown.show(f"imported {self.report}")
        except _BadLineError as error:
            return self._stopped(str(error), 1)
        except Interrupted as signal:
            return self._stopped("interrupted", EXIT_SIGNAL + signal.signum)
        except KeyboardInterrupt:  # while a line was waited for
            return self._stopped("interrupted", EXIT_SIGNAL + SIGINT)
        except BrokerError as error:
            doubt = "; what was being imported may be there: run it again" if error.maybe_applied else ""
            self._stopped(f"{error}{doubt}", 1)
        finally:
            self._shown.clear()
        return 1 if self.report.error or self.report.bad else 0

    def _stopped(self, why: str, code: int) -> int:
        done = f"lines 1 to {number(self.report.lines)} are done" if self.report.lines else "nothing was done"
        self.report.error = why
        self._shown.clear()
        say_failure(f"{why}; {done}, and none after them" if self.report.lines else f"{why}; {done}")
        return code

    # Reading

    def _check(self, source: BinaryIO) -> None:
        """Read all lines for the bad ones among them, tell what an archive will not take, and go back."""
        begin, total = source.tell(), 0
        archived: Counter[str] = Counter()
        for first, chunk in chunks(source):
            lines = self._read_all(first, chunk, is_left_out=False)
            archived.update(each.line.queue for each in lines if each.line.state is TaskState.ARCHIVED)
            total += len(chunk)
            self._shown.show(f"checked {number(total)} lines")
        if self.report.bad:
            raise _BadLineError(self._told(total))
        source.seek(begin)
        for queue, count in archived.items():
            self._warn(queue, count)

    def _told(self, total: int) -> str:
        """Name the bad lines, one a line but for a single one, and return what is to be said at last."""
        bad = [f"line {each['line']}: {each['error']}" for each in self.report.bad_lines]
        if len(bad) == 1:
            return bad[0]
        for text in bad:
            say_failure(text)
        return f"{number(self.report.bad)} of {number(total)} lines are bad"

    def _warn(self, queue: str, count: int) -> None:
        size: int = self._session.broker.run(Source(queue, keys.archived(queue), TaskState.ARCHIVED).size())
        most = self._archive_max(queue)
        if (left_out := min(count, size + count - most)) > 0:
            say_failure(
                f"note: the archive of {queue} has {number(size)} tasks, and {number(most)} are the most, "
                f"so {number(left_out)} of {number(count)} archived tasks will be left out"
            )

    def _archive_max(self, queue: str) -> int:
        if queue not in self._archive_maxima:
            self._archive_maxima[queue] = self._session.broker.run(read_archive_rule(queue)).most
        return self._archive_maxima[queue]

    def _read_all(self, first: int, chunk: Sequence[bytes], *, is_left_out: bool) -> list[Numbered]:
        """Read the lines that can be read, and note the others."""
        lines = []
        for at, text in enumerate(chunk, first):
            try:
                line = read_line(text)
                if self._wishes.queue is not None:
                    line = line.of_queue(self._wishes.queue)
            except ValueError as error:
                self.report.note_bad(at, error, is_left_out=is_left_out)
            else:
                lines.append(Numbered(at, line))
        return lines

    # Writing

    def _put_all(self, first: int, chunk: Sequence[bytes]) -> None:
        goes_on = self._wishes.skip_bad or self._wishes.dry_run
        lines = self._read_all(first, chunk, is_left_out=goes_on)
        if self.report.bad and not goes_on:
            one = self.report.bad_lines[0]
            raise _BadLineError(f"line {one['line']}: {one['error']}")
        for some in of_one_queue(lines):
            self._put(some)
        self.report.lines += len(chunk) - len(lines)

    def _put(self, lines: Sequence[Numbered]) -> None:
        now = datetime.now(UTC)
        queue = lines[0].line.queue
        kept = [(each, self._kept(each.line, now)) for each in lines]
        wanted = [(each, task) for each, task in kept if task is not None]
        if wanted:
            with Interruption() as interruption:
                if queue not in self._registered and not self._wishes.dry_run:
                    self._session.broker.run(register_queue(queue))
                    self._registered.add(queue)
                self._put_wanted(queue, wanted)
                self.report.lines += len(lines)
                interruption.check()
        else:
            self.report.lines += len(lines)

    def _put_wanted(self, queue: str, wanted: Sequence[tuple[Numbered, Kept]]) -> None:
        tasks, is_trial = [task for _, task in wanted], self._wishes.dry_run
        most_archived = self._archive_max(queue) - self._would_archive[queue]
        outcomes = self._session.broker.run(put_tasks(queue, tasks, is_trial=is_trial, most_archived=most_archived))
        for (each, task), outcome in zip(wanted, outcomes, strict=True):
            self.report.note(each, outcome)
            if is_trial and outcome > 0:
                self._would_archive[queue] += task.state == TaskState.ARCHIVED

    def _kept(self, line: Line, now: datetime) -> Kept | None:
        """Return a task as it is to be put, None if it is left out."""
        fields = {**line.fields, b"msg": line.message}
        state = line.state
        if state is TaskState.ACTIVE:
            if not self._wishes.active_as_pending:
                self.report.active += 1
                return None
            state = TaskState.PENDING
            fields[b"pending_since"] = str(time.time_ns()).encode()
        if state is TaskState.COMPLETED and (line.score or 0) <= now.timestamp():
            self.report.expired += 1
            return None
        lock, lock_ms = line.lock if line.unique_until else "", None
        if lock and line.unique_until and line.unique_until.year < datetime.max.year:
            lock_ms = int((line.unique_until - now).total_seconds() * 1000)
            if lock_ms <= 0:
                self.report.locks_expired += 1
                lock = ""
        score = "" if state is TaskState.PENDING else repr(line.score)
        return Kept(id_word(line.id), state.value, fields, score, id_word(line.group), lock, lock_ms)

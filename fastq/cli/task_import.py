"""``fastq task import``: imports the tasks that ``task export`` wrote, in the states that they had."""

import os
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final

import click

from fastq.cli.commands import Verb
from fastq.cli.destructive import EXIT_SIGNAL
from fastq.cli.parameters import QueueName, json_option
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.status_line import StatusLine
from fastq.cli.streams import say_failure
from fastq.errors import BadLinesError, BrokerError, TaskIDConflictError
from fastq.inspector import ImportReport
from fastq.inspector.json_records import import_record
from fastq.terminal.interruption import Interrupted, Interruption
from fastq.text.human import number

STDIN: Final = "-"


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
@click.option(
    "--queue", "-q", type=QueueName(), metavar="QUEUE", help="put all tasks into this queue instead of their own"
)
@click.option("--dry-run", is_flag=True, help="check every line and show what would be done")
@click.option("--skip-bad", is_flag=True, help="skip and list lines that cannot be read")
@click.option("--active-as-pending", is_flag=True, help="put active tasks into pending; by default they are left out")
@json_option
@pass_session
def import_tasks(session: Session, /, file: str, queue: str | None, as_json: bool, **more: bool) -> int:
    """Import tasks written by task export, from FILE or stdin, each into the state that it had.

    All lines of a file are checked before anything is written; bad lines are listed, and nothing is imported. Lines of
    a pipe are read, checked and imported 200 at a time; the first bad line ends the import, and none of its 200 lines
    is imported. With --skip-bad only the bad lines are left out, and the exit code is 1. A task whose id is already in
    the queue is left out, so an interrupted import can be run again. So are tasks for which the queue's archive has no
    room. Completed tasks keep the end of their retention. A unique lock is set if it has not expired and no other task
    holds it.
    """
    dry_run, names_bad = more.pop("dry_run"), more["skip_bad"]
    act = session.inspector.check_import if dry_run else session.inspector.import_tasks
    with _opened(file) as source, Interruption() as interruption:
        watch = _Watch(session, interruption, names_bad=names_bad or (dry_run and not source.seekable()))
        lines = _Lines(source, interruption)
        try:
            act(lines if source.seekable() else iter(lines), queue=queue, progress=watch.note, **more)
            code = 1 if watch.report.bad else 0
        except BadLinesError as error:
            code = watch.stopped(watch.told(error), 1)
        except Interrupted as signal:
            code = watch.stopped("interrupted", EXIT_SIGNAL + signal.signum)
        except BrokerError as error:
            doubt = "; the lines in progress may have been imported: run it again" if error.maybe_applied else ""
            code = watch.stopped(f"{error}{doubt}", 1)
        finally:
            watch.line.clear()
    report = watch.report
    if as_json:
        emit(import_record(report, error=watch.error, dry_run=dry_run))
    else:
        session.screen.say(f"{'Would import' if dry_run else 'Imported'} {_text(report, ended=bool(watch.error))}.")
    return code


def _opened(file: str) -> BinaryIO:
    if file == STDIN and sys.stdin is None:
        raise click.UsageError("stdin is closed: name a file")
    try:
        return click.open_file(file, "rb")  # type: ignore[return-value]  # click says IO[Any]
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {os.strerror(error.errno or 0)}") from None


class _Lines:
    """The lines of a file from its current position; a signal ends the wait for a line."""

    def __init__(self, source: BinaryIO, interruption: Interruption) -> None:
        self._source = source
        self._interruption = interruption
        self._begin = source.tell() if source.seekable() else None

    def __iter__(self) -> Iterator[bytes]:
        if self._begin is not None:
            self._source.seek(self._begin)
        while True:
            with self._interruption.at_once():
                line = self._source.readline()
            if not line:
                return
            yield line


class _Watch:
    """The progress of an import, shown on a terminal; omitted lines are listed as soon as they are known."""

    def __init__(self, session: Session, interruption: Interruption, *, names_bad: bool) -> None:
        self.line = StatusLine(session.notes)
        self.report = ImportReport()
        self.error: str | None = None
        self._interruption = interruption
        self._names_bad = names_bad
        self._said = {"warnings": 0, "bad_lines": 0, "conflicts": 0}

    def note(self, report: ImportReport) -> None:
        """Print new messages, show the progress, and end the import if a signal came."""
        self.report = report
        self._say_new()
        checking = report.checked and not report.lines
        self.line.show(f"checked {number(report.checked)} lines" if checking else f"imported {_text(report)}")
        self._interruption.check()

    def _say_new(self) -> None:
        report = self.report
        for warning in report.warnings[self._said["warnings"] :]:
            say_failure(f"note: {warning}")
        for bad in report.bad_lines[self._said["bad_lines"] :] if self._names_bad else ():
            say_failure(f"line {bad['line']} left out: {bad['error']}")
        for one in report.conflicts[self._said["conflicts"] :]:
            say_failure(f"line {one['line']} left out: {TaskIDConflictError(one['queue'], one['id'])}")
        self._said = {name: len(getattr(report, name)) for name in self._said}

    def told(self, error: BadLinesError) -> str:
        """Print the bad lines if there are several, and return the final message."""
        self.report = error.report
        if error.report.bad > 1:
            self.line.clear()
            for bad in error.report.bad_lines:
                say_failure(f"line {bad['line']}: {bad['error']}")
        return str(error)

    def stopped(self, why: str, code: int) -> int:
        """Print why the import ended early, and its progress."""
        self.line.clear()
        self._say_new()
        lines = self.report.lines
        done = f"lines 1 to {number(lines)} are done, and none after them" if lines else "nothing was done"
        self.error = why
        say_failure(f"{why}; {done}")
        return code


def _text(report: ImportReport, *, ended: bool = False) -> str:
    more = [
        (report.exists, "left out because their ids exist already"),
        (report.active, "left out because they were active"),
        (report.expired, "left out because their retention is over"),
        (report.archive_full, "left out because the archive is full"),
        (0 if ended else report.bad, "left out because they are bad"),
        (report.locks_held, "without their unique locks, which other tasks hold"),
        (report.locks_expired, "without their unique locks, which have expired"),
    ]
    said = "".join(f"; {number(count)} {text}" for count, text in more if count)
    return f"{number(report.count)} of {number(report.lines)} tasks{said}"

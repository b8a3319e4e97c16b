"""``fastq task import``: puts tasks into queues that ``task export`` wrote, in the states that they had."""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final

import click

from fastq.broker.enqueue import register_queue
from fastq.broker.inspect_put import Kept, Put, put_tasks
from fastq.broker.inspect_queues import list_queues
from fastq.broker.lease import id_word
from fastq.cli.bulk import EXIT_SIGNAL
from fastq.cli.commands import QueueName, Verb, json_option
from fastq.cli.human import number
from fastq.cli.progress import StatusLine
from fastq.cli.session import Session, emit, pass_session, say_failure
from fastq.cli.task_lines import Line, read_line
from fastq.demo.interruption import Interrupted, Interruption
from fastq.errors import BrokerError, TaskIDConflictError
from fastq.states import TaskState

__all__ = ["import_tasks"]

STDIN: Final = "-"
LINES_A_CALL: Final = 200
MAX_CALL_BYTES: Final = 256_000
TOLD: Final = 20
"""Of how many tasks that were skipped is told which they are."""
SIGINT: Final = 2


@click.command(
    "import",
    cls=Verb,
    examples=["task import low.jsonl", "task import low.jsonl --queue bulk --dry-run"],
    exits="0 done, with tasks left out, too; 1 failed, 2 misused, 130 Ctrl-C, 143 SIGTERM",
)
@click.argument("file", default=STDIN, metavar="[FILE]")
@click.option("--queue", "-q", type=QueueName(), metavar="QUEUE", help="put all into this queue, whatever was theirs")
@click.option("--dry-run", is_flag=True, help="check every line, say what would be done, and do nothing")
@click.option(
    "--active-as-pending", is_flag=True, help="put those that were active into pending; else they are left out"
)
@json_option
@pass_session
def import_tasks(
    session: Session, file: str, queue: str | None, dry_run: bool, active_as_pending: bool, as_json: bool
) -> int:
    """Put tasks back that task export wrote, from FILE or stdin, each into the state that it had.

    Lines are taken 200 at a time: all of them are checked, then they are put into Redis in one step. The first bad
    line ends it, and nothing of its 200 is done. A task whose id the queue has is left out, so that an import that
    was interrupted can be run again. Completed tasks keep the end of their retention. A unique lock is set if it has
    not expired and nobody has it.
    """
    session.broker.run(list_queues())  # before a line is waited for: is there a Redis?
    importing = _Importing(session, _Wishes(queue, dry_run, active_as_pending))
    with _opened(file) as source:
        code = importing.run(source)
    report = importing.report
    if as_json:
        emit(report.record(dry_run=dry_run))
    else:
        session.screen.say(f"{'Would import' if dry_run else 'Imported'} {report}.")
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
    active_as_pending: bool


@dataclass(slots=True)
class _Report:
    """Count what became of lines."""

    lines: int = 0
    count: int = 0
    exists: int = 0
    active: int = 0
    expired: int = 0
    locks_held: int = 0
    locks_expired: int = 0
    error: str | None = None
    conflicts: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        more = [
            (self.exists, "left out, since their ids are there"),
            (self.active, "left out, since they were active"),
            (self.expired, "left out, since their retention is over"),
            (self.locks_held, "without their unique locks, which others have"),
            (self.locks_expired, "without their unique locks, which have expired"),
        ]
        said = "".join(f"; {number(count)} {text}" for count, text in more if count)
        return f"{number(self.count)} of {number(self.lines)} tasks{said}"

    def record(self, *, dry_run: bool) -> dict[str, Any]:
        return {
            "lines": self.lines,
            "count": self.count,
            "skipped": {"exists": self.exists, "active": self.active, "expired": self.expired},
            "without_lock": {"held": self.locks_held, "expired": self.locks_expired},
            "conflicts": self.conflicts,
            "error": self.error,
            "dry_run": dry_run,
        }


class _BadLineError(Exception):
    """Tell which line is bad, and why."""


class _Importing:
    """Read lines, and put them into Redis in pieces."""

    def __init__(self, session: Session, wishes: _Wishes) -> None:
        self.report = _Report()
        self._session = session
        self._wishes = wishes
        self._registered: set[str] = set()
        self._shown = StatusLine(session.notes)

    def run(self, source: Iterable[bytes]) -> int:
        """Import all; what ends it early is said, with how far it came, and decides the code."""
        try:
            for first, chunk in _chunks(source):
                lines = [self._read(number, text) for number, text in enumerate(chunk, first)]
                for some in _of_one_queue(lines):
                    self._put(some)
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
        return 1 if self.report.error else 0

    def _stopped(self, why: str, code: int) -> int:
        done = f"lines 1 to {number(self.report.lines)} are done" if self.report.lines else "nothing was done"
        self.report.error = why
        self._shown.clear()
        say_failure(f"{why}; {done}, and none after them" if self.report.lines else f"{why}; {done}")
        return code

    def _read(self, number: int, text: bytes) -> "_Numbered":
        try:
            line = read_line(text)
            if self._wishes.queue is not None:
                line = line.of_queue(self._wishes.queue)
        except ValueError as error:
            raise _BadLineError(f"line {number}: {error}") from None
        return _Numbered(number, line)

    def _put(self, lines: Sequence["_Numbered"]) -> None:
        now = datetime.now(UTC)
        queue = lines[0].line.queue
        kept = [(each, self._kept(each.line, now)) for each in lines]
        wanted = [(each, task) for each, task in kept if task is not None]
        if wanted:
            with Interruption() as interruption:
                if queue not in self._registered and not self._wishes.dry_run:
                    self._session.broker.run(register_queue(queue))
                    self._registered.add(queue)
                tasks = [task for _, task in wanted]
                outcomes = self._session.broker.run(put_tasks(queue, tasks, is_trial=self._wishes.dry_run))
                for (each, _), outcome in zip(wanted, outcomes, strict=True):
                    self._count(each, outcome)
                self.report.lines += len(lines)
                interruption.check()
        else:
            self.report.lines += len(lines)

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

    def _count(self, each: "_Numbered", outcome: Put) -> None:
        report = self.report
        report.count += outcome in (Put.DONE, Put.WITHOUT_LOCK)
        report.locks_held += outcome is Put.WITHOUT_LOCK
        if outcome is Put.ID_CONFLICT:
            report.exists += 1
            if len(report.conflicts) < TOLD:
                report.conflicts.append({"line": each.number, "queue": each.line.queue, "id": each.line.id})
                error = TaskIDConflictError(each.line.queue, each.line.id)
                say_failure(f"line {each.number} left out: {error}")


@dataclass(frozen=True, slots=True)
class _Numbered:
    number: int
    line: Line


def _chunks(source: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Cut lines into pieces, each with the number of its first line."""
    chunk: list[bytes] = []
    first, size = 1, 0
    for text in source:
        chunk.append(text)
        size += len(text)
        if len(chunk) >= LINES_A_CALL or size >= MAX_CALL_BYTES:
            yield first, chunk
            first, chunk, size = first + len(chunk), [], 0
    if chunk:
        yield first, chunk


def _of_one_queue(lines: Sequence[_Numbered]) -> Iterator[list[_Numbered]]:
    """Cut a piece where the queue changes."""
    some: list[_Numbered] = []
    for each in lines:
        if some and each.line.queue != some[0].line.queue:
            yield some
            some = []
        some.append(each)
    if some:
        yield some

"""``fastq doctor``: finds problems, says why they matter and what to do, and makes the safe repairs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from fastq.cli.commands import Verb
from fastq.cli.destructive import EXIT_SIGNAL, confirm, yes_option
from fastq.cli.numbers import IntegerRange
from fastq.cli.parameters import QueueName, json_option
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.status_line import StatusLine
from fastq.cli.streams import say_failure
from fastq.cli.tables import Cell, Column, heading, table
from fastq.errors import BrokerError, FastqError
from fastq.inspector import Finding, Level, Repair, Report
from fastq.inspector.doctor.examination import LIMIT
from fastq.inspector.json_records import report_record
from fastq.terminal.interruption import Interrupted, Interruption
from fastq.text.human import clean, number

ALL: Final = 0
COLOURS: Final[Mapping[Level, str]] = {
    Level.OK: "green",
    Level.WARNING: "yellow",
    Level.PROBLEM: "red",
    Level.UNSEEN: "cyan",
}


@click.command(
    "doctor",
    cls=Verb,
    examples=["doctor", "doctor --queue default --limit 10000 --json", "doctor --full --repair"],
    exits="0 no problems (warnings are none), 1 problems, or failed; 2 misused, 130 interrupted",
)
@click.option(
    "--queue",
    "-q",
    "queues",
    type=QueueName(),
    multiple=True,
    metavar="QUEUE",
    help="only this queue; may be repeated  [default: all]",
)
@click.option(
    "--limit",
    type=IntegerRange(min=0),
    default=LIMIT,
    show_default=True,
    metavar="TASKS",
    help="examine at most this many tasks, and three times as many keys; 0: all",
)
@click.option("--full", "limit", flag_value=ALL, type=int, help="the same as --limit 0")
@click.option("--repair", is_flag=True, help="repair what can be repaired safely, after asking")
@yes_option
@json_option
@pass_session
def doctor(session: Session, queues: Sequence[str], limit: int, repair: bool, yes: bool, as_json: bool) -> int:
    """Look for faults in Redis, the servers, and the queues of Go and fastq.

    Nothing is changed without --repair. Each request takes Redis a few milliseconds. A fault is checked a second time
    before it is reported. The exit code is 1 if there are problems; warnings do not count.
    """
    most = None if limit == ALL else limit
    report = _look(session, queues, most)
    repaired: list[tuple[Repair, int]] = []
    if repair and report.repairs:
        if not as_json:
            _show(session, report)
        confirm(_question(report.repairs), yes=yes)
        repaired = _repair(session, report.repairs)
        if not as_json:
            _show_repaired(session, repaired)
        report = _look(session, queues, most)
    if as_json:
        emit(report_record(report, repaired))
    else:
        _show(session, report)
        if report.repairs and not repair:
            session.screen.say("fastq doctor --repair repairs what can be repaired safely; it asks first.")
    return 1 if report.of_level(Level.PROBLEM) else 0


def _look(session: Session, queues: Sequence[str], limit: int | None) -> Report:
    """Examine queues, with progress on a terminal."""
    line = StatusLine(session.notes)
    try:
        return session.inspector.examine(
            queues,
            limit=limit,
            progress=lambda now: line.show(f"examined {number(now.done)} of {number(now.total)} tasks"),
        )
    finally:
        line.clear()


def _question(repairs: Sequence[Repair]) -> str:
    return f"This will be repaired: {'; '.join(_named(one, one.count) for one in repairs)}."


def _named(repair: Repair, count: int) -> str:
    where = f" in {clean(repair.queue)}" if repair.queue else ""
    return f"{repair.what}{where}: {number(count)}"


def _repair(session: Session, repairs: Sequence[Repair]) -> list[tuple[Repair, int]]:
    """Carry out repairs; an interruption ends the command between two steps and prints the progress."""
    done: list[tuple[Repair, int]] = []
    with Interruption() as interruption:
        try:
            for one in repairs:
                done.append((one, _carry_out(session, one, interruption.check)))
            return done
        except Interrupted as interrupted:
            before = "; ".join(_named(one, count) for one, count in done) or "nothing"
            begun = _named(repairs[len(done)], repairs[len(done)].count)
            say_failure(f"interrupted during: {begun}; repaired before: {before}; run it again for the rest")
            code = EXIT_SIGNAL + interrupted.signum
    click.get_current_context().exit(code)


def _carry_out(session: Session, repair: Repair, check: Callable[[], None]) -> int:
    try:
        return session.inspector.repair(repair, progress=lambda now: check())
    except BrokerError as error:
        raise FastqError(f"{repair.what}: {error}; the repairs before it were made") from error


def _show_repaired(session: Session, repaired: Sequence[tuple[Repair, int]]) -> None:
    session.screen.say()
    for repair, count in repaired:
        session.screen.say(f"Repaired: {_named(repair, count)}.")
    session.screen.say()


def _show(session: Session, report: Report) -> None:
    rows = [
        (Cell(finding.level.value, COLOURS[finding.level]), clean(_title(finding)), clean(finding.seen))
        for finding in report.findings
    ]
    table(session.screen, [Column("LEVEL"), Column("CHECK"), Column("SEEN", cut=True)], rows)
    for finding in sorted(report.findings, key=lambda finding: finding.level is Level.WARNING):
        if finding.level in (Level.PROBLEM, Level.WARNING):
            _explain(session, finding)
    session.screen.say()
    session.screen.say(_summary(report))


def _title(finding: Finding) -> str:
    return f"{finding.check} ({finding.queue})" if finding.queue else finding.check


def _explain(session: Session, finding: Finding) -> None:
    session.screen.say()
    heading(session.screen, f"{finding.level.value}: {clean(_title(finding))}: {clean(finding.seen)}")
    if finding.examples:
        session.screen.say(f"  such as  {clean(', '.join(finding.examples))}")
    session.screen.say(f"  why      {clean(finding.why)}")
    session.screen.say(f"  do       {clean(finding.advice)}")


def _summary(report: Report) -> str:
    counts = [f"{level.value}: {len(report.of_level(level))}" for level in Level if report.of_level(level)]
    tasks = f"examined {number(report.tasks_looked_at)} of {number(max(report.tasks, report.tasks_looked_at))} tasks"
    more = "; --limit or --full examines more" if report.is_partial else ""
    return f"{', '.join(counts)}; {tasks}{more}"

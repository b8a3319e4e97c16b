"""``fastq doctor``: looks for what is wrong, says why it matters and what to do, and mends what is safe."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from fastq.cli.bulk import EXIT_SIGNAL, confirm, yes_option
from fastq.cli.commands import QueueName, Verb, json_option
from fastq.cli.human import clean, number
from fastq.cli.progress import StatusLine
from fastq.cli.session import Session, emit, pass_session, say_failure
from fastq.cli.tables import Cell, Column, heading, table
from fastq.demo.interruption import Interrupted, Interruption
from fastq.errors import BrokerError, FastqError
from fastq.inspector import Finding, Level, Repair, Report
from fastq.inspector.doctor.examination import LIMIT
from fastq.inspector.json_records import report_record

__all__ = ["doctor"]

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
    help="look at this one only; may be repeated  [default: all]",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=LIMIT,
    show_default=True,
    metavar="TASKS",
    help="look at so many tasks at most, and at three times as many keys; 0: all",
)
@click.option("--full", "limit", flag_value=ALL, type=int, help="as --limit 0")
@click.option("--repair", is_flag=True, help="mend what can be mended without harm, after asking")
@yes_option
@json_option
@pass_session
def doctor(session: Session, queues: Sequence[str], limit: int, repair: bool, yes: bool, as_json: bool) -> int:
    """Look for what is wrong with Redis, the servers, and what is in the queues; Go's and fastq's alike.

    Nothing is changed without --repair. Redis is asked in pieces of a few milliseconds; what looks wrong is looked at a
    second time before it is told. The exit code is 1 if there are problems; warnings are none.
    """
    most = None if limit == ALL else limit
    report = _look(session, queues, most)
    repaired: list[tuple[Repair, int]] = []
    if repair and report.repairs:
        if not as_json:
            _show(session, report)
        confirm(_question(report.repairs), yes=yes)
        repaired = _mend(session, report.repairs)
        if not as_json:
            _show_repaired(session, repaired)
        report = _look(session, queues, most)
    if as_json:
        emit(report_record(report, repaired))
    else:
        _show(session, report)
        if report.repairs and not repair:
            session.screen.say("fastq doctor --repair mends what can be mended without harm; it asks before.")
    return 1 if report.of_level(Level.PROBLEM) else 0


def _look(session: Session, queues: Sequence[str], limit: int | None) -> Report:
    """Examine, and show on a terminal how far that is."""
    line = StatusLine(session.notes)
    try:
        return session.inspector.examine(
            queues,
            limit=limit,
            progress=lambda now: line.show(f"looked at {number(now.done)} of {number(now.total)} tasks"),
        )
    finally:
        line.clear()


def _question(repairs: Sequence[Repair]) -> str:
    return f"This will be mended: {'; '.join(_named(one, one.count) for one in repairs)}."


def _named(repair: Repair, count: int) -> str:
    where = f" in {clean(repair.queue)}" if repair.queue else ""
    return f"{repair.what}{where}: {number(count)}"


def _mend(session: Session, repairs: Sequence[Repair]) -> list[tuple[Repair, int]]:
    """Carry out repairs; an interruption ends the command between two steps, and tells how far it came."""
    done: list[tuple[Repair, int]] = []
    with Interruption() as interruption:
        try:
            for one in repairs:
                done.append((one, _carry_out(session, one, interruption.check)))
            return done
        except Interrupted as interrupted:
            before = "; ".join(_named(one, count) for one, count in done) or "nothing"
            begun = _named(repairs[len(done)], repairs[len(done)].count)
            say_failure(f"interrupted at this: {begun}; mended before: {before}; run it again for the rest")
            code = EXIT_SIGNAL + interrupted.signum
    click.get_current_context().exit(code)


def _carry_out(session: Session, repair: Repair, check: Callable[[], None]) -> int:
    try:
        return session.inspector.repair(repair, progress=lambda now: check())
    except BrokerError as error:
        raise FastqError(f"{repair.what}: {error}; what came before is mended") from error


def _show_repaired(session: Session, repaired: Sequence[tuple[Repair, int]]) -> None:
    session.screen.say()
    for repair, count in repaired:
        session.screen.say(f"Mended: {_named(repair, count)}.")
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
    tasks = f"looked at {number(report.tasks_looked_at)} of {number(max(report.tasks, report.tasks_looked_at))} tasks"
    more = "; --limit or --full looks at more" if report.is_partial else ""
    return f"{', '.join(counts)}; {tasks}{more}"

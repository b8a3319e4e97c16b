"""``fastq task export``: writes tasks as lines of JSON, exact to the byte, in chunks."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import click

from fastq.cli.commands import Verb
from fastq.cli.destructive import EXIT_SIGNAL, yes_option
from fastq.cli.parameters import GROUP_NAME, json_option, queue_option, states_option
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.status_line import StatusLine
from fastq.cli.streams import say_failure, was_closed
from fastq.cli.task_filter import filter_options, read_filter
from fastq.common.states import TaskState
from fastq.errors import BrokerError, FastqError
from fastq.inspector import Progress, TaskFilter
from fastq.inspector.export import EXPORTED
from fastq.terminal.interruption import Interrupted, Interruption
from fastq.text.human import clean, number

STDOUT: Final = "-"


@click.command(
    "export",
    cls=Verb,
    examples=[
        "task export --queue low --state pending --output low.jsonl",
        "task export -q default -s archived --error Timeout | gzip > failed.jsonl.gz",
    ],
    exits="0 done, 1 failed, 2 misused, 130 Ctrl-C, 143 SIGTERM",
)
@queue_option
@states_option(EXPORTED, "a state; may be repeated  [default: all]")
@click.option("--group", "-g", type=GROUP_NAME, metavar="GROUP", help="only this group of the aggregating tasks")
@click.option(
    "--output", "-o", default=STDOUT, metavar="FILE", show_default=True, help="the file to write, - for stdout"
)
@filter_options
@yes_option
@json_option
@pass_session
def export(
    session: Session, /, queue: str, states: Sequence[str], group: str | None, output: str, **more: str | None
) -> int:
    """Write tasks as lines of JSON for task import, exact to the byte, with fields that people and jq can read. Each
    line is an exported_task of docs/cli.schema.json. Tasks are read 200 at a time, each time atomically. A task that
    changes its state meanwhile may be exported twice or not at all; a queue that is paused and has no active tasks is
    exported exactly. --yes overwrites an existing file; --json prints how many tasks were written.
    """
    as_json, yes = bool(more.pop("as_json")), bool(more.pop("yes"))
    if as_json and output == STDOUT:
        raise click.UsageError("--json prints the number of tasks written to a file; name the file with --output")
    if group is not None and states and set(states) != {TaskState.AGGREGATING.value}:
        raise click.UsageError("--group goes with --state aggregating only")
    known = [TaskState.AGGREGATING] if group else [state for state in EXPORTED if state in states or not states]
    wanted = read_filter(known, session.now, **more)
    session.inspector.count_tasks(queue, TaskState.PENDING)  # check that the queue exists before a file is created
    try:
        with _opened(output, yes=yes) as out:
            exporting = _Exporting(session, out)
            code = exporting.run(queue, known, group, wanted)
    except OSError as error:
        if output == STDOUT:
            raise  # handled as in all commands
        raise FastqError(f"cannot write {clean(output)}: {os.strerror(error.errno or 0)}; it is incomplete") from None
    if as_json:
        emit({"count": exporting.count, "file": output})
    elif not code:
        screen = session.notes if output == STDOUT else session.screen
        where = "" if output == STDOUT else f" to {clean(output)}"
        tasks = "task" if exporting.count == 1 else "tasks"
        screen.say(f"Exported {number(exporting.count)} {tasks} of {clean(queue)}{where}.")
    return code


def _opened(output: str, *, yes: bool) -> BinaryIO:
    if output == STDOUT:
        if was_closed(sys.stdout):
            raise click.UsageError("stdout is closed: name a file with --output")
        return click.open_file(output, "wb")  # type: ignore[return-value]  # click says IO[Any]
    try:
        return Path(output).open("wb" if yes else "xb")
    except FileExistsError:
        raise click.UsageError(f"the file {output} exists; --yes overwrites it") from None
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {os.strerror(error.errno or 0)}") from None


class _Exporting:
    """Writes lines, and counts them."""

    def __init__(self, session: Session, out: BinaryIO) -> None:
        self.count = 0
        self._inspector = session.inspector
        self._out = out
        self._total = 0
        self._line = StatusLine(session.notes)

    def run(self, queue: str, states: Sequence[TaskState], group: str | None, where: TaskFilter) -> int:
        """Write all tasks; return the exit code. An interruption ends the export between two pages, after a complete
        line.
        """
        with Interruption() as interruption:

            def note(now: Progress) -> None:
                self._total = now.total
                self._out.flush()
                self._line.show(f"exported {self}")
                interruption.check()

            try:
                lines = self._inspector.export_tasks(queue, states=states, group=group, where=where, progress=note)
                for line in lines:
                    self._out.write(f"{line}\n".encode())
                    self.count += 1
                self._out.flush()
            except Interrupted as signal:
                say_failure(f"interrupted: exported {self}; only whole lines were written")
                return EXIT_SIGNAL + signal.signum
            except BrokerError as error:
                raise FastqError(f"exported {self}, then: {error}") from error
            finally:
                self._line.clear()
        return 0

    def __str__(self) -> str:
        return f"{number(self.count)} of {number(self._total)} tasks"

"""``fastq task export``: writes tasks as lines of JSON, exact to the byte, in pieces."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import click

from fastq.broker.inspect.bulk import Source
from fastq.broker.inspect.queues import group_sizes
from fastq.broker.inspect.tasks import container
from fastq.broker.inspect.walk import Walk
from fastq.cli.bulk import EXIT_SIGNAL, yes_option
from fastq.cli.commands import GroupName, Verb, json_option, queue_option, state_choice
from fastq.cli.human import clean, number
from fastq.cli.progress import StatusLine
from fastq.cli.session import Session, emit, pass_session, say_failure
from fastq.cli.streams import was_closed
from fastq.cli.task_filter import Filter, filter_options
from fastq.demo.interruption import Interrupted, Interruption
from fastq.errors import BrokerError, FastqError
from fastq.inspector.queues import require_queue
from fastq.inspector.task_lines import lines_of
from fastq.states import TaskState
from fastq.wire import keys

__all__ = ["export"]

STDOUT: Final = "-"
# What moves on while it is read goes down this list, so that it comes twice rather than never.
_ORDER: Final = (
    TaskState.SCHEDULED,
    TaskState.AGGREGATING,
    TaskState.PENDING,
    TaskState.ACTIVE,
    TaskState.RETRY,
    TaskState.COMPLETED,
    TaskState.ARCHIVED,
)


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
@click.option(
    "--state",
    "-s",
    "states",
    type=state_choice(*_ORDER),
    multiple=True,
    help="a state; may be repeated  [default: all]",
)
@click.option("--group", "-g", type=GroupName(), metavar="GROUP", help="only this group of those that are aggregating")
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
    """Write tasks as lines of JSON, which task import reads: every byte of them, and what people and jq can read.

    What docs/cli.schema.json calls exported_task is a line. 200 tasks are read at a time, each time at one moment. A
    task that changes its state meanwhile may come twice, or not at all: a queue at rest, paused and drained of active
    tasks, is exported exactly. --yes writes over a file that there is; --json tells how many went into it.
    """
    as_json, yes = bool(more.pop("as_json")), bool(more.pop("yes"))
    if as_json and output == STDOUT:
        raise click.UsageError("--json tells how many tasks went into a file: name it with --output")
    if group is not None and states and set(states) != {TaskState.AGGREGATING.value}:
        raise click.UsageError("--group goes with --state aggregating only")
    known = [TaskState.AGGREGATING] if group else [state for state in _ORDER if state in states or not states]
    wanted = {state: Filter.of(state, session.now, **more) for state in known}
    session.broker.drive(require_queue(queue))
    sources = [source for state in known for source in _sources(session, queue, state, group)]
    total = sum(session.broker.run(source.size()) for source in sources)
    try:
        with _opened(output, yes=yes) as out:
            exporting = _Exporting(session, out, total)
            code = exporting.run(sources, wanted)
    except OSError as error:
        if output == STDOUT:
            raise  # as with all commands
        raise FastqError(f"cannot write {clean(output)}: {os.strerror(error.errno or 0)}; it is not whole") from None
    if as_json:
        emit({"count": exporting.count, "file": output})
    elif not code:
        screen = session.notes if output == STDOUT else session.screen
        where = "" if output == STDOUT else f" to {clean(output)}"
        tasks = "task" if exporting.count == 1 else "tasks"
        screen.say(f"Exported {number(exporting.count)} {tasks} of {clean(queue)}{where}.")
    return code


def _sources(session: Session, queue: str, state: TaskState, group: str | None) -> list[Source]:
    if state is not TaskState.AGGREGATING:
        return [Source(queue, container(queue, state), state)]
    names = [group] if group else sorted(session.broker.drive(group_sizes(queue)))
    return [Source(queue, keys.group(queue, name), state, name) for name in names]


def _opened(output: str, *, yes: bool) -> BinaryIO:
    if output == STDOUT:
        if was_closed(sys.stdout):
            raise click.UsageError("stdout is closed: name a file with --output")
        return click.open_file(output, "wb")  # type: ignore[return-value]  # click says IO[Any]
    try:
        return Path(output).open("wb" if yes else "xb")
    except FileExistsError:
        raise click.UsageError(f"there is a file {output}; --yes writes over it") from None
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {os.strerror(error.errno or 0)}") from None


class _Exporting:
    """Write the tasks of some sources, and count them."""

    def __init__(self, session: Session, out: BinaryIO, total: int) -> None:
        self.count = 0
        self._session = session
        self._out = out
        self._total = total
        self._line = StatusLine(session.notes)

    def run(self, sources: Sequence[Source], wanted: dict[TaskState, Filter]) -> int:
        """Write all; an interruption ends it between two pages, with whole lines written, and decides the code."""
        with Interruption() as interruption:
            try:
                for source in sources:
                    for lines in self._pages(source, wanted[source.state]):
                        interruption.check()
                        self._write(lines)
            except Interrupted as signal:
                say_failure(f"interrupted: exported {self}; what was written is whole lines")
                return EXIT_SIGNAL + signal.signum
            except BrokerError as error:
                raise FastqError(f"exported {self}, then: {error}") from error
            finally:
                self._line.clear()
        return 0

    def __str__(self) -> str:
        return f"{number(self.count)} of {number(self._total)} tasks"

    def _write(self, lines: Sequence[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines).encode())
        self._out.flush()
        self.count += len(lines)
        self._line.show(f"exported {self}")

    def _pages(self, source: Source, wanted: Filter) -> Iterator[list[str]]:
        walk = Walk(source, with_locks=True)
        while (page := self._session.broker.run(walk.page())).tasks:
            walk.passed(page, page.tasks)
            lines = self._session.broker.drive(lines_of(source, page, self._session.now, wanted.wants))
            yield [line for _, line in lines]

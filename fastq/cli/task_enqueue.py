"""``fastq task enqueue``: puts one task into a queue."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from fastq.cli.commands import Verb
from fastq.cli.parameters import QueueName, json_option
from fastq.cli.session import Session, emit, pass_session
from fastq.client import Client
from fastq.common.states import KeyOutcome, TaskState
from fastq.common.times import read_duration, read_time
from fastq.info import TaskInfo
from fastq.inspector.audit import note_change
from fastq.inspector.json_records import task_record
from fastq.options import OPTIONS, OptionKind, OptionSpec
from fastq.task import Task
from fastq.text.human import clean, when

_SAID: Final[Mapping[KeyOutcome | None, str]] = {
    KeyOutcome.KEPT: "Kept {id} of {queue}, and nothing of this one",
    KeyOutcome.REPLACED: "Replaced {id} of {queue}",
    KeyOutcome.POSTPONED: "Postponed {id} of {queue}",
    KeyOutcome.RERUN: "{id} of {queue} runs once more after this run",
}
F = TypeVar("F", bound=Callable[..., Any])

_FLAGS: Final = {
    "queue": ("--queue", "-q"),
    "task_id": ("--id", "-i"),
    "max_retry": ("--max-retry", "--retry"),
    "headers": ("--header",),
    "process_at": ("--process-at", "--process_at"),
    "process_in": ("--process-in", "--process_in"),
}
"""The flags whose names differ from their options, or that have aliases, as in asynq's command."""


def _headers(words: Sequence[str]) -> dict[str, str]:
    headers = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not of the form NAME=VALUE")
        headers[name] = value
    return headers


_READ: Final[dict[OptionKind, Callable[[Any], Any]]] = {
    OptionKind.DURATION: read_duration,
    OptionKind.TIME: read_time,
    OptionKind.HEADERS: _headers,
}
_KINDS: Final = {spec.name: spec.kind for spec in OPTIONS}
_METAVARS: Final = {
    OptionKind.NUMBER: "N",
    OptionKind.DURATION: "DURATION",
    OptionKind.TIME: "TIME",
    OptionKind.HEADERS: "NAME=VALUE",
}


def _task_options(command: F) -> F:
    """Give a command a flag for each option of a task."""
    for spec in reversed(OPTIONS):
        command = _flag(spec)(command)
    return command


def _flag(spec: OptionSpec) -> Callable[[F], F]:
    words = _FLAGS.get(spec.name, (f"--{spec.name.replace('_', '-')}",))
    return click.option(
        *words,
        spec.name,
        type=QueueName() if spec.name == "queue" else int if spec.kind is OptionKind.NUMBER else str,
        multiple=spec.kind is OptionKind.HEADERS,
        metavar=_METAVARS.get(spec.kind) or words[0].rpartition("-")[2].upper(),
        help=spec.help,
    )


@click.command(
    "enqueue",
    cls=Verb,
    examples=[
        'task enqueue --type mail:welcome --payload \'{"to": "ann"}\' --process-in 30m',
        "task enqueue -t report -l x -q low --retry 3 --timeout 90 --unique 1h --header trace=7",
    ],
)
@click.option(
    "--type-name", "--type_name", "--type", "-t", "type_name", required=True, metavar="TYPE", help="the task type"
)
@click.option("--payload", "-l", required=True, metavar="TEXT", help="the payload, used verbatim")
@_task_options
@json_option
@pass_session
def enqueue(session: Session, /, type_name: str, payload: str, as_json: bool, **options: Any) -> None:
    """Put a task into a queue, and print its id.

    Durations are seconds (90) or Go-like (1m30s); times are RFC 3339 (2026-11-21T07:00:00Z).
    """
    try:
        given: Any = {name: _read(name, value) for name, value in options.items() if value not in (None, ())}
        made = Task(type_name, payload.encode("utf-8", "surrogateescape"), **given)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    with Client(session.url) as client:
        info = client.enqueue(made)
    note_change("enqueue", session.inspector.where, {"queue": info.queue, "task_id": info.id, "type": info.type})
    if as_json:
        outcome = {} if info.key_outcome is None else {"key_outcome": info.key_outcome}
        emit(task_record(info) | outcome)
    else:
        said = _SAID.get(info.key_outcome, "Enqueued {id} into {queue}")
        said = said.format(id=clean(info.id), queue=clean(info.queue))
        session.screen.say(f"{said}: {_fate(info, session)}.")


def _fate(info: TaskInfo, session: Session) -> str:
    if info.state is TaskState.SCHEDULED and info.next_process_at is not None:
        return f"scheduled, {when(info.next_process_at, session.now)}"
    return f"{info.state} in group {clean(info.group)}" if info.state is TaskState.AGGREGATING else info.state.value


def _read(name: str, value: Any) -> Any:
    read = _READ.get(_KINDS[name])
    try:
        return value if read is None else read(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None

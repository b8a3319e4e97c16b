"""``fastq task enqueue``: puts one task into a queue."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from fastq.cli.commands import QueueName, Verb, json_option
from fastq.cli.human import clean, when
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.times import read_duration, read_time
from fastq.client import Client
from fastq.info import TaskInfo
from fastq.inspector.json_records import task_record
from fastq.states import TaskState
from fastq.task import Task

__all__ = ["enqueue"]

_READ: Final[dict[str, Callable[[str], Any]]] = {
    "timeout": read_duration,
    "deadline": read_time,
    "unique": read_duration,
    "process_at": read_time,
    "process_in": read_duration,
    "retention": read_duration,
}


@click.command(
    "enqueue",
    cls=Verb,
    examples=[
        'task enqueue --type mail:welcome --payload \'{"to": "ann"}\' --process-in 30m',
        "task enqueue -t report -l x -q low --retry 3 --timeout 90 --unique 1h --header trace=7",
    ],
)
@click.option("--type-name", "--type_name", "--type", "-t", "type_name", required=True, metavar="TYPE", help="its type")
@click.option("--payload", "-l", required=True, metavar="TEXT", help="its payload, as it is")
@click.option("--queue", "-q", type=QueueName(), metavar="QUEUE", help="the queue  [default: default]")
@click.option("--id", "-i", "task_id", metavar="ID", help="its id  [default: one that no other has]")
@click.option("--retry", "max_retry", type=int, metavar="N", help="how often it is retried  [default: 25]")
@click.option("--timeout", metavar="DURATION", help="how long it may run  [default: 30m, none with a deadline]")
@click.option("--deadline", metavar="TIME", help="until when it may run")
@click.option("--unique", metavar="DURATION", help="for how long no other with its type and payload is taken")
@click.option("--process-at", "--process_at", metavar="TIME", help="when it may begin")
@click.option("--process-in", "--process_in", metavar="DURATION", help="how long from now it may begin")
@click.option("--retention", metavar="DURATION", help="how long it is kept once it is completed")
@click.option("--group", metavar="GROUP", help="the group with which it is made into one task")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="a header; may be repeated")
@json_option
@pass_session
def enqueue(session: Session, /, type_name: str, payload: str, as_json: bool, **options: Any) -> None:
    """Put a task into a queue, and say its id.

    Durations are seconds (90) or Go-like (1m30s), times are of RFC 3339 (2026-11-21T07:00:00Z).
    """
    headers = _headers(options.pop("headers"))
    try:
        given = {name: _read(name, value) for name, value in options.items() if value is not None}
        made = Task(type_name, payload.encode("utf-8", "surrogateescape"), headers=headers, **given)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    with Client(session.url) as client:
        info = client.enqueue(made)
    if as_json:
        emit(task_record(info))
    else:
        session.screen.say(f"Enqueued {clean(info.id)} into {clean(info.queue)}: {_fate(info, session)}.")


def _fate(info: TaskInfo, session: Session) -> str:
    if info.state is TaskState.SCHEDULED:
        return f"scheduled, {when(info.next_process_at, session.now)}"
    return f"{info.state} in group {clean(info.group)}" if info.state is TaskState.AGGREGATING else info.state.value


def _read(name: str, value: Any) -> Any:
    try:
        return _READ[name](value) if name in _READ else value
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _headers(words: Sequence[str]) -> dict[str, str]:
    headers = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise click.UsageError(f"--header: {word!r} is not of the form NAME=VALUE")
        headers[name] = value
    return headers

"""``fastq run``: runs one task in the foreground, without a queue; for development."""

import os
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

import click
import orjson

from fastq.app.app import App
from fastq.app.foreground import run_in_foreground
from fastq.app.function import TaskFunction
from fastq.cli.apps import import_app
from fastq.cli.commands import SETTINGS
from fastq.cli.connection import runner_url
from fastq.cli.streams import say_failure
from fastq.errors import HandlerNotFoundError, PayloadError, Snooze
from fastq.mux import ServeMux
from fastq.worker.shared.names import AppNameError
from fastq.worker.shared.report import trace_of

EXIT_FAILED: Final = 1
NUL: Final = "\0"

_EPILOG: Final = """\b
Examples:
  fastq run jobs:resize '{"id": 7}'
  fastq run jobs:app --type media.resize '{"id": 7}'

Exit codes: 0 done, 1 failed or snoozed, 2 misused, 130 interrupted."""


@click.command("run", context_settings={**SETTINGS, "allow_extra_args": True}, epilog=_EPILOG)
@click.argument("task")
@click.argument("payload", default="")
@click.option("--type", "-t", "task_type", metavar="TYPE", help="the type of a task, where TASK is an App or ServeMux")
@click.option("--redis", "-u", metavar="URL", help="where its clients look  [default: $FASTQ_REDIS_URL]")
@click.pass_context
def run(context: click.Context, task: str, payload: str, task_type: str | None, redis: str | None) -> None:
    """Run TASK (module:function) with the JSON object PAYLOAD here and now, and print what it returns.

    The task runs in this process, without a queue, time limit or retry, but with the app's lifespan and middleware. An
    error is shown with its traceback.
    """
    if context.args:
        text = f"unexpected argument {context.args[0]!r}; a task of an app is chosen by --type {payload}"
        raise click.UsageError(text)
    try:
        if url := runner_url({"redis": redis}, {}):
            os.environ["FASTQ_REDIS_URL"] = url
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        mux, name = _found(import_app(task), task, task_type)
    except AppNameError as error:
        raise click.UsageError(str(error)) from None
    try:
        _check_names(mux, name, payload)
        result = run_in_foreground(mux, name, payload.encode())
    except HandlerNotFoundError as error:
        say_failure(f"{error}; {_known(name, [pattern.removesuffix(NUL) for pattern in mux.patterns()])}")
        context.exit(EXIT_FAILED)
    except PayloadError as error:
        say_failure(f"{name}: {error}")
        context.exit(EXIT_FAILED)
    except Snooze as error:
        say_failure(f"{name} is snoozed: a worker would run it again in {error.after_s:g} s, and count no attempt")
        context.exit(EXIT_FAILED)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything, and it is shown
        click.echo(trace_of(error), err=True, nl=False)
        context.exit(EXIT_FAILED)
    if result is not None:
        click.echo(result)


def _check_names(mux: ServeMux, name: str, payload: str) -> None:
    """Refuse arguments of a typed task that look misspelled; print a note for other unknown ones, which the task
    ignores.
    """
    tasks = mux.tasks.values() if isinstance(mux, App) else ()
    task = next((each for each in tasks if name in (each.type, *each.aliases)), None)
    given = _decoded(payload)
    if task is None or not isinstance(given, dict):
        return
    names = [field.name for field in task.payload.fields]
    for unknown in (each for each in given if each not in names):
        if get_close_matches(unknown, names, 1):
            raise PayloadError(f"it has no argument {unknown!r}; {_known(unknown, names)}")
        say_failure(f"{name} ignores {unknown!r}; {_known(unknown, names)}")


def _decoded(payload: str) -> Any:
    """Return the value of a JSON payload; None if it is not JSON, which the task itself will refuse."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None


def _known(word: str, names: Sequence[str]) -> str:
    if close := get_close_matches(word, names, 1):
        return f"did you mean {close[0]!r}?"
    return f"there are {', '.join(sorted(names))}" if names else "there are none"


def _found(found: Any, path: str, task_type: str | None) -> tuple[ServeMux, str]:
    """Return the mux and the type of the task to run; ``AppNameError`` if the command names no task."""
    if isinstance(found, TaskFunction) and task_type is None:
        return _checked(found.app, path), found.type
    if isinstance(found, ServeMux) and task_type is not None:
        return _checked(found, path), task_type
    if isinstance(found, App) and found.tasks:
        raise AppNameError(f"{path!r} is an app: choose a task with --type, of {', '.join(sorted(found.tasks))}")
    raise AppNameError(f"{path!r} must be a task function, or with --type a fastq.App or ServeMux, not {found!r}")


def _checked(mux: ServeMux, path: str) -> ServeMux:
    try:
        mux.check()
    except TypeError as error:
        raise AppNameError(f"{path!r}: {error}") from None
    return mux

"""``fastq run``: one task in the foreground, without a queue; for development."""

import os
from typing import Any, Final

import click

from fastq.app.app import App
from fastq.app.foreground import run_in_foreground
from fastq.app.function import TaskFunction
from fastq.cli.commands import SETTINGS
from fastq.cli.connection import runner_url
from fastq.cli.sources import search_here
from fastq.cli.streams import say_failure
from fastq.errors import HandlerNotFoundError, PayloadError
from fastq.mux import ServeMux
from fastq.worker.names import AppNameError, resolve
from fastq.worker.report import trace_of

__all__ = ["run"]

EXIT_FAILED: Final = 1

_EPILOG: Final = """\b
Examples:
  fastq run jobs:resize '{"id": 7}'
  fastq run jobs:app --type media.resize '{"id": 7}'

\b
Exit codes: 0 done, 1 failed, 2 misused, 130 interrupted."""


@click.command("run", context_settings=SETTINGS, epilog=_EPILOG)
@click.argument("task")
@click.argument("payload", default="")
@click.option("--type", "-t", "task_type", metavar="TYPE", help="the type of a task, where TASK is an App or ServeMux")
@click.option("--redis", "-u", metavar="URL", help="where its clients look  [default: $FASTQ_REDIS_URL]")
@click.pass_context
def run(context: click.Context, task: str, payload: str, task_type: str | None, redis: str | None) -> None:
    """Run TASK (module:function) with the JSON object PAYLOAD here and now, and print what it returns.

    No queue has a part in it: no time limit, no retry. The app's lifespan and middleware do. An error is shown with its
    traceback.
    """
    search_here()
    try:
        if url := runner_url(redis, {}):
            os.environ["FASTQ_REDIS_URL"] = url
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    name = task
    try:
        mux, name = _found(task, task_type)
        result = run_in_foreground(mux, name, payload.encode())
    except AppNameError as error:
        raise click.UsageError(str(error)) from None
    except (PayloadError, HandlerNotFoundError) as error:
        say_failure(f"{name}: {error}")
        context.exit(EXIT_FAILED)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything, and it is shown
        click.echo(trace_of(error), err=True, nl=False)
        context.exit(EXIT_FAILED)
    if result is not None:
        click.echo(result)


def _found(path: str, task_type: str | None) -> tuple[ServeMux, str]:
    """Return the mux and the type that the command's words mean; ``AppNameError`` if they lead to no task."""
    found: Any = resolve(path)
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

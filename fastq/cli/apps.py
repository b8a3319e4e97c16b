"""Imports the apps that commands name. This is a separate module, since the main process of a worker imports no app."""

from typing import Any

import click

from fastq.app.app import App
from fastq.cli.connection import search_here
from fastq.log.traces import own_trace
from fastq.worker.shared.names import AppNameError, resolve


def import_app(name: str) -> Any:
    """Import the object that ``module:attr`` names; a name that cannot be found is a usage error. If the module raises,
    print the part of the traceback in the user's code, and exit with code 1.
    """
    search_here()
    try:
        return resolve(name)
    except AppNameError as error:
        raise click.UsageError(str(error)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything at its import
        click.echo(f"fastq: the import of {name} failed:\n{own_trace(error)}", err=True, nl=False)
        raise click.exceptions.Exit(1) from None


def typed_app(name: str) -> App:
    """Import an ``App`` that has typed tasks."""
    found = import_app(name)
    if not isinstance(found, App):
        raise click.UsageError(f"{name!r} must be a fastq.App, not {type(found).__name__}")
    if not found.tasks:
        raise click.UsageError(f"{name!r} has no typed tasks; add some with @app.task")
    return found

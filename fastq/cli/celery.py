"""``fastq celery``: lists what has to change in a Celery project before it can run on fastq."""

from collections import Counter
from pathlib import Path

import click
import orjson

from fastq.cli.commands import SETTINGS, Noun
from fastq.cli.parameters import json_option
from fastq.contrib.celery.checking import Found, files_of, uses_in
from fastq.contrib.celery.uses import Level
from fastq.errors import FastqError

_EPILOG = """\b
Examples:
  fastq celery check shop
  fastq celery check . --json

Exit codes: 0 everything works or differs, 1 something is unsupported, 2 misused, 130 interrupted."""

celery = Noun("celery", help="Find what has to change in a project written for Celery.", epilog=_EPILOG)


@celery.command("check", context_settings=SETTINGS, epilog=_EPILOG)
@click.argument("app")
@json_option
@click.pass_context
def check(context: click.Context, app: str, as_json: bool) -> None:
    """List each use of Celery in APP as works, differs or unsupported by fastq.contrib.celery.

    APP is a directory, a file, or a package in this directory. Its source is read, and not imported.
    """
    here = Path.cwd()
    try:
        found = uses_in(files_of(app, here), here)
    except (FileNotFoundError, SyntaxError) as error:
        raise FastqError(str(error)) from None
    counts = Counter(each.level for each in found)
    if as_json:
        uses = [each._asdict() for each in found]
        click.echo(orjson.dumps({"uses": uses, **{level.value: counts[level] for level in Level}}))
    else:
        for each in found:
            click.echo(_line(each))
        click.echo(", ".join(f"{counts[level]} {level.value}" for level in Level))
    context.exit(1 if counts[Level.UNSUPPORTED] else 0)


def _line(found: Found) -> str:
    note = f": {found.note}" if found.note else ""
    return f"{found.path}:{found.line}: {found.level.value:<11}  {found.what}{note}"

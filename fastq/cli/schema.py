"""``fastq schema``: the parameters of an app's tasks, for producers in other languages, and their changes."""

from pathlib import Path
from typing import Any, Final

import click
import orjson

from fastq.app.go_source import go_source
from fastq.app.schema import FORMAT, schema_of
from fastq.app.schema_diff import breaking_changes
from fastq.cli.apps import typed_app
from fastq.cli.commands import SETTINGS, Noun

EXIT_BREAKS: Final = 1

_EPILOG: Final = """\b
Examples:
  fastq schema export jobs:app
  fastq schema diff tasks.json jobs:app
  fastq schema go jobs:app --package jobs"""
_EXITS: Final = "0 done, 1 an import failed, 2 misused, 130 interrupted"
_EXITS_OF_DIFF: Final = "0 nothing breaks, 1 something does, or an import failed; 2 misused, 130 interrupted"


def _epilog(example: str, exits: str = _EXITS) -> str:
    return f"\b\nExamples:\n  fastq {example}\n\nExit codes: {exits}."


schema = Noun("schema", help="Show what the typed tasks of an App take, and find what breaks.", epilog=_EPILOG)


@schema.command("export", context_settings=SETTINGS, epilog=_epilog("schema export jobs:app"))
@click.argument("app")
def export(app: str) -> None:
    """Print the JSON Schema of all tasks of APP (module:attr)."""
    click.echo(orjson.dumps(schema_of(typed_app(app)), option=orjson.OPT_INDENT_2))


@schema.command("diff", context_settings=SETTINGS, epilog=_epilog("schema diff tasks.json jobs:app", _EXITS_OF_DIFF))
@click.argument("old")
@click.argument("new")
@click.pass_context
def diff(context: click.Context, old: str, new: str) -> None:
    """Print what tasks of OLD accept and tasks of NEW refuse; each is an app, or a file of fastq schema export."""
    changes = breaking_changes(_schema(old), _schema(new))
    for change in changes:
        click.echo(change)
    context.exit(EXIT_BREAKS if changes else 0)


@schema.command("go", context_settings=SETTINGS, epilog=_epilog("schema go jobs:app --package jobs"))
@click.argument("app")
@click.option("--package", "-p", metavar="NAME", default="tasks", show_default=True, help="the package of the file")
def go(app: str, package: str) -> None:
    """Print Go source for the tasks of APP: a struct of the arguments, and a function that enqueues them, for each."""
    try:
        click.echo(go_source(typed_app(app), package), nl=False)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _schema(source: str) -> dict[str, Any]:
    """Return the schema of an app, or the one in a file."""
    if ":" in source and not Path(source).exists():
        return schema_of(typed_app(source))
    try:
        found: Any = orjson.loads(Path(source).read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise click.UsageError(f"{source} is neither module:attr nor a file of fastq schema export: {why}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise click.UsageError(f"{source} is not a file of fastq schema export of format {FORMAT}")
    schema_in_file: dict[str, Any] = found
    return schema_in_file

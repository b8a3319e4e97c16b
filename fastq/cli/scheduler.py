"""``fastq scheduler APP``: run the Scheduler or PeriodicTaskManager that a module holds.

``command`` is for the command line's frame; ``main`` runs it by itself, also as ``python -m fastq.cli.scheduler``.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from fastq._version import __version__
from fastq.cli.connection import runner_url
from fastq.cli.environment import check_environment
from fastq.cli.scheduling import SchedulingOptions, run_scheduler
from fastq.cli.sources import Sources, read_seconds, search_here
from fastq.server.settings import SETTINGS, build_config, from_environment, from_file
from fastq.worker.names import split_name

__all__ = ["command", "main"]

_NAME: Final = "fastq scheduler"
_LOG_SETTINGS: Final = ("log_level", "log_format")
EXIT_MISUSED: Final = 2
EXIT_INTERRUPTED: Final = 130

_EPILOG: Final = """\b
Examples:
  fastq scheduler myapp.schedule:scheduler
  fastq scheduler myapp.schedule:manager --redis redis://redis.example:6379/0

Each option is also read from FASTQ_<NAME>, for example FASTQ_LOG_LEVEL, and from the file given with --config (TOML,
keys with underscores); --redis is also FASTQ_REDIS_URL. It applies to a scheduler that was created without a URL.

\b
Signals: TERM and INT finish enqueuing the current tick, remove the entries from Redis, and exit.
Exit codes: 0 done, 1 could not run, 2 misused."""


def _choices(name: str) -> click.Choice[str]:
    return click.Choice(SETTINGS[name].metadata["of"])


@click.command(
    "scheduler",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.argument("app", required=False)
@click.option("--redis", "-u", metavar="URL", help="where Redis is  [default: $FASTQ_REDIS_URL, else 127.0.0.1:6379/0]")
@click.option("--connect-timeout", metavar="SECONDS", help="how long to wait for Redis at the start  [default: 30]")
@click.option(
    "--log-level", type=_choices("log_level"), help=f"{SETTINGS['log_level'].metadata['help']}  [default: info]"
)
@click.option(
    "--log-format", type=_choices("log_format"), help=f"{SETTINGS['log_format'].metadata['help']}  [default: text]"
)
@click.option("--config", metavar="FILE", help="a TOML file with settings")
@click.version_option(__version__, prog_name=_NAME)
@click.pass_context
def command(context: click.Context, /, **flags: Any) -> None:
    """Enqueue the periodic tasks of the Scheduler or PeriodicTaskManager APP (module:attr)."""
    search_here()
    try:
        for warning in check_environment(os.environ):
            click.echo(f"{_NAME}: {warning}", err=True)
        code = run_scheduler(_options(flags))
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    context.exit(code)


def _options(flags: dict[str, Any]) -> SchedulingOptions:
    config_file = flags["config"] or os.environ.get("FASTQ_CONFIG")
    file = from_file(Path(config_file)) if config_file else {}
    app = flags["app"]
    if not app:
        raise ValueError("APP is missing: name your Scheduler, for example myapp.schedule:scheduler")
    split_name(app)
    sources = Sources(flags, file)
    url = runner_url(flags["redis"], file)
    timeout_s = sources.first("connect_timeout", read_seconds)
    variables = {name: os.environ.get(name, "") for name in (f"FASTQ_{setting.upper()}" for setting in _LOG_SETTINGS)}
    log = build_config(
        *({name: layer.get(name) for name in _LOG_SETTINGS} for layer in (flags, from_environment(variables), file))
    )
    return SchedulingOptions(app, url, 30.0 if timeout_s is None else timeout_s, log.log_level, log.log_format)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these words (those of the command line), and return its exit code; misuse is one line."""
    try:
        code: int = command.main(argv and list(argv), prog_name=_NAME, standalone_mode=False)
    except click.ClickException as error:
        click.echo(f"{_NAME}: {error.format_message().rstrip('.')} (see {_NAME} --help)", err=True)
        return EXIT_MISUSED
    except click.Abort:
        return EXIT_INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())

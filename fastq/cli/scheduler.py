"""``fastq scheduler APP``: run the App, Scheduler or PeriodicTaskManager of a module."""

import os
from typing import Any, Final

import click

from fastq._version import __version__
from fastq.cli.connection import search_here
from fastq.cli.environment import check_environment
from fastq.cli.scheduling import SchedulingOptions, run_scheduler
from fastq.cli.sources import Sources, checked_app
from fastq.server.base.settings import SETTINGS, build_config, from_environment

_NAME: Final = "fastq scheduler"
_LOG_SETTINGS: Final = ("log_level", "log_format")

_EPILOG: Final = """\b
Examples:
  fastq scheduler jobs:app
  fastq scheduler myapp.schedule:scheduler
  fastq scheduler myapp.schedule:manager --redis redis://redis.example:6379/0

Each option is also read from FASTQ_<NAME>, for example FASTQ_LOG_LEVEL, and from the file given with --config (TOML,
keys with underscores); --redis is also FASTQ_REDIS_URL. It applies to a scheduler that was created without a URL.

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
@click.option("--redis", "-u", metavar="URL", help="the Redis URL  [default: $FASTQ_REDIS_URL, else 127.0.0.1:6379/0]")
@click.option("--redis-credentials", metavar="MODULE:FUNCTION|FILE", help="what gives the password, in place of one")
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
    """Enqueue the periodic tasks of the App, Scheduler or PeriodicTaskManager APP (module:attr)."""
    search_here()
    try:
        for warning in check_environment(os.environ):
            click.echo(f"{_NAME}: {warning}", err=True)
        code = run_scheduler(_options(flags))
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    context.exit(code)


def _options(flags: dict[str, Any]) -> SchedulingOptions:
    sources = Sources(flags)
    app = checked_app(flags["app"], "your Scheduler, for example myapp.schedule:scheduler")
    variables = {name: os.environ.get(name, "") for name in (f"FASTQ_{setting.upper()}" for setting in _LOG_SETTINGS)}
    log = build_config(
        *(
            {name: layer.get(name) for name in _LOG_SETTINGS}
            for layer in (flags, from_environment(variables), sources.file)
        )
    )
    return SchedulingOptions(app, sources.redis(), sources.connect_timeout_s(), log.log_level, log.log_format)

"""``fastq-worker APP``: run a server; every setting is a flag, an environment variable and a TOML key."""

import os
import sys
from typing import Any

import click

from fastq._version import __version__
from fastq.cli.connection import search_here
from fastq.cli.environment import check_environment
from fastq.cli.sources import Sources, checked_app, read_count, read_flag, read_seconds, read_text
from fastq.log.output import unblocked_stderr
from fastq.server.base.config import setting_kind
from fastq.server.base.settings import SETTINGS, build_config, from_environment, parse_setting
from fastq.server.run import EXIT_MISUSED, run_server
from fastq.server.wiring.process import ProcessOptions

_NAME = "fastq-worker"
EXIT_INTERRUPTED = 130

_METAVARS = {
    "count": "N",
    "seconds": "SECONDS",
    "bytes": "SIZE",
    "queues": "NAME=WEIGHT,...",
    "devices": "auto|DEVICE,...",
    "hook": "MODULE:ATTR",
    "by_queue": "VALUE|QUEUE=VALUE,...",
    "path": "DIRECTORY",
    "file": "FILE",
    "address": "HOST:PORT",
}

_EPILOG = """\b
Examples:
  fastq-worker myapp.tasks:app
  fastq-worker myapp.tasks:app --queues critical=6,default=3,low=1 --concurrency 8
  fastq-worker myapp.tasks:app --redis rediss://:secret@redis.example:6380/0 --log-format json

Durations are seconds (1.5) or Go-like (1m30s), sizes 512M or 2G. Each option is also read from FASTQ_<NAME>,
for example FASTQ_QUEUES, and from the file given with --config (TOML, keys with underscores).

Signals: TERM and INT finish running tasks, return the others to their queues, and exit (a second one does
not wait, nor does QUIT); TSTP only stops fetching (quiet); HUP reloads the app's code; USR1 logs a summary.

Exit codes: 0 done, 1 could not run, 2 misused, 3 told to stop before --exit-when-idle or --max-tasks
was reached."""


def _setting_options(command: click.Command) -> click.Command:
    for name, setting in SETTINGS.items():
        kind = setting_kind(setting)
        flag = f"--{name.replace('_', '-')}"
        if kind == "flag":
            option = click.Option([f"{flag}/--no-{flag[2:]}"], default=None, help=setting.metadata["help"])
        else:
            choices = setting.metadata.get("of") if kind == "choice" else None
            option = click.Option(
                [flag],
                metavar=None if choices else _METAVARS[kind],
                type=click.Choice(choices) if choices else None,
                help=f"{setting.metadata['help']}{_default(name)}",
            )
        command.params.insert(-1, option)  # puts the option before --version
    return command


def _default(name: str) -> str:
    default = getattr(build_config(), name)
    if default in (None, {}, ()) or name in ("queues", "retry_delay", "is_failure"):
        return "" if name != "queues" else "  [default: default=1]"
    if name == "concurrency":
        return "  [default: the processors, or the devices]"
    return f"  [default: {default:g}]" if isinstance(default, float) else f"  [default: {default}]"


class _PlainSpoken(click.Command):
    """A command that prints usage errors in one line, without click's usage text."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run as a program: never returns."""
        try:
            code = super().main(*args, **{**extra, "prog_name": _NAME, "standalone_mode": False})
        except click.ClickException as error:
            click.echo(f"{_NAME}: {error.format_message().rstrip('.')} (see {_NAME} --help)", err=True)
            sys.exit(EXIT_MISUSED)
        except click.Abort:
            sys.exit(EXIT_INTERRUPTED)
        sys.exit(code)


@click.command(
    cls=_PlainSpoken,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.argument("app", required=False)
@click.option("--redis", "-u", metavar="URL", help="the Redis URL  [default: $FASTQ_REDIS_URL, else 127.0.0.1:6379/0]")
@click.option("--redis-credentials", metavar="MODULE:FUNCTION|FILE", help="what gives the password, in place of one")
@click.option("--burst", is_flag=True, default=None, help="exit when the queues are empty and all tasks taken are done")
@click.option("--exit-when-idle", metavar="SECONDS", help="exit after so long without a task")
@click.option("--max-tasks", metavar="N", help="exit after so many tasks")
@click.option("--reload", is_flag=True, default=None, help="reload the app when a Python file here or below changes")
@click.option("--connect-timeout", metavar="SECONDS", help="how long to wait for Redis at the start  [default: 30]")
@click.option("--config", metavar="FILE", help="a TOML file with settings")
@click.version_option(__version__, prog_name=_NAME)
@unblocked_stderr()
def _command(**flags: Any) -> None:
    """Run the tasks of the App or ServeMux APP (module:attr) in a pool of worker processes."""
    try:
        for warning in check_environment(os.environ):
            click.echo(f"{_NAME}: {warning}", err=True)
        options = _options(flags)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    search_here()
    if options.redis:
        os.environ["FASTQ_REDIS_URL"] = options.redis  # for an App, or a Client in a handler, that names no URL
    sys.exit(run_server(options))


def _options(flags: dict[str, Any]) -> ProcessOptions:
    sources = Sources(flags)
    app = checked_app(sources.first("app", read_text), "your App or ServeMux, for example myapp.tasks:app")
    given = {
        name: parse_setting(name, value) if isinstance(value, str) else value
        for name, value in flags.items()
        if name in SETTINGS
    }
    settings = {name: value for name, value in sources.file.items() if name in SETTINGS}
    config = build_config(given, from_environment(os.environ), settings)
    return ProcessOptions(
        app,
        sources.redis(),
        config,
        idle_s=_idle_s(sources),
        max_tasks=sources.first("max_tasks", read_count) or 0,
        watches=bool(sources.first("reload", read_flag)),
        connect_timeout_s=sources.connect_timeout_s(),
    )


def _idle_s(sources: Sources) -> float | None:
    """Return after how many seconds without a task the server ends, None for never."""
    idle_s = sources.first("exit_when_idle", read_seconds)
    if not sources.first("burst", read_flag):
        return idle_s
    if idle_s is not None:
        raise ValueError(f"burst ends at once where exit-when-idle waits {idle_s:g} s: give one of them")
    return 0.0


main = _setting_options(_command)

if __name__ == "__main__":
    main()

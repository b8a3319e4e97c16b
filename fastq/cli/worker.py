"""``fastq-worker APP``: run a server; every setting is a flag, an environment variable and a TOML key."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from fastq._version import __version__
from fastq.broker.uri import parse_redis_uri
from fastq.server.config import setting_kind
from fastq.server.process import ProcessOptions
from fastq.server.run import run_server
from fastq.server.settings import SETTINGS, build_config, from_environment, from_file, parse_setting
from fastq.worker.names import split_name

__all__ = ["main"]

_METAVARS = {
    "count": "N",
    "seconds": "SECONDS",
    "bytes": "SIZE",
    "queues": "NAME=WEIGHT,...",
    "hook": "MODULE:ATTR",
}

_EPILOG = """\b
Examples:
  fastq-worker myapp.tasks:mux
  fastq-worker myapp.tasks:mux --queues critical=6,default=3,low=1 --concurrency 8
  fastq-worker myapp.tasks:mux --redis rediss://:secret@redis.example:6380/0 --log-format json

Durations are seconds (1.5) or Go-like (1m30s), sizes 512M or 2G. Each option is also read from FASTQ_<NAME>,
for example FASTQ_QUEUES, and from the file given with --config (TOML, keys with underscores).

\b
Signals: TERM and INT finish what runs, give the rest back, and exit (a second one skips the waiting);
TSTP stops fetching only. Exit codes: 0 done, 1 could not run, 2 misused."""


def _setting_options(command: click.Command) -> click.Command:
    for name, setting in reversed(list(SETTINGS.items())):
        kind = setting_kind(setting)
        flag = f"--{name.replace('_', '-')}"
        if kind == "flag":
            option = click.Option([f"{flag}/--no-{flag[2:]}"], default=None, help=setting.metadata["help"])
        else:
            choices = setting.metadata.get("of")
            option = click.Option(
                [flag],
                metavar=None if choices else _METAVARS[kind],
                type=click.Choice(choices) if choices else None,
                help=f"{setting.metadata['help']}{_default(name)}",
            )
        command.params.insert(1, option)
    return command


def _default(name: str) -> str:
    default = getattr(build_config(), name)
    if default is None or name in ("queues", "retry_delay", "is_failure"):
        return "" if name != "queues" else "  [default: default=1]"
    if name == "concurrency":
        return "  [default: the processors]"
    return f"  [default: {default:g}]" if isinstance(default, float) else f"  [default: {default}]"


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("app", required=False)
@click.option("--redis", "-u", metavar="URL", help="where Redis is  [default: $FASTQ_REDIS_URL, else 127.0.0.1:6379/0]")
@click.option("--burst", is_flag=True, help="end when the queues are empty and nothing runs here")
@click.option(
    "--connect-timeout", metavar="SECONDS", type=float, help="how long Redis may be away at the start  [default: 30]"
)
@click.option(
    "--config", "config_file", metavar="FILE", type=click.Path(path_type=Path), help="a TOML file of settings"
)
@click.version_option(__version__, prog_name="fastq-worker")
def _command(
    app: str | None,
    redis: str | None,
    burst: bool,
    connect_timeout: float | None,
    config_file: Path | None,
    **flags: Any,
) -> None:
    """Run the tasks of the ServeMux that APP names (module:attr) in a pool of processes."""
    try:
        options = _options(app, redis, burst, connect_timeout, config_file, flags)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    sys.exit(run_server(options))


def _options(
    app: str | None,
    redis: str | None,
    burst: bool,
    connect_timeout: float | None,
    config_file: Path | None,
    flags: dict[str, Any],
) -> ProcessOptions:
    file = from_file(config_file) if config_file else {}
    app = app or file.pop("app", None)
    if not app:
        raise ValueError("APP is missing: name your ServeMux, for example myapp.tasks:mux")
    split_name(app)
    url = redis or os.environ.get("FASTQ_REDIS_URL") or file.pop("redis", None)
    if url is not None:
        parse_redis_uri(url)
    timeout_s = connect_timeout if connect_timeout is not None else file.pop("connect_timeout", 30.0)
    given = {name: parse_setting(name, value) if isinstance(value, str) else value for name, value in flags.items()}
    settings = {name: value for name, value in file.items() if name in SETTINGS}
    config = build_config(given, from_environment(os.environ), settings)
    return ProcessOptions(app, url, config, burst, float(timeout_s))


main = _setting_options(_command)

if __name__ == "__main__":
    main()

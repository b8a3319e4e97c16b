"""``fastq``: the command that shows queues and acts on them; also ``python -m fastq``."""

import os
import sys
from typing import Any, Final

import click

from fastq._version import __version__
from fastq.cli.audit_log import audit_log
from fastq.cli.commands import Noun
from fastq.cli.connection import connection_options, given_defaults
from fastq.cli.environment import check_environment
from fastq.cli.streams import end_unwritten, open_streams, say_failure
from fastq.errors import FastqError

NAME: Final = "fastq"
RUNNERS: Final = frozenset({"worker", "scheduler"})
"""The commands that run apps; they read the environment and the configuration file themselves."""
TOLD_WHERE_REDIS_IS: Final = RUNNERS | {"run"}
"""Commands with Redis options of their own; the options given before the command are their defaults."""
EXIT_FAILED: Final = 1
EXIT_MISUSED: Final = 2
EXIT_INTERRUPTED: Final = 130

_EPILOG: Final = """\b
Examples:
  fastq stats
  fastq queue inspect critical default
  fastq task ls --queue default --state retry
  fastq --redis rediss://:secret@redis.example:6380/0 server ls

The Redis options may be given before or after a command. Each is also read from FASTQ_<NAME> (FASTQ_REDIS_URL,
FASTQ_PASSWORD), and from a TOML file, by default ~/.config/fastq/config.toml, as redis = "redis://host:6379/0".

$NO_COLOR switches colors off; pipes and files get none, and no line is cut. --json is for programs.
Exit codes: 0 done, 1 failed, 2 misused, 130 interrupted."""


class _Frame(Noun):
    """The command ``fastq``, which prints each error as one line on stderr and exits with its code."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.params = connection_options(hidden=False) + [
            option for option in self.params if not getattr(option, "hidden", False)
        ]

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run as a program: never returns."""
        open_streams()
        try:
            code = self._run(args, {**extra, "prog_name": NAME, "standalone_mode": False})
        except OSError as error:
            if said := end_unwritten(error):
                say_failure(said)
            code = EXIT_FAILED
        sys.exit(code)

    def _run(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        try:
            return super().main(*args, **named)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            path = context.command_path if context else NAME
            say_failure(f"{error.format_message().rstrip('.')} (see {path} --help)")
            return EXIT_MISUSED
        except FastqError as error:
            say_failure(str(error))
            return EXIT_FAILED
        except (click.Abort, KeyboardInterrupt):
            return EXIT_INTERRUPTED


@click.pass_context
def _begin(context: click.Context) -> int:
    """Show help if no command was named; pass Redis options on to commands that have their own."""
    if context.invoked_subcommand not in RUNNERS:  # the commands of RUNNERS check the environment themselves
        try:
            warnings = check_environment(os.environ)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        for warning in warnings:
            say_failure(warning)
        context.with_resource(audit_log(os.environ.get("FASTQ_AUDIT_LOG")))
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    elif context.invoked_subcommand in TOLD_WHERE_REDIS_IS:
        context.default_map = {context.invoked_subcommand: given_defaults(context)}
    return 0


def _say_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(f"{NAME} {__version__}")
        context.exit()


_VERSION = click.Option(
    ["--version", "-v"],
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_say_version,
    help="print the version",
)

main = _Frame(
    NAME,
    callback=_begin,
    params=[_VERSION],
    help="Inspect and manage the queues, tasks, servers and schedulers of asynq and fastq.",
    epilog=_EPILOG,
)


for _name, _place, _summary in (
    (
        "stats",
        "fastq.cli.stats:stats",
        "Show the number of tasks in each state and queue, today's work, and the state of Redis.",
    ),
    ("queue", "fastq.cli.queue:queue", "List, describe, limit, pause, resume, drain, move and remove queues."),
    (
        "task",
        "fastq.cli.task:task",
        "List, describe, enqueue, run, retry, archive, delete, cancel, export, import and follow tasks.",
    ),
    ("group", "fastq.cli.group:group", "List the groups of tasks that are aggregated into one."),
    ("lane", "fastq.cli.lane:lane", "List lanes and why their tasks wait; limit, pause, resume and drain them."),
    ("server", "fastq.cli.server:server", "List, quiet and stop servers."),
    ("cron", "fastq.cli.cron:cron", "List periodic tasks, and when they were enqueued."),
    ("doctor", "fastq.cli.doctor:doctor", "Look for faults in Redis, the servers, and the queues of Go and fastq."),
    (
        "leave",
        "fastq.cli.leave:leave",
        "Count the keys of fastq's own, which Go's asynq does not know; with --yes delete them.",
    ),
    (
        "dash",
        "fastq.cli.dash.command:dash",
        "Show a live dashboard of queues, tasks, servers, schedulers and Redis in the terminal.",
    ),
    ("web", "fastq.cli.web:web", "Serve the web UI, and asynqmon's REST API below /api."),
    (
        "exporter",
        "fastq.cli.exporter:exporter",
        "Serve the metrics of all queues for Prometheus, with the names of asynq's exporter, until a signal.",
    ),
    ("metrics", "fastq.cli.metrics:metrics", "Print alerts for Prometheus, and a dashboard for Grafana."),
    (
        "worker",
        "fastq.cli.worker:main",
        "Run the tasks of the App or ServeMux APP (module:attr) in a pool of worker processes.",
    ),
    (
        "scheduler",
        "fastq.cli.scheduler:command",
        "Enqueue the periodic tasks of the App, Scheduler or PeriodicTaskManager APP (module:attr).",
    ),
    (
        "run",
        "fastq.cli.run:run",
        "Run TASK (module:function) with the JSON object PAYLOAD here and now, and print what it returns.",
    ),
    (
        "outbox",
        "fastq.cli.outbox:outbox",
        "Enqueue the tasks of the table fastq_outbox of DATABASE, until a signal.",
    ),
    ("schema", "fastq.cli.schema:schema", "Show what the typed tasks of an App take, and find what breaks."),
    ("celery", "fastq.cli.celery:celery", "Find what has to change in a project written for Celery."),
    (
        "demo",
        "fastq.cli.demo:main",
        "Run a mixed workload through a real Redis and a real fastq-worker, and account for every task.",
    ),
    ("bench", "fastq.cli.bench:bench", "Measure this machine and its Redis, for fastq plan."),
    (
        "plan",
        "fastq.cli.plan:plan",
        "Estimate what a load needs: children, servers, Redis; how long bursts take; which limit comes next.",
    ),
    (
        "acl",
        "fastq.cli.acl:acl",
        "Print the ACL rules of a Redis user with each ROLE: producer, worker, scheduler, inspector or admin.",
    ),
    (
        "completion",
        "fastq.cli.about:completion",
        "Print the shell code that completes commands, flags, states, and names of queues.",
    ),
    ("version", "fastq.cli.about:version", "Print the version of fastq."),
):
    main.add(_name, _place, summary=_summary)
if __name__ == "__main__":
    main()

"""``fastq``: the command that shows queues and acts on them; also ``python -m fastq``."""

import os
import sys
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from fastq._version import __version__
from fastq.cli.bench import bench
from fastq.cli.commands import SETTINGS, Noun
from fastq.cli.connection import connection_options, given_defaults
from fastq.cli.cron import cron
from fastq.cli.dash.command import dash
from fastq.cli.demo import main as demo_command
from fastq.cli.doctor import doctor
from fastq.cli.environment import check_environment
from fastq.cli.group import group
from fastq.cli.plan import plan
from fastq.cli.queue import queue
from fastq.cli.queue_drain import drain
from fastq.cli.queue_move import move
from fastq.cli.queue_removal import rm
from fastq.cli.run import run
from fastq.cli.scheduler import command as scheduler_command
from fastq.cli.schema import schema
from fastq.cli.server import server
from fastq.cli.server_control import quiet, stop
from fastq.cli.session import say_failure
from fastq.cli.stats import stats
from fastq.cli.streams import end_unwritten, open_streams
from fastq.cli.task import task
from fastq.cli.task_bulk import archive_all, delete_all, run_all
from fastq.cli.task_enqueue import enqueue
from fastq.cli.task_export import export
from fastq.cli.task_import import import_tasks
from fastq.cli.task_retry import retry
from fastq.cli.task_tail import tail
from fastq.cli.worker import main as worker_command
from fastq.errors import FastqError

__all__ = ["main"]

NAME: Final = "fastq"
RUNNERS: Final = frozenset({"worker", "scheduler"})
"""The commands that run apps; they read the environment and the file themselves."""
TOLD_WHERE_REDIS_IS: Final = RUNNERS | {"run"}
"""Commands whose own option is what was said before them."""
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

\b
$NO_COLOR switches colors off; pipes and files get none, and no line is cut. --json is for programs.
Exit codes: 0 done, 1 failed, 2 misused, 130 interrupted."""


class _Frame(Noun):
    """The whole command: each error is one line on stderr and determines the exit code."""

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
    """Show help if no command was named; pass the URL on to a worker, which has its own options."""
    if context.invoked_subcommand not in RUNNERS:  # these check it themselves
        try:
            warnings = check_environment(os.environ)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        for warning in warnings:
            say_failure(warning)
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


@click.command("version", context_settings=SETTINGS)
def _version() -> None:
    """Print the version of fastq."""
    click.echo(f"{NAME} {__version__}")


_COMPLETION_EPILOG: Final = """\b
Examples:
  echo 'eval "$(fastq completion bash)"' >> ~/.bashrc
  echo 'eval "$(fastq completion zsh)"' >> ~/.zshrc
  fastq completion fish > ~/.config/fish/completions/fastq.fish"""


@click.command("completion", context_settings=SETTINGS, epilog=_COMPLETION_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def _completion(shell: str) -> None:
    """Print the shell code that completes commands, flags, states, and names of queues."""
    completion = get_completion_class(shell)
    assert completion is not None  # the three shells that click supports
    click.echo(completion(main, {}, NAME, "_FASTQ_COMPLETE").source())


queue.add(drain)
queue.add(move)
queue.add(rm, "remove", "delete")
task.add(enqueue)
task.add(retry)
task.add(run_all, "runall")
task.add(archive_all, "archiveall")
task.add(delete_all, "deleteall")
task.add(export)
task.add(import_tasks)
task.add(tail)
server.add(quiet)
server.add(stop)
for _command in (stats, queue, task, group, server, cron, doctor, dash):
    main.add(_command)
main.add_command(worker_command, "worker")
main.add_command(scheduler_command, "scheduler")
main.add_command(run)
main.add(schema)
main.add_command(demo_command, "demo")
main.add(bench)
main.add(plan)
main.add_command(_completion)
main.add_command(_version)
if __name__ == "__main__":
    main()

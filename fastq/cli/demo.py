"""``python -m fastq.cli.demo``: the demo as a command; ``make demo`` runs it."""

import sys

import click

from fastq.cli.numbers import IntegerRange
from fastq.cli.parameters import Parsed
from fastq.common.cpus import whole_cpus
from fastq.demo.pages import PagesEndedError
from fastq.demo.run import DemoOptions, QueuesInUseError, run_demo
from fastq.demo.shift import StalledError
from fastq.demo.worker import WorkerEndedError
from fastq.demo.workload import LEAST_TASKS
from fastq.errors import BrokerError
from fastq.redis_url import parse_redis_uri
from fastq.terminal.interruption import Interrupted, Interruption
from fastq.terminal.screen import Screen

EXIT_FAILED = 1
EXIT_SIGNAL = 128

_EPILOG = """\b
Examples:
  fastq demo
  fastq demo --tasks 2000 --concurrency 2
  fastq demo --web --tasks 500000
  fastq demo --redis redis://127.0.0.1:6379/9

$NO_COLOR switches colors off; pipes and files get plain lines.
Exit codes: 0 all tasks accounted for, 1 some not, or the demo could not run, 2 misused, 130 interrupted."""


def _url(text: str) -> str:
    parse_redis_uri(text)
    return text


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--tasks",
    type=IntegerRange(LEAST_TASKS, 10_000_000),
    default=100_000,
    show_default=True,
    help="How many tasks are enqueued.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The seed of the random workload.")
@click.option(
    "--concurrency",
    type=IntegerRange(2, 256),
    default=max(2, whole_cpus()),
    help="How many children the worker has.  [default: the processors, at least 2]",
)
@click.option(
    "--redis",
    "-u",
    metavar="URL",
    type=Parsed("url", _url),
    help="A Redis to use instead of a private one; the queues are demo:critical, demo:default and demo:low, and are "
    "removed at the end.",
)
@click.option("--web", is_flag=True, help="Show it in the web UI, until Ctrl-C; needs fastq-worker[web].")
def main(tasks: int, seed: int, concurrency: int, redis: str | None, web: bool) -> None:
    """Run a mixed workload through a real Redis and a real fastq-worker, and account for every task."""
    screen = Screen()
    try:
        with Interruption() as interruption:
            added_up = run_demo(DemoOptions(tasks, seed, concurrency, redis, web), screen, interruption)
    except Interrupted as error:
        screen.say()
        screen.say(f"{error}: stopping the worker and removing the demo's data.")
        sys.exit(EXIT_SIGNAL + error.signum)
    except (BrokerError, PagesEndedError, QueuesInUseError, StalledError, WorkerEndedError) as error:
        click.echo(f"fastq demo: {error}", err=True)
        sys.exit(EXIT_FAILED)
    sys.exit(0 if added_up else EXIT_FAILED)


if __name__ == "__main__":
    main()

"""``fastq exporter``: the metrics of all queues for Prometheus; prometheus_client is imported only when it runs."""

import importlib
from typing import Final

import click

from fastq.cli.commands import Verb
from fastq.cli.session import Session, pass_session
from fastq.errors import FastqError
from fastq.server.base.config import host_and_port
from fastq.terminal.interruption import Interrupted, Interruption

__all__ = ["exporter"]

SERVER: Final = "fastq.metrics.exporter"
_STEP_S: Final = 3600.0


def _address(context: click.Context, option: click.Parameter, value: str) -> tuple[str, int]:
    try:
        return host_and_port(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, option) from None


@click.command("exporter", cls=Verb, examples=["exporter", "exporter --listen 0.0.0.0:9876"])
@click.option(
    "--listen",
    default="127.0.0.1:9876",
    show_default=True,
    metavar="HOST:PORT",
    callback=_address,
    help="serve /metrics here; port 0: any free one",
)
@pass_session
def exporter(session: Session, listen: tuple[str, int]) -> None:
    """Serve the metrics of all queues for Prometheus, with the names of asynq's exporter, until a signal.

    Redis is asked at most every 5 s. Needs fastq-worker[metrics].
    """
    try:
        server = importlib.import_module(SERVER)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        text = "the exporter needs prometheus_client; install it: pip install 'fastq-worker[metrics]'"
        raise FastqError(text) from None
    session.inspector.queues()  # a wrong URL is told at once
    host, port = listen
    try:
        with Interruption() as interruption, server.exporting(session.inspector, host, port) as bound:
            session.notes.say(f"metrics at http://{f'[{host}]' if ':' in host else host}:{bound}/metrics")
            while True:
                interruption.wait(_STEP_S)
    except Interrupted:
        return
    except OSError as error:
        raise FastqError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None

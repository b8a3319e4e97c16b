"""``fastq exporter``: the metrics of all queues for Prometheus. Only this command imports prometheus_client."""

from typing import Final

import click

from fastq.cli.commands import Verb
from fastq.cli.parameters import Parsed
from fastq.cli.session import Session, pass_session
from fastq.common.extras import import_extra
from fastq.errors import FastqError
from fastq.server.base.config import host_and_port
from fastq.terminal.interruption import Interrupted, Interruption

SERVER: Final = "fastq.metrics.exporter"
_STEP_S: Final = 3600.0


@click.command(
    "exporter",
    cls=Verb,
    examples=["exporter", "exporter --listen 0.0.0.0:9876"],
    exits="0 after Ctrl-C or SIGTERM, 1 failed, 2 misused",
)
@click.option(
    "--listen",
    default="127.0.0.1:9876",
    show_default=True,
    metavar="HOST:PORT",
    type=Parsed("address", host_and_port),
    help="serve /metrics here; port 0: any free one",
)
@pass_session
def exporter(session: Session, listen: tuple[str, int]) -> None:
    """Serve the metrics of all queues for Prometheus, with the names of asynq's exporter, until a signal.

    Redis is asked at most every 5 s. Needs fastq-worker[metrics].
    """
    text = "the exporter needs prometheus_client; install it: pip install 'fastq-worker[metrics]'"
    server = import_extra(SERVER, ["prometheus_client"], text)
    session.inspector.queues()  # a wrong URL fails at once
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

"""``fastq metrics``: files for Prometheus and Grafana, made for the metrics of fastq."""

from importlib.resources import files
from typing import Final

import click

from fastq.cli.commands import SETTINGS, Noun

RUNBOOKS: Final = "docs/alerts.md"
_EPILOG: Final = """\b
Examples:
  fastq metrics rules > fastq.rules.yml
  fastq metrics dashboard > fastq.json"""


def _epilog(*examples: str) -> str:
    shown = "\n".join(f"  fastq {example}" for example in examples)
    return f"\b\nExamples:\n{shown}\n\nExit codes: 0 done, 1 stdout cannot be written, 2 misused."


metrics = Noun("metrics", help="Print alerts for Prometheus, and a dashboard for Grafana.", epilog=_EPILOG)


@metrics.command(
    "rules",
    context_settings=SETTINGS,
    epilog=_epilog("metrics rules > fastq.rules.yml", "metrics rules --runbooks https://wiki.example/fastq-alerts"),
)
@click.option(
    "--runbooks", metavar="URL", default=RUNBOOKS, show_default=True, help="link to this copy of docs/alerts.md"
)
def rules(runbooks: str) -> None:
    """Print alerts for Prometheus, as a file of rules."""
    click.echo(_file("rules.yml").replace(f"{RUNBOOKS}#", f"{runbooks}#"), nl=False)


@metrics.command("dashboard", context_settings=SETTINGS, epilog=_epilog("metrics dashboard > fastq.json"))
def dashboard() -> None:
    """Print a dashboard for Grafana, as JSON to import."""
    click.echo(_file("dashboard.json"), nl=False)


def _file(name: str) -> str:
    # files("fastq.metrics") would import that package, which needs prometheus_client.
    return files("fastq").joinpath("metrics", name).read_text()

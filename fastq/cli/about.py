"""``fastq version`` and ``fastq completion``: the version of fastq, and the code for shells."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from fastq._version import __version__
from fastq.cli.commands import SETTINGS


@click.command("version", context_settings=SETTINGS)
def version() -> None:
    """Print the version of fastq."""
    click.echo(f"fastq {__version__}")


_COMPLETION_EPILOG: Final = """\b
Examples:
  echo 'eval "$(fastq completion bash)"' >> ~/.bashrc
  echo 'eval "$(fastq completion zsh)"' >> ~/.zshrc
  fastq completion fish > ~/.config/fish/completions/fastq.fish"""


@click.command("completion", context_settings=SETTINGS, epilog=_COMPLETION_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell code that completes commands, flags, states, and names of queues."""
    found = get_completion_class(shell)
    assert found is not None  # click supports these three shells
    frame = click.get_current_context().find_root().command
    click.echo(found(frame, {}, "fastq", "_FASTQ_COMPLETE").source())

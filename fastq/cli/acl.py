"""``fastq acl``: the rights that a user of Redis needs."""

from typing import Final

import click

from fastq.cli.commands import SETTINGS
from fastq.inspector.acl import ROLES, acl_rules

_EPILOG: Final = """\b
Examples:
  fastq acl producer --queues emails
  fastq acl worker --queues 'emails,video-*'
  fastq acl inspector

Exit codes: 0 done, 1 stdout cannot be written, 2 misused."""


@click.command("acl", context_settings=SETTINGS, epilog=_EPILOG)
@click.argument("roles", metavar="ROLE...", nargs=-1, required=True, type=click.Choice([*ROLES]))
@click.option(
    "--queues", metavar="QUEUE,...", default="*", show_default=True, help="the queues: names, or patterns with * and ?"
)
def acl(roles: tuple[str, ...], queues: str) -> None:
    """Print the ACL rules of a Redis user with each ROLE: producer, worker, scheduler, inspector or admin."""
    try:
        click.echo(acl_rules(roles, [queue.strip() for queue in queues.split(",")]))
    except ValueError as error:
        raise click.UsageError(str(error)) from None

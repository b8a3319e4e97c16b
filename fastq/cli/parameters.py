"""The parameters that several commands share: their types and options."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from fastq.cli.connection import redis_url
from fastq.common.states import TaskState
from fastq.errors import FastqError
from fastq.inspector import Inspector
from fastq.inspector.checks import check_queue
from fastq.options import check_text

F = TypeVar("F", bound=Callable[..., Any])


class Parsed(StringParamType):
    """A text that a function parses; a ``ValueError`` of the function is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a text."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


GROUP_NAME: Final = Parsed("group", lambda text: check_text(text, "group"))
TASK_ID: Final = Parsed("task id", lambda text: check_text(text, "task id"))


class QueueName(Parsed):
    """The name of a queue; shell completion reads the names from Redis."""

    def __init__(self) -> None:
        super().__init__("queue", check_queue)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """List the queues with this prefix."""
        try:
            with Inspector(redis_url(ctx)) as inspector:
                return [CompletionItem(name) for name in inspector.queues() if name.startswith(incomplete)]
        except (FastqError, click.UsageError):
            return []


def state_option(*states: TaskState) -> Callable[[F], F]:
    """Make the option that takes one of these states."""
    return click.option("--state", "-s", type=_choice(states), required=True, help="the state of the tasks")


def states_option(states: Iterable[TaskState], help: str) -> Callable[[F], F]:
    """Make the option that takes any number of these states."""
    return click.option("--state", "-s", "states", type=_choice(states), multiple=True, help=help)


def _choice(states: Iterable[TaskState]) -> click.Choice[str]:
    return click.Choice([state.value for state in states], case_sensitive=False)


def type_option(command: F) -> F:
    """Give a command the option that selects tasks of a type."""
    return click.option("--type", metavar="PATTERN", help="only tasks of this type; * and ? match as in file names")(
        command
    )


def queue_option(command: F) -> F:
    """Give a command the option that names its queue."""
    return click.option("--queue", "-q", type=QueueName(), required=True, metavar="QUEUE", help="the queue")(command)


def json_option(command: F) -> F:
    """Give a command the option for JSON output."""
    return click.option("--json", "as_json", is_flag=True, help="write JSON, as in docs/cli.schema.json")(command)

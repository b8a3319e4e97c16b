"""The parameters that several commands share: their types and options."""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from fastq.cli.connection import redis_url
from fastq.common.states import TaskState
from fastq.errors import FastqError
from fastq.inspector import Inspector
from fastq.options import check_text

__all__ = [
    "GroupName",
    "NumberRange",
    "QueueName",
    "TaskId",
    "json_option",
    "queue_option",
    "state_option",
    "states_option",
    "type_option",
]

F = TypeVar("F", bound=Callable[..., Any])


class NumberRange(click.FloatRange):
    """A number within a range; click's own type accepts ``nan``, too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check a number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number


class _Name(StringParamType):
    """A name that becomes part of Redis keys; a blank one is a usage error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check a name."""
        try:
            return check_text(value, self.name)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class GroupName(_Name):
    """The name of a group of tasks."""

    name = "group"


class TaskId(_Name):
    """The id of a task."""

    name = "task id"


class QueueName(_Name):
    """The name of a queue; shell completion asks Redis for it."""

    name = "queue"

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
    """Give a command the option that leaves tasks of a type."""
    return click.option("--type", metavar="PATTERN", help="only tasks of this type; * and ? match as in file names")(
        command
    )


def queue_option(command: F) -> F:
    """Give a command the option that names its queue."""
    return click.option("--queue", "-q", type=QueueName(), required=True, metavar="QUEUE", help="the queue")(command)


def json_option(command: F) -> F:
    """Give a command the option for JSON output."""
    return click.option("--json", "as_json", is_flag=True, help="write JSON, as in docs/cli.schema.json")(command)

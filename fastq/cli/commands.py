"""The frame of the commands: nouns with verbs, aliases, "did you mean", and common parameter types."""

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from fastq.cli.connection import connection_options, redis_url
from fastq.errors import FastqError
from fastq.inspector import Inspector
from fastq.options import check_text
from fastq.states import TaskState

__all__ = [
    "EXITS_OF_MANY",
    "SETTINGS",
    "GroupName",
    "Noun",
    "NumberRange",
    "QueueName",
    "TaskId",
    "Verb",
    "json_option",
    "queue_option",
    "state_option",
    "states_option",
    "type_option",
]

F = TypeVar("F", bound=Callable[..., Any])

_REDIS: Final = "The Redis options listed by fastq --help are also accepted here."
_EXITS: Final = "0 done, 1 failed, 2 misused, 130 interrupted"
EXITS_OF_MANY: Final = "0 done, 1 failed for at least one (the others are done), 2 misused, 130 interrupted"

SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Verb(click.Command):
    """A command that talks to Redis; it also takes the connection options, which only the top-level help lists.

    ``examples`` are arguments of ``fastq``. ``exits`` describes the exit codes if they differ from the usual ones.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), exits: str = _EXITS, **named: Any) -> None:
        named.setdefault("context_settings", SETTINGS)
        shown = "\n".join(["\b", "Examples:", *(f"  fastq {example}" for example in examples)])
        named["epilog"] = "\n\n".join([shown, f"\b\n{_REDIS}\nExit codes: {exits}."])
        super().__init__(*args, **named)
        self.params += connection_options(hidden=True)


class Noun(click.Group):
    """A group of commands; an unknown command is answered with the one that was probably meant."""

    def __init__(self, *args: Any, **named: Any) -> None:
        named.setdefault("context_settings", SETTINGS)
        named.setdefault("callback", _show_help)
        super().__init__(*args, **{**named, "invoke_without_command": True})
        self.aliases: dict[str, str] = {}
        self.params += connection_options(hidden=True)

    def verb(self, name: str, *aliases: str, **more: Any) -> Callable[[Callable[..., Any]], click.Command]:
        """Make a function a command of this noun, under a name and its aliases."""
        self.aliases.update(dict.fromkeys(aliases, name))
        return self.command(name, cls=Verb, **more)

    def add(self, command: click.Command, *aliases: str) -> None:
        """Add a command that is defined elsewhere."""
        assert command.name is not None
        self.aliases.update(dict.fromkeys(aliases, command.name))
        self.add_command(command)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command by its name or an alias."""
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command at the start of the words."""
        word = args[0]
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            known = [*self.list_commands(ctx), *self.aliases]
            close = difflib.get_close_matches(word, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"commands are {', '.join(self.list_commands(ctx))}"
            raise click.UsageError(f"no command {word!r}; {hint}", ctx)
        return super().resolve_command(ctx, [self.aliases.get(word, word), *args[1:]])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their aliases."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                others = [alias for alias, target in self.aliases.items() if target == name]
                rows.append((", ".join([name, *others]), command.get_short_help_str(200)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names in the order of their definition."""
        return list(self.commands)


@click.pass_context
def _show_help(context: click.Context) -> int:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return 0


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

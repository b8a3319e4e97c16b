"""The base classes of the commands: nouns with verbs, aliases, and suggestions for misspelled commands."""

import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from fastq.cli.connection import connection_options

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
        named["epilog"] = f"{shown}\n\n{_REDIS} Exit codes: {exits}."
        super().__init__(*args, **named)
        self.params += connection_options(hidden=True)


class Noun(click.Group):
    """A group of commands; for an unknown command, the error suggests the most similar one."""

    def __init__(self, *args: Any, **named: Any) -> None:
        named.setdefault("context_settings", SETTINGS)
        named.setdefault("callback", _show_help)
        super().__init__(*args, **{**named, "invoke_without_command": True})
        self.aliases: dict[str, str] = {}
        self._places: dict[str, tuple[str, str]] = {}
        self.params += connection_options(hidden=True)

    def verb(self, name: str, *aliases: str, **more: Any) -> Callable[[Callable[..., Any]], click.Command]:
        """Make a function a command of this noun, under a name and its aliases."""
        self.aliases.update(dict.fromkeys(aliases, name))
        return self.command(name, cls=Verb, **more)

    def add(self, name: str, place: str, *aliases: str, summary: str = "") -> None:
        """Add a command that is imported from ``module:attribute`` when it is needed.

        With a ``summary``, the help of this noun does not import it.
        """
        self.aliases.update(dict.fromkeys(aliases, name))
        self._places[name] = place, summary

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command by its name or an alias, and import it unless that was done before."""
        name = self.aliases.get(cmd_name, cmd_name)
        if name in self._places and name not in self.commands:
            module, _, attribute = self._places[name][0].partition(":")
            self.add_command(getattr(importlib.import_module(module), attribute), name)
        return super().get_command(ctx, name)

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
            others = [alias for alias, target in self.aliases.items() if target == name]
            rows.append((", ".join([name, *others]), self._summary(ctx, name)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names in the order of their definition; the commands of ``add`` come last."""
        return [*(name for name in self.commands if name not in self._places), *self._places]

    def _summary(self, ctx: click.Context, name: str) -> str:
        if name in self._places and (summary := self._places[name][1]):
            return summary
        command = self.get_command(ctx, name)
        assert command is not None  # the command is listed, so it exists
        return command.get_short_help_str(200)


@click.pass_context
def _show_help(context: click.Context) -> int:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return 0

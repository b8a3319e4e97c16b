"""What the pages say of ``fastq`` holds: their commands are taken, and no command, flag or JSON is missing."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fastq.cli.connection import connection_options
from fastq.cli.main import main
from tests.cli.commands import SCHEMA

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text()
SHOWN = re.findall(r"^\$ (fastq .*)$", PAGE, re.MULTILINE)
MISTAKEN = ["fastq stast"]


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize("line", SHOWN)
def test_the_commands_of_the_page_are_taken(line: str) -> None:
    words = shlex.split(line)[1:]
    context = click.Context(main, info_name="fastq")
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        if found is None:
            assert line in MISTAKEN
            return
        command, words = found, words[1:]
    command.make_context(command.name, words, parent=context)


def test_every_command_is_on_the_page() -> None:
    assert SHOWN
    for path, _ in leaves(main):
        assert re.search(rf"`(fastq )?{path[-1]}`|\$ fastq {' '.join(path)}\b|`fastq {' '.join(path)} ", PAGE), path


def test_every_option_for_redis_is_on_the_page() -> None:
    for option in connection_options(hidden=False):
        for flag in option.opts:
            assert f"`{flag}" in PAGE or "_" in flag, flag


def test_every_json_has_a_definition() -> None:
    with_json = {
        " ".join(path) for path, command in leaves(main) if any("--json" in option.opts for option in command.params)
    }
    alone = ("stats", "doctor", "bench", "plan")
    kept = {name for name in SCHEMA["$defs"] if name in alone or " " in name}
    assert with_json == kept
    assert len(kept) >= 10
